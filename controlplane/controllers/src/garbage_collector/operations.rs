//! The collector's calls, about objects of any kind. An object that is gone, or is another by now,
//! needs nothing.
//!
//! Source: `pkg/controller/garbagecollector/operations.go` at v1.37.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, Preconditions},
};
use serde_json::Value;
use tracing::warn;

use super::{
    graph::Place,
    plan::{self, Owner},
};
use crate::{
    controller::{CallContext, ReconcileError, ignore_missing, or_event},
    served_kinds::{ServedKind, ServedKinds},
};

/// Reads and writes of objects by group, kind and name.
pub(super) struct Operations {
    client: Client,
    kinds: Arc<ServedKinds>,
}

impl Operations {
    pub(super) fn new(client: Client, kinds: Arc<ServedKinds>) -> Self {
        Self { client, kinds }
    }

    /// The metadata of the object with `uid` at `place`.
    pub(super) async fn get(
        &self,
        place: &Place,
        uid: &str,
        call: &'static str,
    ) -> Result<Option<ObjectMeta>, ReconcileError> {
        let api = self.of(place)?;
        let live = api.get_metadata_opt(&place.name).await.during(call)?;
        let live = live.map(|live| live.metadata);
        Ok(live.filter(|live| live.uid.as_deref() == Some(uid)))
    }

    /// Asks what became of an owner that an object in `namespace` names.
    pub(super) async fn owner(
        &self,
        reference: &OwnerReference,
        namespace: &str,
    ) -> Result<Owner, ReconcileError> {
        let (group, _) = reference.api_version.rsplit_once('/').unwrap_or(("", ""));
        let Some(served) = self.kinds.get(group, &reference.kind) else {
            return Ok(Owner::Unserved);
        };
        if served.namespaced && namespace.is_empty() {
            // Upstream leaves such an object alone as well.
            warn!(owner = %reference.name, kind = %reference.kind, "a cluster-wide object names an owner that has a namespace");
            return Ok(Owner::OutOfReach);
        }
        let api = self.api(&served, namespace);
        let live = api.get_metadata_opt(&reference.name).await;
        let live = live.during("get owner")?;
        Ok(live.map_or(Owner::Absent, |live| Owner::Live(Box::new(live.metadata))))
    }

    /// Patches the object at `place`; the patch says by its uid which one is meant. Returns what it
    /// is then, `None` if it is gone.
    pub(super) async fn patch(
        &self,
        place: &Place,
        patch: Value,
        call: &'static str,
    ) -> Result<Option<ObjectMeta>, ReconcileError> {
        let (api, params) = (self.of(place)?, PatchParams::default());
        let patch = Patch::Merge(patch);
        let patched = api.patch_metadata(&place.name, &params, &patch);
        let patched = ignore_missing(patched.await).during(call)?;
        Ok(patched.map(|patched| patched.metadata))
    }

    /// Deletes the object at `place`, if it is `live` still and its owners are the same.
    ///
    /// # Errors
    /// [`ReconcileError::NotYet`] if they are others by now: they have to be asked for first.
    pub(super) async fn delete(
        &self,
        place: &Place,
        live: &ObjectMeta,
        params: DeleteParams,
    ) -> Result<(), ReconcileError> {
        let uid = live.uid.as_deref().unwrap_or_default();
        let version = live.resource_version.clone();
        let deleted = self.delete_version(place, uid, version, params.clone());
        if or_event(deleted.await)?.is_some() {
            return Ok(());
        }
        let Some(latest) = self.get(place, uid, "get changed object").await? else {
            return Ok(());
        };
        if !plan::has_owners_of(&latest, live) {
            return Err(ReconcileError::NotYet(format!(
                "the owners of {} have changed",
                place.name
            )));
        }
        // What changes all the time, and never its owners, would stay for ever.
        self.delete_version(place, uid, None, params).await
    }

    /// With a `version` only that version.
    async fn delete_version(
        &self,
        place: &Place,
        uid: &str,
        version: Option<String>,
        params: DeleteParams,
    ) -> Result<(), ReconcileError> {
        let params = params.preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: version,
        });
        let api = self.of(place)?;
        let deleted = api.delete(&place.name, &params).await;
        let deleted = ignore_missing(deleted).during("delete dependent");
        deleted.map(drop)
    }

    fn of(&self, place: &Place) -> Result<Api<DynamicObject>, ReconcileError> {
        let (group, kind) = place.kind.as_ref();
        let Some(served) = self.kinds.get(group, kind) else {
            return Err(unserved(&format!("{kind}.{group} {:?}", place.name)));
        };
        Ok(self.api(&served, &place.namespace))
    }

    fn api(&self, served: &ServedKind, namespace: &str) -> Api<DynamicObject> {
        if served.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &served.resource)
        } else {
            Api::all_with(self.client.clone(), &served.resource)
        }
    }
}

/// Nobody serves the kind of an owner, and what became of it was not seen.
pub(super) fn unserved_owner(reference: &OwnerReference) -> ReconcileError {
    let (group, _) = reference.api_version.rsplit_once('/').unwrap_or(("", ""));
    unserved(&format!("{}.{group} {:?}", reference.kind, reference.name))
}

/// Kinds come and go, and discovery is asked now and then.
fn unserved(what: &str) -> ReconcileError {
    ReconcileError::Awaited(format!(
        "the kind of {what} is not served: what it owns stays until the kind is served or the reference is removed"
    ))
}
