//! Which certificates a node may ask for: those of pods on it, for the accounts that they run as,
//! from the signers that their volumes name.
//!
//! Source: `admitPodCertificateRequest` and `validateNodePodCertificateSigner` in
//! `plugin/pkg/admission/noderestriction/admission.go` at v1.37. Upstream fails what its caches may
//! not know yet; here everything is read as it is, so that a difference is one.

use coracle_api::{meta, status::Status};
use coracle_auth::authz::ResourceTarget;
use coracle_registry::store::cache_status;
use serde_json::Value;

use super::{NodeRestriction, runs_on, tokens::object};
use crate::attributes::Attributes;

const GROUP: &str = "certificates.k8s.io";
/// For a signer that no volume of the pod names.
const VERB: &str = "request-serviceaccounts-podcertificate-signer";

impl NodeRestriction {
    /// Whether a node may ask for this certificate.
    pub(super) async fn pod_certificate(
        &self,
        node: &str,
        attributes: &Attributes<'_>,
    ) -> Result<(), Status> {
        self.store.cache.catch_up().await.map_err(cache_status)?;
        let spec = &attributes.object()["spec"];
        let signer = meta::get_str(spec, &["signerName"]);
        let named = |kind: &str, namespace: &str, name: &str| {
            object(&self.registry, ("", kind), namespace, name)
        };
        let pod = check((node, attributes.namespace), spec, named)
            .map_err(|why| attributes.forbidden(why))?;
        if mounts(&pod, signer) {
            return Ok(());
        }
        let resource = signer.replace('/', ":");
        let target = ResourceTarget {
            group: GROUP,
            resource: &resource,
            name: meta::get_str(spec, &["serviceAccountName"]),
            ..ResourceTarget::default()
        };
        if self.is_authorized(attributes, VERB, target) {
            return Ok(());
        }
        Err(attributes.forbidden(format!(
            "signer {signer:?} not found in pod spec volume, {} is not authorized to request certificates of this signer",
            attributes.user.name
        )))
    }
}

/// The pod that a request is for, if everything that it says is so. `named` finds objects by kind,
/// namespace and name.
///
/// # Errors
/// What is not, in upstream's words.
fn check(
    (node, namespace): (&str, &str),
    spec: &Value,
    named: impl Fn(&str, &str, &str) -> Option<Value>,
) -> Result<Value, String> {
    let text = |field: &str| meta::get_str(spec, &[field]);
    if text("nodeName") != node {
        return Err(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}",
            text("nodeName")
        ));
    }
    let asked = format!(
        "PodCertificateRequest for pod \"{namespace}/{}\"",
        text("podName")
    );
    let uid = |kind: &str, namespace: &str, name: &str| {
        let found = named(kind, namespace, name);
        let object =
            found.ok_or_else(|| format!("{asked} names {kind} {name:?} that is not there"))?;
        Ok::<_, String>((meta::uid(&object).to_owned(), object))
    };
    let (found, _) = uid("nodes", "", node)?;
    if found != text("nodeUID") {
        return Err(format!(
            "{asked} names node UID {:?}, inconsistent with the running node ({found:?})",
            text("nodeUID")
        ));
    }
    let (found, pod) = uid("pods", namespace, text("podName"))?;
    if found != text("podUID") {
        return Err(format!(
            "{asked} contains pod UID ({:?}) which differs from running pod {found:?}",
            text("podUID")
        ));
    }
    let which = format!("pod \"{namespace}/{}\"", text("podName"));
    if !runs_on(node, &pod) {
        return Err(format!(
            "{which} is not running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    if meta::is_mirror(&pod) {
        return Err(format!("{which} is a mirror pod"));
    }
    let account = meta::get_str(&pod, &["spec", "serviceAccountName"]);
    if account != text("serviceAccountName") {
        return Err(format!(
            "{asked} contains serviceAccountName ({:?}) that differs from running pod ({account:?})",
            text("serviceAccountName")
        ));
    }
    let (found, _) = uid("serviceaccounts", namespace, account)?;
    if found != text("serviceAccountUID") {
        return Err(format!(
            "{asked} names service account UID {:?}, which differs from the running service account ({found:?})",
            text("serviceAccountUID")
        ));
    }
    Ok(pod)
}

/// Whether a volume of the pod holds a certificate of that signer.
fn mounts(pod: &Value, signer: &str) -> bool {
    let volumes = meta::get_array(pod, &["spec", "volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| meta::get_array(volume, &["projected", "sources"]));
    sources.any(|source| source["podCertificate"]["signerName"] == signer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_asks_for_certificates_of_its_pods_alone() {
        let objects = |kind: &str, namespace: &str, name: &str| {
            let with = |uid: &str, node: &str, annotations: Value| {
                let meta = json!({"name": name, "uid": uid, "annotations": annotations});
                json!({"metadata": meta, "spec": {"nodeName": node, "serviceAccountName": "a"}})
            };
            match (kind, namespace, name) {
                ("nodes", "", "n1") => Some(with("node", "", json!({}))),
                ("pods", "ns", "p") => Some(with("pod", "n1", json!({}))),
                ("pods", "ns", "other") => Some(with("pod", "n2", json!({}))),
                ("pods", "ns", "mirror") => Some(with("pod", "n1", json!({meta::MIRROR: "x"}))),
                ("serviceaccounts", "ns", "a") => Some(with("account", "", json!({}))),
                _ => None,
            }
        };
        let good = json!({"nodeName": "n1", "nodeUID": "node", "podName": "p", "podUID": "pod",
            "serviceAccountName": "a", "serviceAccountUID": "account"});
        let ask = |field: &str, value: &str| {
            let mut spec = good.clone();
            spec[field] = json!(value);
            check(("n1", "ns"), &spec, objects)
                .err()
                .unwrap_or_default()
        };
        assert_eq!(ask("podName", "p"), "");
        for (field, value, why) in [
            ("nodeName", "n2", "which is not the requesting node \"n1\""),
            (
                "nodeUID",
                "x",
                "names node UID \"x\", inconsistent with the running node (\"node\")",
            ),
            ("podName", "gone", "names pods \"gone\" that is not there"),
            (
                "podUID",
                "x",
                "contains pod UID (\"x\") which differs from running pod \"pod\"",
            ),
            (
                "podName",
                "other",
                "pod \"ns/other\" is not running on node \"n1\"",
            ),
            ("podName", "mirror", "pod \"ns/mirror\" is a mirror pod"),
            (
                "serviceAccountName",
                "b",
                "contains serviceAccountName (\"b\") that differs from running pod (\"a\")",
            ),
            (
                "serviceAccountUID",
                "x",
                "names service account UID \"x\", which differs",
            ),
        ] {
            let refused = ask(field, value);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_signer_is_one_that_the_pod_has_a_volume_for() {
        let pod = json!({"spec": {"volumes": [
            {"emptyDir": {}}, {"projected": {"sources": [{"podCertificate": {"signerName": "example.org/s"}}]}}]}});
        assert!(mounts(&pod, "example.org/s") && !mounts(&pod, "example.org/t"));
    }
}
