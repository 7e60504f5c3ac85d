//! A served resource: its strategy, its names in every form, and its cache. All of them together:
//! [`Registry`].

mod admitted;
mod shown;

use std::{collections::HashMap, sync::Arc};

use coracle_api::{
    meta,
    resource::{GroupResource, Gvk},
    schema::{self, Schema},
    status::Status,
};
use coracle_store::Backend;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    api_resource::{ApiResource, Text},
    converter::Converted,
    kinds,
    open_definitions::definition::Definition,
    projected::Projected,
    service_allocator::node_ports,
    storage_version::{StorageVersion, Version},
    strategy::{AnyStrategy, BuiltIn, Conversion, Projection, View},
    unenforced,
    watch_cache::{
        FieldIndex, FieldReads, KeyScope, ResourceCache, ResourceConfig, Selection, WatchCache,
        WatchCacheError, WatchCacheLimits,
    },
};

/// A resource and what is needed to serve it.
pub struct Resource {
    /// What the kind adds to the generic registry.
    pub strategy: AnyStrategy,
    /// Its names, verbs and subresources.
    pub info: Arc<ApiResource>,
    /// Group, version and kind.
    pub gvk: Gvk,
    /// As errors name it.
    pub group_resource: GroupResource,
    /// `/registry/pods/`, `/registry/apps/deployments/`.
    pub prefix: String,
    /// What its objects look like; `None` if nobody knows.
    pub schema: Option<Schema>,
    /// What a field selector may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Arc<[Text]>,
    /// The cache of the kind that stores the objects.
    pub cache: Arc<ResourceCache>,
    /// Set if the objects are another kind's.
    pub view: Option<SeenThrough>,
    /// Set if they are some of what another kind's hold.
    pub projected: Option<Projected>,
    /// Set if the objects are stored in another version of the kind.
    pub stored_as: Option<StorageVersion>,
    /// Set if the objects are stored in any version of the kind, and a webhook turns them into
    /// this one.
    pub converted: Option<Arc<Converted>>,
    /// Of a kind that comes at run time, all its versions, in which its field managers may own
    /// something; not for those who look at metadata alone.
    pub(crate) versions: Option<Arc<[Version]>>,
    /// What its new objects are held to.
    pub(crate) definition: Option<Arc<Definition>>,
    /// Of one that a webhook converts, in each version, the resource for those who look at
    /// metadata alone, the storage version first: it shows every object in the version in which
    /// it is stored, and waits for no webhook.
    pub as_stored: Arc<[Arc<Resource>]>,
}

/// How a resource shows the objects of another.
pub struct SeenThrough {
    /// How they are turned into one another.
    pub conversion: Conversion,
    /// The resource that stores them.
    pub stored: Arc<Resource>,
}

impl Resource {
    /// Whether its objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.info.is_namespaced()
    }

    /// Whether this is the core group's resource of that name.
    pub fn is_core(&self, plural: &str) -> bool {
        self.info.is_core(plural)
    }

    /// What to warn the writer of an object of, which was `old` before.
    pub fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = self.strategy.warnings(object);
        warnings.extend(unenforced::warnings(&self.info, object, old));
        warnings
    }

    /// Whether clients see objects as the cache has them, to the last byte.
    pub fn is_shown_as_stored(&self) -> bool {
        self.is_storing() && self.stored_as.is_none() && self.converted.is_none()
    }

    /// Whether it stores objects, and does not show those of another resource.
    pub fn is_storing(&self) -> bool {
        self.view.is_none() && self.projected.is_none()
    }

    /// The resource that stores the objects: this one, unless it is a view.
    pub fn storing(&self) -> &Self {
        self.view.as_ref().map_or(self, |seen| &seen.stored)
    }

    /// The object of the storing kind that this object stands for, defaulted and checked as one of
    /// this kind before.
    pub fn stored(&self, seen: &SeenThrough, mut object: Value) -> Result<Value, Status> {
        self.strategy.default(&mut object);
        let errors = self.strategy.validate(&object);
        if !errors.is_empty() {
            return Err(Status::invalid(&self.gvk, meta::name(&object), errors));
        }
        Ok(typed((seen.conversion.to_stored)(object), &seen.stored.gvk))
    }

    /// The objects as the cache has them now, without what their managers own.
    pub fn objects(&self, scope: KeyScope) -> Vec<Value> {
        if self.cache.is_empty() {
            return Vec::new();
        }
        let (snapshot, selection) = (self.cache.snapshot(), Selection::of(scope));
        let selected = snapshot.select(&selection, &self.prefix);
        selected
            .filter_map(|entry| serde_json::from_slice(&entry.unmanaged()).ok())
            .collect()
    }

    /// What the storing kind calls a selectable field.
    pub fn stored_field<'a>(&self, field: &'a str) -> &'a str {
        self.view
            .as_ref()
            .map_or(field, |seen| (seen.conversion.stored_field)(field))
    }

    /// The key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + namespace.len() + name.len() + 1);
        key.push_str(&self.prefix);
        if self.is_namespaced() {
            key.push_str(namespace);
            key.push('/');
        }
        key.push_str(name);
        key
    }
}

fn typed(mut object: Value, gvk: &Gvk) -> Value {
    object["apiVersion"] = gvk.api_version().into();
    object["kind"] = gvk.kind.as_str().into();
    object
}

/// The resources of the built-in kinds: what this server has from its start to its end.
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    /// Places in `resources`.
    by_plural: HashMap<Text, Vec<usize>>,
}

impl Registry {
    /// Starts the caches of every built-in kind.
    pub async fn start(
        backend: &Arc<dyn Backend>,
        shutdown: CancellationToken,
    ) -> Result<(Self, Arc<WatchCache>), WatchCacheError> {
        let stored = || {
            kinds::all()
                .iter()
                .copied()
                .filter(|kind| kind.view().is_none())
        };
        let configs = stored()
            .map(|kind| cache_config(&kind.resource().into(), kind.into(), &fields(kind)))
            .chain([node_ports::cache()])
            .collect();
        let cache = WatchCache::start(
            Arc::clone(backend),
            configs,
            WatchCacheLimits::default(),
            shutdown,
        )
        .await?;
        let mut resources: Vec<Arc<Resource>> = Vec::with_capacity(kinds::all().len());
        for kind in stored() {
            let info = ApiResource::from(kind.resource());
            let Some(resource_cache) = cache.resource(&info.prefix()) else {
                continue;
            };
            resources.push(Arc::new(Resource::built_in(
                kind,
                info,
                resource_cache,
                None,
            )));
        }
        for (place, kind) in kinds::all().iter().enumerate() {
            let seen = kind.view().and_then(|view| seen_through(view, &resources));
            let Some(seen) = seen else { continue };
            let (info, cache) = (
                ApiResource::from(kind.resource()),
                Arc::clone(&seen.stored.cache),
            );
            // Those before it are in: every kind has its place in the list.
            resources.insert(
                place.min(resources.len()),
                Arc::new(Resource::built_in(*kind, info, cache, Some(seen))),
            );
        }
        for kind in kinds::projections() {
            resources.extend(projection(*kind, &resources).map(Arc::new));
        }
        let mut by_plural: HashMap<Text, Vec<usize>> = HashMap::new();
        for (place, resource) in resources.iter().enumerate() {
            by_plural
                .entry(resource.info.plural.clone())
                .or_default()
                .push(place);
        }
        Ok((
            Self {
                resources,
                by_plural,
            },
            cache,
        ))
    }

    /// The built-in resource at `/apis/GROUP/VERSION/PLURAL`.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let places = self.by_plural.get(plural)?.iter();
        places
            .map(|at| &self.resources[*at])
            .find(|resource| resource.info.is_at(group, version, plural))
    }

    /// A resource of the core group that every server has.
    pub fn core(&self, plural: &str) -> Option<&Arc<Resource>> {
        self.get("", "v1", plural)
    }

    /// All of them, in discovery's order.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }
}

impl Resource {
    fn built_in(
        kind: &'static dyn BuiltIn,
        info: ApiResource,
        cache: Arc<ResourceCache>,
        view: Option<SeenThrough>,
    ) -> Self {
        let gvk = info.gvk();
        Self {
            strategy: kind.into(),
            schema: schema::table().by_gvk(&gvk).map(Schema::BuiltIn),
            gvk,
            group_resource: info.group_resource(),
            prefix: view
                .as_ref()
                .map_or_else(|| info.prefix(), |seen| seen.stored.prefix.clone()),
            selectable_fields: fields(kind),
            info: Arc::new(info),
            cache,
            view,
            projected: None,
            stored_as: None,
            converted: None,
            versions: None,
            definition: None,
            as_stored: Arc::default(),
        }
    }
}

/// A projection of a kind that is among `resources`.
fn projection(kind: &'static dyn Projection, resources: &[Arc<Resource>]) -> Option<Resource> {
    let stored = among(resources, kind.of())?;
    let (cache, projected) = (Arc::clone(&stored.cache), Projected::new(kind));
    let own = Resource::built_in(kind, kind.resource().into(), cache, None);
    Some(Resource {
        prefix: stored.prefix.clone(),
        schema: projected.schema(),
        projected: Some(projected),
        ..own
    })
}

/// A view of a kind that is among `resources`.
fn seen_through(view: &View, resources: &[Arc<Resource>]) -> Option<SeenThrough> {
    Some(SeenThrough {
        conversion: view.conversion,
        stored: Arc::clone(among(resources, view.of)?),
    })
}

fn among<'a>(resources: &'a [Arc<Resource>], kind: &dyn BuiltIn) -> Option<&'a Arc<Resource>> {
    let of = kind.resource();
    let mut all = resources.iter();
    all.find(|one| one.info.is_at(of.group, of.version, of.plural))
}

fn fields(kind: &dyn BuiltIn) -> Arc<[Text]> {
    kind.selectable_fields()
        .iter()
        .copied()
        .map(Text::Borrowed)
        .collect()
}

/// Fields that lists go by, where a kind has them: each node asks for its own.
const LISTED_BY: [&str; 1] = ["spec.nodeName"];
/// Each node writes its own every ten seconds: 75 seconds of them say no more than the last.
const LEASES: &str = "/registry/coordination.k8s.io/leases/";

/// How the objects of a resource are cached.
pub(crate) fn cache_config(
    info: &ApiResource,
    strategy: AnyStrategy,
    fields: &Arc<[Text]>,
) -> ResourceConfig {
    let reads = match strategy {
        AnyStrategy::BuiltIn(_) => FieldReads::TwoLevels,
        // A path may lead anywhere.
        AnyStrategy::Custom(_) => FieldReads::Everything,
    };
    let index = (!fields.is_empty()).then(|| {
        let (names, asked) = (Arc::clone(fields), Arc::clone(fields));
        let values = move |object: &Value| {
            asked
                .iter()
                .map(|field| strategy.field(object, field))
                .collect()
        };
        FieldIndex {
            names,
            values: Arc::new(values),
            reads,
            listed: LISTED_BY.map(Text::Borrowed).into(),
        }
    });
    ResourceConfig {
        prefix: info.prefix(),
        namespaced: info.is_namespaced(),
        index,
        is_transient: info.prefix() == LEASES,
        convert: None,
    }
}
