//! A served resource: its strategy, its names in every form, and its cache. All of them together: [`Registry`].

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use coracle_api::{
    meta,
    resource::{GroupResource, Gvk},
    schema::{self, Type},
    status::Status,
};
use coracle_store::{Backend, Revision};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    encode, kinds,
    strategy::{ResourceInfo, Scope, Strategy, View},
    unenforced,
    watch_cache::{
        FieldIndexer, ResourceCache, ResourceConfig, Scope as CacheScope, Selection, WatchCache, WatchCacheError,
        WatchCacheLimits,
    },
};

/// A resource and what is needed to serve it.
pub struct Resource {
    /// What the kind says of itself.
    pub strategy: &'static dyn Strategy,
    /// Its names, verbs and subresources.
    pub info: &'static ResourceInfo,
    /// Group, version and kind.
    pub gvk: Gvk,
    /// As errors name it.
    pub group_resource: GroupResource,
    /// `/registry/pods/`, `/registry/apps/deployments/`.
    pub prefix: String,
    /// The type of its objects; `None` if the schema table has none.
    pub schema: Option<Type>,
    /// The cache of the kind that stores the objects.
    pub cache: Arc<ResourceCache>,
    /// Set if the objects are another kind's.
    pub view: Option<SeenThrough>,
}

/// How a resource shows the objects of another.
pub struct SeenThrough {
    /// How they are turned into one another.
    pub view: &'static View,
    /// The resource that stores them.
    pub stored: Arc<Resource>,
}

impl Resource {
    /// Whether its objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.info.scope == Scope::Namespaced
    }

    /// Whether this is the core group's resource of that name.
    pub fn is_core(&self, plural: &str) -> bool {
        self.info.group.is_empty() && self.info.plural == plural
    }

    /// What to warn the writer of an object of.
    pub fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = self.strategy.warnings(object);
        warnings.extend(unenforced::warnings(self.info, object));
        warnings
    }

    /// The resource that stores the objects: this one, unless it is a view.
    pub fn storing(&self) -> &Self {
        self.view.as_ref().map_or(self, |seen| &seen.stored)
    }

    /// The object of the storing kind that this object stands for, defaulted and checked as one of this kind before.
    pub fn stored(&self, seen: &SeenThrough, mut object: Value) -> Result<Value, Status> {
        self.strategy.default(&mut object);
        let errors = self.strategy.validate(&object);
        if !errors.is_empty() {
            return Err(Status::invalid(&self.gvk, meta::name(&object), errors));
        }
        Ok(typed((seen.view.to_stored)(object), &seen.stored.gvk))
    }

    /// A stored object as this resource shows it.
    pub fn shown(&self, object: Value) -> Value {
        match &self.view {
            Some(seen) => typed((seen.view.from_stored)(object), &self.gvk),
            None => object,
        }
    }

    /// The same for an encoded object. Costs nothing unless this is a view.
    pub fn shown_json(&self, json: Bytes) -> Bytes {
        if self.view.is_none() {
            return json;
        }
        let Ok(object) = serde_json::from_slice::<Value>(&json) else { return json };
        let mut object = self.shown(object);
        let revision = meta::resource_version(&object).parse().ok().map(Revision);
        encode::strip(&mut object);
        let Ok(encoded) = encode::encode(&object) else { return json };
        revision.map_or(encoded.clone(), |revision| encode::with_revision(&encoded, revision))
    }

    /// The objects as the cache has them now, without what their managers own.
    pub fn objects(&self, scope: CacheScope) -> Vec<Value> {
        if self.cache.is_empty() {
            return Vec::new();
        }
        let (snapshot, selection) = (self.cache.snapshot(), Selection::of(scope));
        let selected = snapshot.select(&selection, &self.prefix);
        selected.filter_map(|entry| serde_json::from_slice(entry.unmanaged()).ok()).collect()
    }

    /// What the storing kind calls a selectable field.
    pub fn stored_field<'a>(&self, field: &'a str) -> &'a str {
        self.view.as_ref().map_or(field, |seen| (seen.view.stored_field)(field))
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

/// Every served resource.
pub struct Registry {
    by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
}

impl Registry {
    /// Starts the caches of every kind.
    pub async fn start(
        backend: &Arc<dyn Backend>,
        shutdown: CancellationToken,
    ) -> Result<(Self, Arc<WatchCache>), WatchCacheError> {
        let stored = || kinds::all().iter().copied().filter(|strategy| strategy.view().is_none());
        let configs = stored().map(cache_config).collect();
        let cache = WatchCache::start(Arc::clone(backend), configs, WatchCacheLimits::default(), shutdown).await?;
        let mut by_plural: HashMap<&'static str, Vec<Arc<Resource>>> = HashMap::new();
        for strategy in stored() {
            let prefix = prefix(strategy.resource());
            let Some(resource_cache) = cache.resource(&prefix) else { continue };
            let resource = resource(strategy, prefix, resource_cache, None);
            by_plural.entry(resource.info.plural).or_default().push(Arc::new(resource));
        }
        let mut registry = Self { by_plural };
        for strategy in kinds::all() {
            let Some(view) = strategy.view() else { continue };
            let of = view.of.resource();
            let Some(stored) = registry.get(of.group, of.version, of.plural).cloned() else { continue };
            let (prefix, cache) = (stored.prefix.clone(), Arc::clone(&stored.cache));
            let resource = resource(*strategy, prefix, cache, Some(SeenThrough { view, stored }));
            registry.by_plural.entry(resource.info.plural).or_default().push(Arc::new(resource));
        }
        Ok((registry, cache))
    }

    /// The resource at `/apis/GROUP/VERSION/PLURAL`.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural
            .get(plural)?
            .iter()
            .find(|resource| resource.info.group == group && resource.info.version == version)
    }

    /// A resource of the core group that every server has.
    pub fn core(&self, plural: &str) -> Option<&Arc<Resource>> {
        self.get("", "v1", plural)
    }
}

fn resource(
    strategy: &'static dyn Strategy,
    prefix: String,
    cache: Arc<ResourceCache>,
    view: Option<SeenThrough>,
) -> Resource {
    let info = strategy.resource();
    let gvk = Gvk::new(info.group, info.version, info.kind);
    Resource {
        strategy,
        info,
        schema: schema::table().by_gvk(&gvk),
        gvk,
        group_resource: GroupResource::new(info.group, info.plural),
        prefix,
        cache,
        view,
    }
}

fn prefix(info: &ResourceInfo) -> String {
    if info.group.is_empty() {
        format!("/registry/{}/", info.plural)
    } else {
        format!("/registry/{}/{}/", info.group, info.plural)
    }
}

fn cache_config(strategy: &'static dyn Strategy) -> ResourceConfig {
    let info = strategy.resource();
    let fields = strategy.selectable_fields();
    let index: Option<FieldIndexer> = (!fields.is_empty()).then(|| -> FieldIndexer {
        Arc::new(move |object| fields.iter().map(|field| (*field, strategy.field(object, field))).collect())
    });
    ResourceConfig { prefix: prefix(info), namespaced: info.scope == Scope::Namespaced, index }
}
