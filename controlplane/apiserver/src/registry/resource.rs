//! A served resource: its strategy, its names in every form, and its cache. All of them together: [`Registry`].

use std::{collections::HashMap, sync::Arc};

use coracle_api::{
    resource::{GroupResource, Gvk},
    schema::{self, Type},
};
use coracle_store::Backend;
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{
        kinds,
        strategy::{ResourceInfo, Scope, Strategy},
    },
    watch_cache::{FieldIndexer, ResourceCache, ResourceConfig, WatchCache, WatchCacheError, WatchCacheLimits},
};

/// A resource and what is needed to serve it.
pub(crate) struct Resource {
    pub(crate) strategy: &'static dyn Strategy,
    pub(crate) info: &'static ResourceInfo,
    pub(crate) gvk: Gvk,
    pub(crate) group_resource: GroupResource,
    /// `/registry/pods/`, `/registry/apps/deployments/`.
    pub(crate) prefix: String,
    pub(crate) schema: Option<Type>,
    pub(crate) cache: Arc<ResourceCache>,
}

impl Resource {
    pub(crate) fn is_namespaced(&self) -> bool {
        self.info.scope == Scope::Namespaced
    }

    /// Whether this is the core group's resource of that name.
    pub(crate) fn is_core(&self, plural: &str) -> bool {
        self.info.group.is_empty() && self.info.plural == plural
    }

    /// The key of an object.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
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

/// Every served resource.
pub(crate) struct Registry {
    by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
}

impl Registry {
    /// Starts the caches of every kind.
    pub(crate) async fn start(
        backend: &Arc<dyn Backend>,
        shutdown: CancellationToken,
    ) -> Result<(Self, Arc<WatchCache>), WatchCacheError> {
        let configs = kinds::all().iter().map(|strategy| cache_config(*strategy)).collect();
        let cache = WatchCache::start(Arc::clone(backend), configs, WatchCacheLimits::default(), shutdown).await?;
        let mut by_plural: HashMap<&'static str, Vec<Arc<Resource>>> = HashMap::new();
        for strategy in kinds::all() {
            let info = strategy.resource();
            let prefix = prefix(info);
            let Some(resource_cache) = cache.resource(&prefix) else { continue };
            let gvk = Gvk::new(info.group, info.version, info.kind);
            by_plural.entry(info.plural).or_default().push(Arc::new(Resource {
                strategy: *strategy,
                info,
                schema: schema::table().by_gvk(&gvk),
                gvk,
                group_resource: GroupResource::new(info.group, info.plural),
                prefix,
                cache: resource_cache,
            }));
        }
        Ok((Self { by_plural }, cache))
    }

    /// The resource at `/apis/GROUP/VERSION/PLURAL`.
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural
            .get(plural)?
            .iter()
            .find(|resource| resource.info.group == group && resource.info.version == version)
    }

    /// A resource of the core group that every server has.
    pub(crate) fn core(&self, plural: &str) -> Option<&Arc<Resource>> {
        self.get("", "v1", plural)
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
