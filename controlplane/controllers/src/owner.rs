//! Controller references: who owns an object, and which objects an owner adopts or lets go. Pure.
//!
//! Source: `pkg/controller/controller_ref_manager.go` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

pub(crate) use coracle_client::cache::owner::{controller_of, owner_key, selector_of};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    api::ObjectMeta,
    core::{Selector, SelectorExt},
};
use serde_json::{Value, json};

/// Whether the controller of `meta` is the object with `uid`.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// The reference an owner puts on what it creates or adopts.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What [`claim`] found.
#[derive(Debug)]
pub(crate) struct Claimed<K> {
    /// Owned already and still matching.
    pub(crate) owned: Vec<Arc<K>>,
    /// Matching orphans, to be adopted.
    pub(crate) adopt: Vec<Arc<K>>,
    /// Owned but no longer matching, to be let go.
    pub(crate) release: Vec<Arc<K>>,
}

/// Sorts `candidates` by what their `owner` should do about them; those that it asks for `matches`.
///
/// An owner that is being deleted adopts nothing and releases nothing; a candidate that is being
/// deleted is neither adopted nor released.
pub(crate) fn claim<K: Resource>(
    owner: &ObjectMeta,
    matches: impl Fn(&K) -> bool,
    candidates: Vec<Arc<K>>,
) -> Claimed<K> {
    let owner_uid = owner.uid.as_deref().unwrap_or_default();
    let owner_going = owner.deletion_timestamp.is_some();
    let mut claimed = Claimed {
        owned: Vec::new(),
        adopt: Vec::new(),
        release: Vec::new(),
    };
    for candidate in candidates {
        let meta = candidate.meta();
        let matches = matches(&candidate);
        match controller_of(meta) {
            Some(reference) if reference.uid != owner_uid => {}
            Some(_) if matches => claimed.owned.push(candidate),
            Some(_) if !owner_going && meta.deletion_timestamp.is_none() => {
                claimed.release.push(candidate)
            }
            None if matches && !owner_going && meta.deletion_timestamp.is_none() => {
                claimed.adopt.push(candidate)
            }
            _ => {}
        }
    }
    claimed
}

/// Whether `selector` selects an object.
pub(crate) fn selects(selector: &Selector, object: &ObjectMeta) -> bool {
    let empty = BTreeMap::new();
    selector.matches(object.labels.as_ref().unwrap_or(&empty))
}

/// The merge patch that makes `reference` the controller of an object, with `finalizer` on it if
/// there is one. The uid guards against a namesake.
pub(crate) fn adopt_patch(
    object: &ObjectMeta,
    reference: &OwnerReference,
    finalizer: Option<&str>,
) -> Value {
    let mut owners: Vec<OwnerReference> = object.owner_references.clone().unwrap_or_default();
    owners.retain(|owner| owner.uid != reference.uid);
    owners.push(reference.clone());
    let mut metadata = json!({"uid": object.uid, "resourceVersion": object.resource_version, "ownerReferences": owners});
    if let Some(finalizer) = finalizer {
        let others = object
            .finalizers
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|other| *other != finalizer);
        metadata["finalizers"] = others.chain([finalizer]).collect();
    }
    json!({"metadata": metadata})
}

/// The merge patch that removes the owner with `owner_uid` from an object, and `finalizer`, which
/// was the owner's.
pub(crate) fn release_patch(
    object: &ObjectMeta,
    owner_uid: &str,
    finalizer: Option<&str>,
) -> Value {
    let owners: Vec<&OwnerReference> = object
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.uid != owner_uid)
        .collect();
    let mut metadata = json!({"uid": object.uid, "resourceVersion": object.resource_version, "ownerReferences": owners});
    if let Some(finalizer) = finalizer {
        metadata["finalizers"] = object
            .finalizers
            .iter()
            .flatten()
            .filter(|other| *other != finalizer)
            .cloned()
            .collect();
    }
    json!({"metadata": metadata})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        apimachinery::pkg::apis::meta::v1::{LabelSelector, Time},
        jiff::Timestamp,
    };

    use super::*;
    use crate::pod::Pod;

    fn pod(name: &str, label: &str, controller: Option<&str>, going: bool) -> Arc<Pod> {
        let owner = |uid: &str| OwnerReference {
            uid: uid.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        Arc::new(Pod {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some([("app".to_owned(), label.to_owned())].into()),
                owner_references: controller.map(|uid| vec![owner(uid)]),
                deletion_timestamp: going.then_some(Time(Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        })
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter()
            .map(|pod| pod.metadata.name.as_deref().unwrap())
            .collect()
    }

    fn sorted(owner_going: bool) -> Claimed<Pod> {
        let selector = Selector::try_from(LabelSelector {
            match_labels: Some([("app".to_owned(), "web".to_owned())].into()),
            ..LabelSelector::default()
        })
        .unwrap();
        let owner = ObjectMeta {
            uid: Some("me".into()),
            deletion_timestamp: owner_going.then_some(Time(Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        let candidates = vec![
            pod("mine", "web", Some("me"), false),
            pod("mine-going", "web", Some("me"), true),
            pod("mine-relabelled", "db", Some("me"), false),
            pod("orphan", "web", None, false),
            pod("orphan-going", "web", None, true),
            pod("orphan-other", "db", None, false),
            pod("of-another", "web", Some("other"), false),
        ];
        claim(
            &owner,
            |pod: &Pod| selects(&selector, &pod.metadata),
            candidates,
        )
    }

    #[test]
    fn matching_orphans_are_adopted_and_relabelled_ones_released() {
        let claimed = sorted(false);
        assert_eq!(names(&claimed.owned), ["mine", "mine-going"]);
        assert_eq!(names(&claimed.adopt), ["orphan"]);
        assert_eq!(names(&claimed.release), ["mine-relabelled"]);
    }

    #[test]
    fn what_is_released_loses_its_owners_finalizer() {
        let mut object = pod("p", "db", Some("me"), false).metadata.clone();
        object.finalizers = Some(vec!["example.org/mine".into(), "tracking".into()]);
        let patch = release_patch(&object, "me", Some("tracking"));
        assert_eq!(patch["metadata"]["finalizers"], json!(["example.org/mine"]));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([]));
        assert_eq!(
            release_patch(&object, "me", None)["metadata"].get("finalizers"),
            None
        );
    }

    #[test]
    fn owner_being_deleted_changes_no_reference() {
        let claimed = sorted(true);
        assert_eq!(names(&claimed.owned), ["mine", "mine-going"]);
        assert!(claimed.adopt.is_empty() && claimed.release.is_empty());
    }
}
