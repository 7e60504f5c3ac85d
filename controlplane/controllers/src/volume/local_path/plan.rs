//! Whether a claim can have a directory, and as which volume; which volumes are to be deleted.
//! Pure.

use coracle_api::volume::{
    PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER, VOLUME_PROTECTION, annotation,
    class_of_claim,
    local_path::{DIRECTORY, FINALIZER, NODE, PROVISIONER, directory_name},
    volume_of, waits_for_consumer,
};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use serde_json::json;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The ways in which a directory of one node can be used.
const MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// What is seen of everything around a claim.
pub(super) struct Seen<'a> {
    pub(super) claim: &'a PersistentVolumeClaim,
    pub(super) class: Option<&'a StorageClass>,
    /// The one that the claim's annotation names, if it is there.
    pub(super) node: Option<&'a Node>,
}

/// What becomes of a claim that is looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// It is not for us, or not yet.
    Nothing,
    Make(Box<PersistentVolume>),
    /// Not on this node, and why.
    Reschedule(String),
    /// On no node, and why.
    Fail(String),
}

/// Decides by what the claim asks for first: what no directory can be is told whatever the node.
pub(super) fn plan(seen: &Seen<'_>) -> Plan {
    let Seen { claim, class, node } = seen;
    let meta = &claim.metadata;
    let is_asked = annotation(meta, STORAGE_PROVISIONER) == Some(PROVISIONER);
    if !is_asked || meta.deletion_timestamp.is_some() || !volume_of(claim).is_empty() {
        return Plan::Nothing;
    }
    let Some(class) = class.filter(|class| class.provisioner == PROVISIONER) else {
        let name = class_of_claim(claim);
        return Plan::Fail(format!(
            "no StorageClass {name:?} of provisioner {PROVISIONER:?}"
        ));
    };
    if let Some(why) = impossible(claim, class) {
        return Plan::Fail(why);
    }
    let Some(name) = annotation(meta, SELECTED_NODE).filter(|name| !name.is_empty()) else {
        return if waits_for_consumer(class) {
            Plan::Nothing
        } else {
            let why = "no node has been selected: a directory of a node needs a StorageClass of volumeBindingMode WaitForFirstConsumer";
            Plan::Fail(why.to_owned())
        };
    };
    let Some(node) = node else {
        return Plan::Reschedule(format!(
            "failed to get target node: nodes {name:?} not found"
        ));
    };
    let base = annotation(&node.metadata, DIRECTORY).unwrap_or_default();
    if !base.starts_with('/') {
        let why = format!(
            "node {name:?} has no annotation {DIRECTORY:?} with an absolute path: it keeps no volumes"
        );
        return Plan::Reschedule(why);
    }
    let labels = node.metadata.labels.as_ref();
    let Some(host) = labels.and_then(|labels| labels.get(HOSTNAME)) else {
        return Plan::Reschedule(format!("node {name:?} has no label {HOSTNAME:?}"));
    };
    volume(
        claim,
        class,
        Place {
            node: name,
            host,
            base,
        },
    )
}

/// What no directory can be.
fn impossible(claim: &PersistentVolumeClaim, class: &StorageClass) -> Option<String> {
    let spec = claim.spec.as_ref()?;
    let asked = spec.access_modes.iter().flatten();
    let mut impossible = asked.filter(|mode| !MODES.contains(&mode.as_str()));
    if let Some(mode) = impossible.next() {
        return Some(format!(
            "access mode {mode} is not supported: a directory of a node is not shared with other nodes"
        ));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some("volumeMode Block is not supported: a directory is no device".to_owned());
    }
    if spec.selector.is_some() {
        return Some("claim.Spec.Selector is not supported".to_owned());
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Some("a data source is not supported: a directory begins empty".to_owned());
    }
    let attributes = spec.volume_attributes_class_name.as_deref();
    if attributes.is_some_and(|name| !name.is_empty()) {
        return Some("volumeAttributesClassName is not supported".to_owned());
    }
    if let Some((name, _)) = class.parameters.iter().flatten().next() {
        return Some(format!(
            "parameter {name:?} of the StorageClass is not known"
        ));
    }
    let options = class.mount_options.as_ref();
    options
        .is_some_and(|options| !options.is_empty())
        .then(|| "mountOptions of the StorageClass are not supported".to_owned())
}

struct Place<'a> {
    node: &'a str,
    host: &'a str,
    base: &'a str,
}

fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, place: Place<'_>) -> Plan {
    let meta = &claim.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, claim_name) = (part(&meta.namespace), part(&meta.name));
    let name = format!("pvc-{}", part(&meta.uid));
    let directory = directory_name(&name, &namespace, &claim_name);
    let spec = claim.spec.as_ref();
    let requests = spec
        .and_then(|spec| spec.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref());
    let host = json!({"key": HOSTNAME, "operator": "In", "values": [place.host]});
    let object = json!({
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: PROVISIONER},
            "labels": {NODE: place.node},
            "finalizers": [VOLUME_PROTECTION, FINALIZER],
        },
        "spec": {
            "accessModes": spec.and_then(|spec| spec.access_modes.as_ref()),
            "capacity": {"storage": requests.and_then(|requests| requests.get("storage"))},
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace,
                "name": claim_name, "uid": meta.uid, "resourceVersion": meta.resource_version},
            "local": {"path": format!("{}/{directory}", place.base.trim_end_matches('/'))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class_of_claim(claim),
            "volumeMode": "Filesystem",
        },
    });
    match serde_json::from_value(object) {
        Ok(volume) => Plan::Make(Box::new(volume)),
        Err(error) => Plan::Fail(error.to_string()),
    }
}

/// Whether a volume was made here.
pub(super) fn is_own(volume: &PersistentVolume) -> bool {
    annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER)
}

/// Whether nobody needs a volume, by what the binder says, and nobody wants to keep it.
pub(super) fn is_to_be_deleted(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|it| it.phase.as_deref());
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    is_own(volume)
        && volume.metadata.deletion_timestamp.is_none()
        && (phase, policy) == (Some("Released"), Some("Delete"))
}

/// Where its content is.
pub(super) fn directory_of(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.local.as_ref())
        .map_or("", |local| local.path.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "11111111-2222-3333-4444-555555555555";

    /// As a merge patch: null takes away.
    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    if value.is_null() {
                        into.remove(key);
                        continue;
                    }
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn planned(of_claim: Value, of_class: Value, node: Option<Value>) -> Plan {
        let mut claim = json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": UID, "resourceVersion": "7",
                "annotations": {STORAGE_PROVISIONER: PROVISIONER, SELECTED_NODE: "n1"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-path",
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        let mut class = json!({"metadata": {"name": "local-path"}, "provisioner": PROVISIONER,
            "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"});
        merge(&mut claim, &of_claim);
        merge(&mut class, &of_class);
        let node = node.map(|node| serde_json::from_value(node).unwrap());
        plan(&Seen {
            claim: &serde_json::from_value(claim).unwrap(),
            class: Some(&serde_json::from_value(class).unwrap()),
            node: node.as_ref(),
        })
    }

    fn n1() -> Value {
        json!({"metadata": {"name": "n1", "labels": {HOSTNAME: "host-1"}, "annotations": {DIRECTORY: "/srv/volumes/"}}})
    }

    #[test]
    fn a_claim_with_a_node_is_given_a_directory_there() {
        let Plan::Make(volume) = planned(json!({}), json!({}), Some(n1())) else {
            panic!("nothing is made");
        };
        let name = format!("pvc-{UID}");
        let host = json!({"key": HOSTNAME, "operator": "In", "values": ["host-1"]});
        let expect = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"},
                "labels": {"local-path.coracle.dev/node": "n1"},
                "finalizers": ["kubernetes.io/pv-protection", "local-path.coracle.dev/directory"]},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "data",
                    "uid": UID, "resourceVersion": "7"},
                "local": {"path": format!("/srv/volumes/{name}_ns_data")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
                "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "local-path", "volumeMode": "Filesystem",
            },
        });
        assert_eq!(json!(volume), expect);
    }

    #[test]
    fn others_and_those_without_a_node_are_left_alone() {
        for claim in [
            json!({"metadata": {"annotations": {STORAGE_PROVISIONER: "example.com/disk"}}}),
            json!({"metadata": {"annotations": {SELECTED_NODE: null}}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"spec": {"volumeName": "pv"}}),
        ] {
            let found = planned(claim.clone(), json!({}), Some(n1()));
            assert_eq!(found, Plan::Nothing, "{claim}");
        }
    }

    #[test]
    fn what_no_directory_can_be_is_refused_and_a_node_without_volumes_is_given_up() {
        let fail = |claim: Value, class: Value| match planned(claim, class, Some(n1())) {
            Plan::Fail(why) => why,
            other => panic!("{other:?}"),
        };
        let nothing = || json!({});
        for (claim, class, expect) in [
            (
                json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
                nothing(),
                "access mode ReadWriteMany",
            ),
            (
                json!({"spec": {"volumeMode": "Block"}}),
                nothing(),
                "volumeMode Block",
            ),
            (
                json!({"spec": {"selector": {}}}),
                nothing(),
                "claim.Spec.Selector",
            ),
            (
                json!({"spec": {"dataSource": {"kind": "A", "name": "a"}}}),
                nothing(),
                "a data source",
            ),
            (
                json!({"spec": {"volumeAttributesClassName": "gold"}}),
                nothing(),
                "volumeAttributesClassName",
            ),
            (
                nothing(),
                json!({"parameters": {"path": "/x"}}),
                "parameter \"path\"",
            ),
            (nothing(), json!({"mountOptions": ["ro"]}), "mountOptions"),
            (
                nothing(),
                json!({"provisioner": "example.com/disk"}),
                "no StorageClass \"local-path\"",
            ),
            (
                json!({"metadata": {"annotations": {SELECTED_NODE: null}}}),
                json!({"volumeBindingMode": "Immediate"}),
                "no node has been selected",
            ),
        ] {
            let why = fail(claim, class);
            assert!(why.starts_with(expect), "{why}");
        }
        let bare = |meta: Value| Some(json!({"metadata": meta}));
        for (node, expect) in [
            (None, "failed to get target node"),
            (bare(json!({"name": "n1"})), "node \"n1\" has no annotation"),
            (
                bare(json!({"annotations": {DIRECTORY: "here"}})),
                "node \"n1\" has no annotation",
            ),
            (
                bare(json!({"annotations": {DIRECTORY: "/srv"}})),
                "node \"n1\" has no label",
            ),
        ] {
            match planned(json!({}), json!({}), node) {
                Plan::Reschedule(why) => assert!(why.starts_with(expect), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_is_released_and_not_retained_is_deleted() {
        for (made_by, phase, policy, expect) in [
            (PROVISIONER, "Released", "Delete", true),
            (PROVISIONER, "Released", "Retain", false),
            (PROVISIONER, "Failed", "Delete", false),
            (PROVISIONER, "Bound", "Delete", false),
            (PROVISIONER, "Available", "Delete", false),
            ("example.com/disk", "Released", "Delete", false),
        ] {
            let volume = json!({"metadata": {"annotations": {PROVISIONED_BY: made_by}},
                "spec": {"persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase}});
            let volume = serde_json::from_value(volume).unwrap();
            assert_eq!(
                is_to_be_deleted(&volume),
                expect,
                "{made_by} {phase} {policy}"
            );
        }
    }
}
