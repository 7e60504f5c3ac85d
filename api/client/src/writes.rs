//! What a controller writes to an object that it has read, and how it has it deleted.
//!
//! ```text
//! Write::to(&client, &*pod, "evict Pod").delete(DeleteParams::default()).await?;
//! let taints = json!({"spec": {"taints": taints}});
//! or_event(Write::to(&client, &*node, "taint Node").if_unchanged().patch(taints).await)?;
//! ```
//! Another object of that name is left alone, and one that is gone needs nothing. That somebody
//! else was quicker is a failure: whoever hears of the newer version asks [`or_event`].
//!
//! [`or_event`]: crate::controller::or_event

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    controller::{CallContext, ReconcileError, ignore_missing},
    informers::Kind,
};

/// Where the objects of a kind are found, by the scope of the kind.
pub trait Scope<K> {
    /// The objects beside `object`.
    fn api(client: Client, object: &K) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scope<K> for NamespaceResourceScope {
    fn api(client: Client, object: &K) -> Api<K> {
        Api::namespaced(
            client,
            object.meta().namespace.as_deref().unwrap_or_default(),
        )
    }
}

impl<K: Resource<DynamicType = ()>> Scope<K> for ClusterResourceScope {
    fn api(client: Client, _: &K) -> Api<K> {
        Api::all(client)
    }
}

/// See the module.
#[must_use = "nothing is written yet"]
#[derive(Debug)]
pub struct Write<'a, K> {
    api: Api<K>,
    object: &'a K,
    is_of_version: bool,
    call: &'static str,
}

impl<'a, K: Kind> Write<'a, K>
where
    K::Scope: Scope<K>,
{
    /// A write to `object`; `call` says what it is for, in errors.
    pub fn to(client: &Client, object: &'a K, call: &'static str) -> Self {
        Self {
            api: K::Scope::api(client.clone(), object),
            object,
            is_of_version: false,
            call,
        }
    }

    /// Only if nobody has written the object since it was read.
    pub fn if_unchanged(mut self) -> Self {
        self.is_of_version = true;
        self
    }

    /// Deletes it.
    ///
    /// # Errors
    /// [`ReconcileError::Api`], unless it is gone already.
    pub async fn delete(self, params: DeleteParams) -> Result<(), ReconcileError> {
        let params = params.preconditions(Preconditions {
            uid: self.object.meta().uid.clone(),
            resource_version: self.version(),
        });
        let deleted = self.api.delete(self.name(), &params).await;
        ignore_missing(deleted).during(self.call).map(drop)
    }

    /// Merges `patch` into it; what it is then, or `None` if it is gone.
    ///
    /// # Errors
    /// [`ReconcileError::Api`].
    pub async fn patch(self, patch: Value) -> Result<Option<K>, ReconcileError> {
        let (patch, params) = (self.guarded(patch), PatchParams::default());
        let patched = self.api.patch(self.name(), &params, &patch);
        ignore_missing(patched.await).during(self.call)
    }

    /// As [`Write::patch`], where the patch is one of the status.
    ///
    /// # Errors
    /// [`ReconcileError::Api`].
    pub async fn patch_status(self, patch: Value) -> Result<Option<K>, ReconcileError> {
        let (patch, params) = (self.guarded(patch), PatchParams::default());
        let patched = self.api.patch_status(self.name(), &params, &patch);
        ignore_missing(patched.await).during(self.call)
    }

    /// Writes what `change` makes of the status. What the object is then, or `None` if it is gone,
    /// or was so already. Always of the version that was read.
    ///
    /// # Errors
    /// [`ReconcileError::Api`].
    pub async fn status(self, change: impl FnOnce(&mut K)) -> Result<Option<K>, ReconcileError>
    where
        K: PartialEq + Serialize,
    {
        let mut wanted = self.object.clone();
        change(&mut wanted);
        if wanted == *self.object {
            return Ok(None);
        }
        let params = PostParams::default();
        let written = self.api.replace_status(self.name(), &params, &wanted);
        ignore_missing(written.await).during(self.call)
    }

    fn guarded(&self, mut patch: Value) -> Patch<Value> {
        patch["metadata"]["uid"] = self.object.meta().uid.as_deref().into();
        if let Some(version) = self.version() {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        Patch::Merge(patch)
    }

    fn version(&self) -> Option<String> {
        let version = self.object.meta().resource_version.clone();
        version.filter(|_| self.is_of_version)
    }

    fn name(&self) -> &str {
        self.object.meta().name.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
