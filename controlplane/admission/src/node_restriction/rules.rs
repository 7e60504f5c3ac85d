//! What a node may write of an object. Pure.
//!
//! Source: `plugin/pkg/admission/noderestriction/admission.go` at v1.37.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use coracle_api::meta::{self, NODE_LEASE_NAMESPACE};
use serde_json::Value;

use super::{local_volumes, mirror_pods};
use crate::certificates::with_subject;

const ONLY_CLAIM_STATUS: &str = "may only update PVC status";

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
            own(node, resource, object)?;
            pod_range(node, &Value::Null, object)?;
            config_source(node, &Value::Null, object)?;
            labels(&changed_labels(&Value::Null, object), || {
                format!("node {node:?} is not allowed to set the following labels")
            })
        }
        ("resource.k8s.io", "resourceslices")
            if meta::get_str(object, &["spec", "nodeName"]) != node =>
        {
            Err(
                "can only create ResourceSlice with the same NodeName as the requesting node"
                    .to_owned(),
            )
        }
        ("", "pods") => mirror_pods::check((node, uid), object),
        ("", "persistentvolumeclaims") => Err(ONLY_CLAIM_STATUS.to_owned()),
        ("certificates.k8s.io", "certificatesigningrequests") => certificate_request(node, object),
        _ => own(node, resource, object),
    }
}

/// Whether `node` may delete this object.
///
/// # Errors
/// Why not, in upstream's words.
pub(super) fn check_delete(node: &str, resource: &str, old: &Value) -> Result<(), String> {
    let on_node = |path: &[&str]| meta::get_str(old, path) == node;
    match resource {
        "pods" if !on_node(&["spec", "nodeName"]) => Err(format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        )),
        "persistentvolumeclaims" => Err(ONLY_CLAIM_STATUS.to_owned()),
        "resourceslices" if !on_node(&["spec", "nodeName"]) => Err(
            "can only delete ResourceSlice with the same NodeName as the requesting node"
                .to_owned(),
        ),
        "podcertificaterequests" => Err("unexpected operation DELETE".to_owned()),
        _ => own(node, resource, old),
    }
}

/// What has the node's name is the node's, and nothing else of these kinds.
fn own(node: &str, resource: &str, object: &Value) -> Result<(), String> {
    let name = meta::name(object);
    match resource {
        "leases" if meta::namespace(object) != NODE_LEASE_NAMESPACE => Err(format!(
            "can only access leases in the {NODE_LEASE_NAMESPACE:?} system namespace"
        )),
        "leases" if name != node => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
        "csinodes" if name != node => {
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        }
        "nodes" if name != node => Err(format!(
            "node {node:?} is not allowed to modify node {name:?}"
        )),
        _ => Ok(()),
    }
}

/// A node may read what its configuration is in: it must not choose that itself. An old kubelet
/// that knows nothing of it drops it.
fn config_source(node: &str, old: &Value, new: &Value) -> Result<(), String> {
    let of = |object: &Value| object["spec"]["configSource"].clone();
    if of(new).is_null() || of(new) == of(old) {
        return Ok(());
    }
    Err(if old.is_null() {
        // Upstream's words.
        format!("node {node:?} is not allowed to create pods with a non-nil configSource")
    } else {
        format!("node {node:?} is not allowed to update configSource to a new non-nil configSource")
    })
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
            if claims_of(new) != claims_of(old) {
                // Upstream's spelling.
                return Err(format!(
                    "node {node:?} cannot update resource claim statues"
                ));
            }
            let extended = |pod: &Value| pod["status"]["extendedResourceClaimStatus"].clone();
            if extended(new) != extended(old) {
                return Err(format!(
                    "node {node:?} cannot update extended resource claim status"
                ));
            }
            Ok(())
        }
        "persistentvolumeclaims" if subresource != "status" => Err(ONLY_CLAIM_STATUS.to_owned()),
        "persistentvolumeclaims" => {
            if claim_without_its_size(new) == claim_without_its_size(old) {
                return Ok(());
            }
            Err(format!(
                "node {node:?} is not allowed to update fields other than status.capacity and status.conditions"
            ))
        }
        "persistentvolumes" => local_volumes::check(node, subresource, new, old),
        "nodes" => {
            own(node, resource, old)?;
            pod_range(node, old, new)?;
            config_source(node, old, new)?;
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
            labels(&changed_labels(old, new), || {
                "is not allowed to modify labels".to_owned()
            })
        }
        "podcertificaterequests" => Err("unexpected operation UPDATE".to_owned()),
        _ => own(node, resource, old),
    }
}

/// Which claim stands for each of the pod's. What pods have a node may read.
fn claims_of(pod: &Value) -> Vec<[&str; 2]> {
    let statuses = meta::get_array(pod, &["status", "resourceClaimStatuses"]).iter();
    let one = |status| ["name", "resourceClaimName"].map(|field| meta::get_str(status, &[field]));
    statuses.map(one).collect()
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

fn labels(changed: &BTreeSet<String>, why: impl FnOnce() -> String) -> Result<(), String> {
    let forbidden: Vec<&str> = changed
        .iter()
        .map(String::as_str)
        .filter(|label| is_forbidden(label))
        .collect();
    if forbidden.is_empty() {
        return Ok(());
    }
    Err(format!("{}: {}", why(), forbidden.join(", ")))
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
        let lease = |name: &str| {
            let lease = json!({"metadata": {"name": name, "namespace": NODE_LEASE_NAMESPACE}});
            check_create(("n1", None), "coordination.k8s.io", "leases", &lease)
        };
        assert_eq!(lease("n1"), Ok(()));
        assert_eq!(
            lease("n2").unwrap_err(),
            "can only access node lease with the same name as the requesting node"
        );
        let lease = |name: &str, namespace: &str| json!({"metadata": {"name": name, "namespace": namespace}});
        let check = |lease: Value| check_update("n1", ("leases", ""), &lease, &lease);
        assert_eq!(check(lease("n1", NODE_LEASE_NAMESPACE)), Ok(()));
        assert!(check(lease("n2", NODE_LEASE_NAMESPACE)).is_err());
        assert_eq!(
            check(lease("n1", "default")).unwrap_err(),
            "can only access leases in the \"kube-node-lease\" system namespace"
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
    fn a_node_does_not_choose_where_its_configuration_is() {
        let node = |spec: Value| json!({"metadata": {"name": "n1"}, "spec": spec});
        let (plain, chosen) = (
            node(json!({})),
            node(json!({"configSource": {"configMap": {"name": "c"}}})),
        );
        assert_eq!(
            check_create(("n1", None), "", "nodes", &chosen).unwrap_err(),
            "node \"n1\" is not allowed to create pods with a non-nil configSource"
        );
        let update = |new: &Value, old: &Value| check_update("n1", ("nodes", ""), new, old);
        assert_eq!(
            update(&chosen, &plain).unwrap_err(),
            "node \"n1\" is not allowed to update configSource to a new non-nil configSource"
        );
        assert_eq!(update(&chosen, &chosen), Ok(()));
        assert_eq!(update(&plain, &chosen), Ok(()));
    }

    #[test]
    fn a_node_does_not_choose_the_claims_of_its_pods() {
        let pod = |status: Value| json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status});
        let old = pod(json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "c"}]}));
        let change = |status: Value| check_update("n1", ("pods", "status"), &pod(status), &old);
        let claim = |name: &str| json!([{"name": "a", "resourceClaimName": name}]);
        assert_eq!(
            change(json!({"resourceClaimStatuses": claim("c"), "phase": "Running"})),
            Ok(())
        );
        assert_eq!(
            change(json!({"resourceClaimStatuses": claim("d")})).unwrap_err(),
            "node \"n1\" cannot update resource claim statues"
        );
        assert_eq!(
            change(json!({"resourceClaimStatuses": claim("c"), "extendedResourceClaimStatus": {"resourceClaimName": "d"}}))
                .unwrap_err(),
            "node \"n1\" cannot update extended resource claim status"
        );
    }

    #[test]
    fn a_node_deletes_what_is_its_own() {
        let of = |name: &str, node: &str| json!({"metadata": {"name": name, "namespace": NODE_LEASE_NAMESPACE}, "spec": {"nodeName": node}});
        for (resource, own, other, why) in [
            ("pods", of("p", "n1"), of("p", "n2"), "can only delete pods"),
            (
                "resourceslices",
                of("s", "n1"),
                of("s", "n2"),
                "can only delete ResourceSlice",
            ),
            (
                "leases",
                of("n1", ""),
                of("n2", ""),
                "can only access node lease",
            ),
            (
                "csinodes",
                of("n1", ""),
                of("n2", ""),
                "can only access CSINode",
            ),
            (
                "nodes",
                of("n1", ""),
                of("n2", ""),
                "is not allowed to modify node \"n2\"",
            ),
        ] {
            assert_eq!(check_delete("n1", resource, &own), Ok(()), "{resource}");
            let refused = check_delete("n1", resource, &other).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(check_delete("n1", "persistentvolumeclaims", &of("c", "n1")).is_err());
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
