//! What a node may write of an object. Pure.
//!
//! Source: `plugin/pkg/admission/noderestriction/admission.go` at v1.37.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use coracle_api::meta::{self, MIRROR};
use coracle_auth::authz::node::References;
use serde_json::Value;

use crate::certificates::with_subject;

const NODE_SIGNERS: &[&str] = &[
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];
/// Labels of upstream's namespaces that a node may set on itself.
const NODE_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
];
const NODE_LABEL_NAMESPACES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Whether `node`, whose Node has this UID (`None` if there is none), may make this object.
///
/// # Errors
/// Why not, in upstream's words.
pub(super) fn check_create(
    (node, uid): (&str, Option<&str>),
    group: &str,
    resource: &str,
    object: &Value,
) -> Result<(), String> {
    match (group, resource) {
        ("", "nodes") => {
            own_node(node, meta::name(object))?;
            pod_range(node, &Value::Null, object)?;
            labels(
                node,
                &changed_labels(&Value::Null, object),
                "set the following labels",
            )
        }
        ("coordination.k8s.io", "leases") if meta::name(object) != node => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
        ("storage.k8s.io", "csinodes") if meta::name(object) != node => {
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        }
        ("resource.k8s.io", "resourceslices")
            if meta::get_str(object, &["spec", "nodeName"]) != node =>
        {
            Err(
                "can only create ResourceSlice with the same NodeName as the requesting node"
                    .to_owned(),
            )
        }
        ("", "pods") => mirror_pod(node, uid, object),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate_request(node, object),
        _ => Ok(()),
    }
}

/// Other nodes route a Node's range to it, so that only the cluster gives it one.
fn pod_range(node: &str, old: &Value, new: &Value) -> Result<(), String> {
    let range = |of: &Value| {
        (
            meta::get_str(of, &["spec", "podCIDR"]).to_owned(),
            of["spec"]["podCIDRs"].clone(),
        )
    };
    if range(old) == range(new) {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to choose its podCIDR: the cluster assigns it"
    ))
}

fn own_node(node: &str, name: &str) -> Result<(), String> {
    if name == node {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to modify node {name:?}"
    ))
}

fn mirror_pod(node: &str, uid: Option<&str>, pod: &Value) -> Result<(), String> {
    if !meta::is_mirror(pod) {
        return Err(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if meta::get_str(pod, &["spec", "nodeName"]) != node {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    owned_by_node(node, uid, meta::owner_references(pod))?;
    // What its pods refer to a node may read: it must not choose that itself.
    let references = References::of(pod);
    let refuse = |what: &str| {
        Err(format!(
            "node {node:?} can not create pods that reference {what}"
        ))
    };
    if !meta::get_str(pod, &["spec", "serviceAccountName"]).is_empty() {
        return refuse("a service account");
    }
    let kinds = [
        (&references.secrets, "secrets"),
        (&references.config_maps, "configmaps"),
        (&references.claims, "persistentvolumeclaims"),
        (&references.resource_claims, "resourceclaims"),
    ];
    if let Some((_, what)) = kinds.iter().find(|(names, _)| !names.is_empty()) {
        return refuse(what);
    }
    let volumes = meta::get_array(pod, &["spec", "volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| meta::get_array(volume, &["projected", "sources"]));
    let projected = [
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificaterequests"),
        ("serviceAccountToken", "a service account"),
    ];
    match sources.find_map(|source| {
        projected
            .iter()
            .find(|(field, _)| source[field].is_object())
    }) {
        Some((_, what)) => refuse(what),
        None => Ok(()),
    }
}

/// A mirror pod goes with its node.
fn owned_by_node(node: &str, uid: Option<&str>, owners: &[Value]) -> Result<(), String> {
    let only = |what: &str| {
        Err(format!(
            "node {node:?} can only create pods with {what} set to itself"
        ))
    };
    let owner = match owners {
        [] => return only("an owner reference"),
        [owner] => owner,
        _ => return only("a single owner reference"),
    };
    let is_node =
        meta::get_str(owner, &["apiVersion"]) == "v1" && meta::get_str(owner, &["kind"]) == "Node";
    if !is_node || meta::get_str(owner, &["name"]) != node {
        return only("an owner reference");
    }
    if owner["controller"] != true {
        return only("a controller owner reference");
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let (claimed, uid) = (meta::get_str(owner, &["uid"]), uid.unwrap_or_default());
    if claimed != uid || uid.is_empty() {
        return Err(format!(
            "node {node} UID mismatch: expected {claimed} got {uid}"
        ));
    }
    Ok(())
}

/// A node asks for certificates of its own name only.
fn certificate_request(node: &str, object: &Value) -> Result<(), String> {
    if !NODE_SIGNERS.contains(&meta::get_str(object, &["spec", "signerName"])) {
        return Ok(());
    }
    let name = common_name(meta::get_str(object, &["spec", "request"]));
    let expected = format!("system:node:{node}");
    match name {
        Some(name) if name == expected => Ok(()),
        Some(_) => Err(format!("can only create a node CSR with CN={expected}")),
        None => Err("unable to parse csr".to_owned()),
    }
}

fn common_name(request: &str) -> Option<String> {
    with_subject(request, |subject| {
        subject
            .iter_common_name()
            .next()?
            .as_str()
            .ok()
            .map(str::to_owned)
    })
    .flatten()
}

/// Whether `node` may change this object so. `subresource` is empty for the object itself.
///
/// # Errors
/// Why not, in upstream's words.
pub(super) fn check_update(
    node: &str,
    (resource, subresource): (&str, &str),
    new: &Value,
    old: &Value,
) -> Result<(), String> {
    match resource {
        "pods" => {
            match subresource {
                "" => {
                    let why = format!("node {node:?} can only create and delete mirror pods");
                    return Err(format!("unexpected operation \"UPDATE\", {why}"));
                }
                "status" => {}
                other => return Err(unexpected_subresource(other)),
            }
            let bound = meta::get_str(old, &["spec", "nodeName"]);
            if bound != node {
                return Err(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                ));
            }
            if meta::labels(new) != meta::labels(old) {
                return Err(format!(
                    "node {node:?} cannot update labels through pod status"
                ));
            }
            let claims =
                |pod: &Value| meta::get_array(pod, &["status", "resourceClaimStatuses"]).to_vec();
            if claims(new) != claims(old) {
                // Upstream's spelling.
                return Err(format!(
                    "node {node:?} cannot update resource claim statues"
                ));
            }
            Ok(())
        }
        "persistentvolumeclaims" if subresource != "status" => {
            Err("may only update PVC status".to_owned())
        }
        "persistentvolumeclaims" => {
            if claim_without_its_size(new) == claim_without_its_size(old) {
                return Ok(());
            }
            Err(format!(
                "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
            ))
        }
        "nodes" => {
            own_node(node, meta::name(old))?;
            pod_range(node, old, new)?;
            // With other taints or labels it could draw pods to itself. With an owner that is not
            // there it would be collected, and could come back with what it may say of itself only
            // when it is new.
            let taints = |object: &Value| meta::get_array(object, &["spec", "taints"]).to_vec();
            if taints(new) != taints(old) {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            if meta::owner_references(new) != meta::owner_references(old) {
                return Err(format!(
                    "node {node:?} is not allowed to modify ownerReferences"
                ));
            }
            labels(node, &changed_labels(old, new), "modify labels")
        }
        _ => Ok(()),
    }
}

/// Why a node does not write this of a pod.
pub(super) fn unexpected_subresource(subresource: &str) -> String {
    format!("unexpected pod subresource {subresource:?}, only 'status' and 'eviction' are allowed")
}

/// A claim without what a node may change of it: what it knows of growing the volume.
fn claim_without_its_size(claim: &Value) -> Value {
    let mut claim = claim.clone();
    for field in [
        "capacity",
        "conditions",
        "allocatedResources",
        "allocatedResourceStatuses",
    ] {
        meta::remove(&mut claim, &["status", field]);
    }
    for field in ["resourceVersion", "managedFields"] {
        meta::remove(&mut claim, &["metadata", field]);
    }
    claim
}

/// Addresses that the node adds to those in its status, if they are some.
///
/// # Errors
/// The first that is no address.
pub(super) fn added_addresses(node: &str, new: &Value, old: &Value) -> Result<Vec<IpAddr>, String> {
    let before: HashSet<_> = meta::get_array(old, &["status", "addresses"])
        .iter()
        .collect();
    let added = meta::get_array(new, &["status", "addresses"])
        .iter()
        .filter(|address| !before.contains(address));
    let ips = added.filter(|address| {
        matches!(
            meta::get_str(address, &["type"]),
            "InternalIP" | "ExternalIP"
        )
    });
    let parsed = ips.map(|address| {
        let address = meta::get_str(address, &["address"]);
        address.parse().map_err(|_| {
            format!("node {node:?} is not allowed to report {address:?} as an IP address")
        })
    });
    parsed.collect()
}

fn changed_labels(old: &Value, new: &Value) -> BTreeSet<String> {
    let keys = |object: &Value| -> BTreeSet<String> {
        meta::labels(object)
            .into_iter()
            .flat_map(|l| l.keys().cloned())
            .collect()
    };
    let (before, after) = (keys(old), keys(new));
    before
        .union(&after)
        .filter(|key| meta::label(old, key) != meta::label(new, key))
        .cloned()
        .collect()
}

fn labels(node: &str, changed: &BTreeSet<String>, verb: &str) -> Result<(), String> {
    let forbidden: Vec<&str> = changed
        .iter()
        .map(String::as_str)
        .filter(|label| is_forbidden(label))
        .collect();
    if forbidden.is_empty() {
        return Ok(());
    }
    Err(format!(
        "node {node:?} is not allowed to {verb}: {}",
        forbidden.join(", ")
    ))
}

fn is_forbidden(label: &str) -> bool {
    let Some((namespace, _)) = label.split_once('/') else {
        return false;
    };
    let within = |root: &str| {
        namespace == root
            || namespace
                .strip_suffix(root)
                .is_some_and(|rest| rest.ends_with('.'))
    };
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let is_upstreams = within("kubernetes.io") || within("k8s.io");
    is_upstreams
        && !NODE_LABELS.contains(&label)
        && !NODE_LABEL_NAMESPACES.iter().any(|root| within(root))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_writes_only_what_is_its_own() {
        let node =
            |name: &str, label: &str| json!({"metadata": {"name": name, "labels": {label: "x"}}});
        let create = |resource: &str, object: &Value| {
            check_create(("n1", Some("uid-1")), "", resource, object).err()
        };
        assert_eq!(create("nodes", &node("n1", "kubernetes.io/os")), None);
        assert_eq!(create("nodes", &node("n1", "example.org/rack")), None);
        assert_eq!(
            create("nodes", &node("n1", "node-restriction.kubernetes.io/x")).as_deref(),
            Some(
                "node \"n1\" is not allowed to set the following labels: node-restriction.kubernetes.io/x"
            )
        );
        assert_eq!(
            create("nodes", &node("n2", "a")).as_deref(),
            Some("node \"n1\" is not allowed to modify node \"n2\"")
        );
        let lease = check_create(
            ("n1", None),
            "coordination.k8s.io",
            "leases",
            &node("n2", "a"),
        );
        assert_eq!(
            lease.unwrap_err(),
            "can only access node lease with the same name as the requesting node"
        );
        let tainted = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a"}]}});
        let plain = json!({"metadata": {"name": "n1"}, "spec": {}});
        assert_eq!(
            check_update("n1", ("nodes", ""), &plain, &tainted).unwrap_err(),
            "node \"n1\" is not allowed to modify taints"
        );
        assert!(
            check_update(
                "n1",
                ("nodes", ""),
                &node("n1", "node-role.kubernetes.io/control-plane"),
                &plain
            )
            .is_err()
        );
    }

    #[test]
    fn a_node_does_not_choose_where_other_nodes_route_pods() {
        let node = |spec: Value| json!({"metadata": {"name": "n1"}, "spec": spec});
        let ranged = node(json!({"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}));
        let why = "node \"n1\" is not allowed to choose its podCIDR: the cluster assigns it";
        let create = |object: &Value| check_create(("n1", None), "", "nodes", object).err();
        assert_eq!(create(&ranged).as_deref(), Some(why));
        assert_eq!(
            create(&node(json!({"podCIDRs": ["10.244.0.3/32"]}))).as_deref(),
            Some(why)
        );
        assert_eq!(create(&node(json!({}))), None);
        let update = |new: &Value, old: &Value| check_update("n1", ("nodes", ""), new, old).err();
        assert_eq!(update(&ranged, &node(json!({}))).as_deref(), Some(why));
        assert_eq!(update(&ranged, &ranged), None, "a status beside it");
    }

    #[test]
    fn a_node_makes_mirror_pods_alone() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": true});
        let pod = |spec: Value| json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": [owner]}, "spec": spec});
        let create = |pod: &Value| {
            check_create(("n1", Some("uid-1")), "", "pods", pod)
                .err()
                .unwrap_or_default()
        };
        assert_eq!(create(&pod(json!({"nodeName": "n1"}))), "");
        assert_eq!(
            create(&pod(json!({"nodeName": "n2"}))),
            "node \"n1\" can only create pods with spec.nodeName set to itself"
        );
        let secret = json!({"nodeName": "n1", "volumes": [{"secret": {"secretName": "s"}}]});
        assert_eq!(
            create(&pod(secret)),
            "node \"n1\" can not create pods that reference secrets"
        );
        assert!(
            create(&json!({"metadata": {"name": "p"}})).contains("can only create mirror pods")
        );
        for (source, what) in [
            (
                json!({"serviceAccountToken": {"path": "token"}}),
                "a service account",
            ),
            (
                json!({"clusterTrustBundle": {"name": "b"}}),
                "clustertrustbundles",
            ),
            (
                json!({"podCertificate": {"signerName": "s"}}),
                "podcertificaterequests",
            ),
        ] {
            let projected =
                json!({"nodeName": "n1", "volumes": [{"projected": {"sources": [source]}}]});
            assert_eq!(
                create(&pod(projected)),
                format!("node \"n1\" can not create pods that reference {what}")
            );
        }
    }

    #[test]
    fn a_mirror_pod_belongs_to_its_node() {
        let with = |owners: Value| {
            let pod = json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": owners},
                "spec": {"nodeName": "n1"}});
            check_create(("n1", Some("uid-1")), "", "pods", &pod)
                .err()
                .unwrap_or_default()
        };
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": true});
        let but = |field: &str, value: Value| {
            let mut owner = owner.clone();
            owner[field] = value;
            with(json!([owner]))
        };
        assert_eq!(with(json!([owner])), "");
        let only =
            |what: &str| format!("node \"n1\" can only create pods with {what} set to itself");
        assert_eq!(with(json!([])), only("an owner reference"));
        assert_eq!(
            with(json!([owner, owner])),
            only("a single owner reference")
        );
        assert_eq!(but("kind", json!("Pod")), only("an owner reference"));
        assert_eq!(
            but("apiVersion", json!("example.org/v1")),
            only("an owner reference")
        );
        assert_eq!(but("name", json!("n2")), only("an owner reference"));
        assert_eq!(
            but("controller", json!(false)),
            only("a controller owner reference")
        );
        assert!(but("blockOwnerDeletion", json!(true)).contains("must not set blockOwnerDeletion"));
        assert_eq!(
            but("uid", json!("other")),
            "node n1 UID mismatch: expected other got uid-1"
        );
    }

    #[test]
    fn of_a_claim_a_node_changes_what_it_knows_of_its_size() {
        let claim = |status: Value| json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}, "status": status});
        let change = |new: &Value| {
            let old = claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
            check_update("n1", ("persistentvolumeclaims", "status"), new, &old)
        };
        assert_eq!(
            change(&claim(
                json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": []})
            )),
            Ok(())
        );
        assert!(
            change(&claim(
                json!({"phase": "Lost", "capacity": {"storage": "1Gi"}})
            ))
            .is_err()
        );
        let mut labelled = claim(json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert!(change(&labelled).is_err());
        let whole = check_update("n1", ("persistentvolumeclaims", ""), &labelled, &labelled);
        assert_eq!(whole.unwrap_err(), "may only update PVC status");
    }

    #[test]
    fn pods_of_other_nodes_are_out_of_reach() {
        let pod = |node: &str| json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}});
        assert!(check_update("n1", ("pods", "status"), &pod("n1"), &pod("n1")).is_ok());
        assert!(check_update("n1", ("pods", "status"), &pod("n2"), &pod("n2")).is_err());
        for (subresource, expect) in [
            (
                "",
                "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods",
            ),
            (
                "resize",
                "unexpected pod subresource \"resize\", only 'status' and 'eviction' are allowed",
            ),
            (
                "binding",
                "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
            ),
        ] {
            assert_eq!(
                check_update("n1", ("pods", subresource), &pod("n1"), &pod("n1")).unwrap_err(),
                expect
            );
        }
    }
}
