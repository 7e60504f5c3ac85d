//! What a node may do: read what its pods need, write what is its own.
//!
//! The relation of a node to Secrets, ConfigMaps and ServiceAccounts is looked up in the pods bound to it, when asked:
//! no graph is kept, so none can be stale.
//!
//! Source: `plugin/pkg/auth/authorizer/node/node_authorizer.go` at v1.37.

use std::sync::Arc;

use coracle_api::{meta, selector::FieldSelector};
use serde_json::Value;

use super::{Attributes, Authorizer, Decision};
use crate::{
    registry::resource::Registry,
    request_info::{RequestInfo, ResourceRequest, Verb},
    watch_cache::{Entry, ListRequest, Scope, Selection},
};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Decides on requests of nodes; has no opinion on others.
pub(crate) struct NodeAuthorizer {
    registry: Arc<Registry>,
}

impl Authorizer for NodeAuthorizer {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = attributes.user.node_name() else { return Decision::NoOpinion(None) };
        let RequestInfo::Resource(request) = attributes.request else { return Decision::NoOpinion(None) };
        let selector = attributes.query.text("fieldSelector");
        match self.check(node, request, selector) {
            Ok(true) => Decision::Allow,
            Ok(false) => Decision::NoOpinion(None),
            Err(why) => Decision::NoOpinion(Some(why)),
        }
    }
}

impl NodeAuthorizer {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    fn check(&self, node: &str, request: &ResourceRequest<'_>, selector: Option<&str>) -> Result<bool, String> {
        let read = matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        let own = request.name == node;
        match (request.group, request.resource, request.subresource) {
            ("", "secrets" | "configmaps", "") if read => self.may_read_object(node, request),
            ("", "serviceaccounts", "") if request.verb == Verb::Get => self.related(node, request, uses_account),
            ("", "serviceaccounts", "token") if request.verb == Verb::Create => {
                self.related(node, request, uses_account)
            }
            ("", "pods", "") if matches!(request.verb, Verb::List | Verb::Watch) => may_list_pods(node, selector),
            // The body is checked when it is decoded.
            ("", "pods", "") if request.verb == Verb::Create => Ok(true),
            ("", "pods", "" | "status" | "eviction") => Ok(self.is_own_pod(node, request)),
            ("", "nodes", "" | "status") => Ok(read
                || (own && matches!(request.verb, Verb::Update | Verb::Patch))
                || (request.verb == Verb::Create && request.subresource.is_empty())),
            ("", "services" | "endpoints" | "namespaces", "") | ("discovery.k8s.io", "endpointslices", "") => Ok(read),
            ("" | "events.k8s.io", "events", "") => {
                Ok(matches!(request.verb, Verb::Create | Verb::Update | Verb::Patch))
            }
            ("coordination.k8s.io", "leases", "") if request.namespace == LEASE_NAMESPACE => Ok(request.verb
                == Verb::Create
                || (own && matches!(request.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete))),
            ("certificates.k8s.io", "certificatesigningrequests", "") => Ok(read || request.verb == Verb::Create),
            ("authentication.k8s.io", "tokenreviews", "") | ("authorization.k8s.io", "subjectaccessreviews", "") => {
                Ok(request.verb == Verb::Create)
            }
            _ => Ok(false),
        }
    }

    /// One Secret or ConfigMap, by name, that a pod of this node refers to.
    fn may_read_object(&self, node: &str, request: &ResourceRequest<'_>) -> Result<bool, String> {
        if request.name.is_empty() {
            return Err("can only read resources of this type individually: No Object name found".to_owned());
        }
        let is_secret = request.resource == "secrets";
        self.related(
            node,
            request,
            |pod, name| {
                if is_secret { uses_secret(pod, name) } else { uses_config_map(pod, name) }
            },
        )
    }

    fn related(
        &self,
        node: &str,
        request: &ResourceRequest<'_>,
        uses: impl Fn(&Value, &str) -> bool,
    ) -> Result<bool, String> {
        let is_related = self
            .pods_of(node, &request.namespace)
            .iter()
            .filter_map(|entry| serde_json::from_slice::<Value>(entry.json()).ok())
            .any(|pod| uses(&pod, &request.name));
        if is_related {
            return Ok(true);
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }

    fn pods_of(&self, node: &str, namespace: &str) -> Vec<Arc<Entry>> {
        let Some(pods) = self.registry.core("pods") else { return Vec::new() };
        let wanted = node.to_owned();
        let selection = Selection::of(Scope::Namespace(namespace.to_owned()))
            .filter(Arc::new(move |entry| entry.field("spec.nodeName") == Some(&wanted)));
        pods.cache.list(&ListRequest::all(selection)).map(|result| result.entries).unwrap_or_default()
    }

    /// A pod that is gone is nobody's: the handler answers 404.
    fn is_own_pod(&self, node: &str, request: &ResourceRequest<'_>) -> bool {
        let Some(pods) = self.registry.core("pods") else { return false };
        let entry = pods.cache.get(&pods.key(&request.namespace, &request.name));
        entry.is_none_or(|entry| entry.field("spec.nodeName") == Some(node))
    }
}

fn may_list_pods(node: &str, selector: Option<&str>) -> Result<bool, String> {
    let selector = selector.and_then(|text| FieldSelector::parse(text).ok()).unwrap_or_default();
    if selector.exact("spec.nodeName") == Some(node) {
        return Ok(true);
    }
    Err("can only list/watch pods with spec.nodeName field selector".to_owned())
}

fn uses_account(pod: &Value, name: &str) -> bool {
    let account = meta::get_str(pod, &["spec", "serviceAccountName"]);
    (if account.is_empty() { "default" } else { account }) == name
}

fn uses_secret(pod: &Value, name: &str) -> bool {
    let pulls = meta::get_array(pod, &["spec", "imagePullSecrets"]);
    pulls.iter().any(|secret| meta::get_str(secret, &["name"]) == name)
        || volumes(pod).any(|volume| {
            meta::get_str(volume, &["secret", "secretName"]) == name
                || sources(volume).any(|source| meta::get_str(source, &["secret", "name"]) == name)
        })
        || environment_uses(pod, "secretRef", "secretKeyRef", name)
}

fn uses_config_map(pod: &Value, name: &str) -> bool {
    volumes(pod).any(|volume| {
        meta::get_str(volume, &["configMap", "name"]) == name
            || sources(volume).any(|source| meta::get_str(source, &["configMap", "name"]) == name)
    }) || environment_uses(pod, "configMapRef", "configMapKeyRef", name)
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    meta::get_array(pod, &["spec", "volumes"]).iter()
}

fn sources(volume: &Value) -> impl Iterator<Item = &Value> {
    meta::get_array(volume, &["projected", "sources"]).iter()
}

fn environment_uses(pod: &Value, whole: &str, key: &str, name: &str) -> bool {
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    containers.iter().flat_map(|list| meta::get_array(pod, &["spec", list])).any(|container| {
        meta::get_array(container, &["envFrom"]).iter().any(|from| meta::get_str(from, &[whole, "name"]) == name)
            || meta::get_array(container, &["env"])
                .iter()
                .any(|variable| meta::get_str(variable, &["valueFrom", key, "name"]) == name)
    })
}

/// Whether a node may make this object: what the URL does not show.
///
/// Source: `plugin/pkg/admission/noderestriction/admission.go`.
pub(crate) fn check_create(node: &str, resource: &str, object: &Value) -> Result<(), String> {
    match resource {
        "nodes" if meta::name(object) != node => {
            Err(format!("node {node:?} is not allowed to modify node {:?}", meta::name(object)))
        }
        "leases" if meta::name(object) != node => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
        "pods" if meta::annotation(object, "kubernetes.io/config.mirror").is_none() => Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        )),
        "pods" if meta::get_str(object, &["spec", "nodeName"]) != node => {
            Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_found_wherever_a_pod_has_them() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"secret": {"secretName": "vol"}}, {"configMap": {"name": "cm-vol"}},
                {"projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "cm-proj"}}]}},
            ],
            "containers": [{"envFrom": [{"secretRef": {"name": "env-all"}}, {"configMapRef": {"name": "cm-all"}}]}],
            "initContainers": [{"env": [
                {"valueFrom": {"secretKeyRef": {"name": "env-key"}}},
                {"valueFrom": {"configMapKeyRef": {"name": "cm-key"}}},
            ]}],
        }});
        for name in ["pull", "vol", "proj", "env-all", "env-key"] {
            assert!(uses_secret(&pod, name) && !uses_config_map(&pod, name), "{name}");
        }
        for name in ["cm-vol", "cm-proj", "cm-all", "cm-key"] {
            assert!(uses_config_map(&pod, name) && !uses_secret(&pod, name), "{name}");
        }
        assert!(uses_account(&pod, "default") && !uses_account(&pod, "other"));
        assert!(!uses_secret(&pod, "other"));
    }
}
