//! What a node may make of pods: mirrors of those that it runs by itself, which refer to nothing of
//! the API. Pure.
//!
//! What its pods refer to a node may read: it must not choose that itself.
//!
//! Source: `admitPodCreate` in `plugin/pkg/admission/noderestriction/admission.go` and
//! `HasAPIObjectReference` in `pkg/api/pod/util.go` at v1.37.

use coracle_api::meta::{self, MIRROR};
use coracle_auth::authz::node::References;
use serde_json::Value;

/// Whether `node`, whose Node has this UID (`None` if there is none), may make this pod.
///
/// # Errors
/// Why not, in upstream's words.
pub(super) fn check((node, uid): (&str, Option<&str>), pod: &Value) -> Result<(), String> {
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
    match reference(pod) {
        Some(what) => Err(format!(
            "node {node:?} can not create pods that reference {what}"
        )),
        None => Ok(()),
    }
}

/// The first kind of objects that the pod refers to.
fn reference(pod: &Value) -> Option<&'static str> {
    let references = References::of(pod);
    let spec = &pod["spec"];
    let of_pod = [
        (
            !meta::get_str(spec, &["serviceAccountName"]).is_empty(),
            "serviceaccounts",
        ),
        (!references.secrets.is_empty(), "secrets"),
        (!references.config_maps.is_empty(), "configmaps"),
        // Also one that is yet to be made of a template.
        (
            !meta::get_array(spec, &["resourceClaims"]).is_empty(),
            "resourceclaims",
        ),
    ];
    if let Some((_, what)) = of_pod.iter().find(|(refers, _)| *refers) {
        return Some(what);
    }
    let volumes = meta::get_array(spec, &["volumes"]).iter();
    let mut found = volumes.filter_map(|volume| {
        let projected = meta::get_array(volume, &["projected", "sources"]).iter();
        named(volume, VOLUMES).or_else(|| {
            projected
                .filter_map(|source| named(source, PROJECTED))
                .next()
        })
    });
    found.next()
}

const VOLUMES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    (
        "ephemeral",
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTED: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

fn named(source: &Value, known: &[(&str, &'static str)]) -> Option<&'static str> {
    let (_, what) = known.iter().find(|(field, _)| source[*field].is_object())?;
    Some(what)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_makes_mirror_pods_alone() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": true});
        let pod = |spec: Value| json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": [owner]}, "spec": spec});
        let create = |pod: &Value| check(("n1", Some("uid-1")), pod).err().unwrap_or_default();
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
                "serviceaccounts (via projected volumes)",
            ),
            (
                json!({"clusterTrustBundle": {"name": "b"}}),
                "clustertrustbundles",
            ),
            (
                json!({"podCertificate": {"signerName": "s"}}),
                "podcertificates",
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
    fn a_mirror_pod_has_no_volumes_of_the_api() {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": true});
        let create = |spec: Value| {
            let mut pod = json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": [owner]}, "spec": spec});
            pod["spec"]["nodeName"] = json!("n1");
            check(("n1", Some("uid-1")), &pod).err().unwrap_or_default()
        };
        for (volume, what) in [
            (json!({"hostPath": {"path": "/"}}), ""),
            (json!({"projected": {"sources": [{"downwardAPI": {}}]}}), ""),
            (
                json!({"csi": {"driver": "d"}}),
                "csidrivers (via CSI volumes)",
            ),
            (
                json!({"glusterfs": {"endpoints": "e"}}),
                "endpoints (via glusterFS volumes)",
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "c"}}),
                "persistentvolumeclaims",
            ),
            (
                json!({"ephemeral": {}}),
                "persistentvolumeclaims (via ephemeral volumes)",
            ),
            (json!({"azureFile": {}}), "secrets (via azureFile volumes)"),
        ] {
            let refused = create(json!({"volumes": [volume]}));
            let found = refused
                .split_once("reference ")
                .map_or("", |(_, what)| what);
            assert_eq!(found, what, "{refused}");
        }
        let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]});
        assert!(create(claims).ends_with("resourceclaims"));
    }

    #[test]
    fn a_mirror_pod_belongs_to_its_node() {
        let with = |owners: Value| {
            let pod = json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": owners},
                "spec": {"nodeName": "n1"}});
            check(("n1", Some("uid-1")), &pod).err().unwrap_or_default()
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
}
