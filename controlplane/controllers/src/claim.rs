//! Adopts and releases what [`owner::claim`](crate::owner::claim) has sorted.
//!
//! Source: `pkg/controller/controller_ref_manager.go` (ClaimPods, ClaimReplicaSets,
//! RecheckDeletionTimestamp) at v1.37.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::Selector,
};
use serde::de::DeserializeOwned;

use crate::{
    controller::{CallContext, ReconcileError, ignore_missing},
    owner::{adopt_patch, claim, controller_reference, release_patch, selects},
};

/// The objects among `candidates` that belong to `owner`, after adopting and releasing by its
/// `selector`. What is adopted gets `finalizer`, if there is one, and what is released loses it.
pub(crate) async fn claim_all<O, C>(
    client: &Client,
    owner: &O,
    selector: &Selector,
    candidates: Vec<Arc<C>>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<C>>, ReconcileError>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
    C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let matches = |candidate: &C| selects(selector, candidate.meta());
    claim_matching(client, owner, matches, candidates, finalizer).await
}

/// As [`claim_all`], where more than a selector says which objects `owner` asks for.
pub(crate) async fn claim_matching<O, C>(
    client: &Client,
    owner: &O,
    matches: impl Fn(&C) -> bool,
    candidates: Vec<Arc<C>>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<C>>, ReconcileError>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
    C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let claimed = claim(owner.meta(), matches, candidates);
    let mut mine = claimed.owned;
    if claimed.adopt.is_empty() && claimed.release.is_empty() {
        return Ok(mine);
    }
    // Asked only for an adoption: nearly all rounds need no request.
    if !claimed.adopt.is_empty() && !still_exists(client, owner).await? {
        return Err(ReconcileError::NotYet(format!(
            "the cached {} is gone, nothing is adopted",
            O::kind(&())
        )));
    }
    let api: Api<C> = Api::namespaced(
        client.clone(),
        owner.meta().namespace.as_deref().unwrap_or_default(),
    );
    let name = |object: &C| object.meta().name.clone().unwrap_or_default();
    let reference = controller_reference(owner);
    for object in claimed.adopt {
        let patch = Patch::Merge(adopt_patch(object.meta(), &reference, finalizer));
        let adopted = api
            .patch(&name(&object), &PatchParams::default(), &patch)
            .await;
        mine.extend(
            ignore_missing(adopted)
                .during("adopt a dependent")?
                .map(Arc::new),
        );
    }
    for object in claimed.release {
        let patch = Patch::Merge(release_patch(object.meta(), &reference.uid, finalizer));
        let released = api
            .patch(&name(&object), &PatchParams::default(), &patch)
            .await;
        ignore_missing(released).during("release a dependent")?;
    }
    Ok(mine)
}

/// Asks the server itself: a cached owner may be gone, and its namesake must not adopt in its name.
async fn still_exists<O>(client: &Client, owner: &O) -> Result<bool, ReconcileError>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let meta = owner.meta();
    let api: Api<O> = Api::namespaced(
        client.clone(),
        meta.namespace.as_deref().unwrap_or_default(),
    );
    let live = api
        .get_metadata_opt(meta.name.as_deref().unwrap_or_default())
        .await
        .during("get the live owner")?;
    Ok(live.is_some_and(|live| {
        live.metadata.uid == meta.uid && live.metadata.deletion_timestamp.is_none()
    }))
}
