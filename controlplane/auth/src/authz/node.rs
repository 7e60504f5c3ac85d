//! What a node may do: read what its pods need, write what is its own.
//!
//! What only the body of a request shows is for admission to check.
//!
//! Source: `plugin/pkg/auth/authorizer/node/node_authorizer.go` at v1.37.

mod graph;

use std::sync::Arc;

use coracle_api::{
    meta::{self, NODE_LEASE_NAMESPACE},
    selector::FieldSelector,
};
use coracle_registry::resource::Registry;
use serde_json::Value;

use self::graph::Graph;
pub use self::graph::References;
use super::{
    Attributes, ResourceTarget, Target,
    rule::{Pool, Rule},
};
use crate::authz::bootstrap_policy;

/// Decides on requests of nodes; has no opinion on others.
pub struct NodeAuthorizer {
    registry: Arc<Registry>,
    graph: Option<Graph>,
    /// For what is not a matter of one node or another.
    rules: Box<[Rule]>,
}

/// Allowed, left to others, or left to others for a reason.
type Answer = Result<bool, String>;

impl NodeAuthorizer {
    /// Reads nothing yet: the first request of a node does.
    pub fn new(registry: &Arc<Registry>) -> Self {
        let graph = registry.core("pods").map(Graph::new);
        let rules = Rule::parse_all(
            &bootstrap_policy::cluster_role("system:node").unwrap_or_default(),
            &mut Pool::default(),
        );
        Self {
            registry: Arc::clone(registry),
            graph,
            rules,
        }
    }

    /// Whether a node may; `Ok(false)` for anybody else.
    ///
    /// # Errors
    /// Why not, in upstream's words.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Answer {
        let Some(node) = attributes.user.node_name() else {
            return Ok(false);
        };
        let Target::Resource(target) = &attributes.target else {
            return Ok(self.by_rules(attributes));
        };
        let verb = attributes.verb;
        match (target.group, target.resource) {
            ("", "secrets") => self.read(node, verb, target, |references| &references.secrets),
            ("", "configmaps") => {
                self.read(node, verb, target, |references| &references.config_maps)
            }
            ("", "persistentvolumeclaims") if target.subresource == "status" => {
                if !matches!(verb, "get" | "update" | "patch") {
                    return Err("can only get/update/patch this type".to_owned());
                }
                self.related(node, target, |references| {
                    has(&references.claims, target.name)
                })
            }
            ("", "persistentvolumeclaims") => {
                self.get(node, verb, target, |references| &references.claims)
            }
            ("", "persistentvolumes") => self.persistent_volume(node, verb, target),
            ("resource.k8s.io", "resourceclaims") => {
                self.get(node, verb, target, |references| &references.resource_claims)
            }
            ("storage.k8s.io", "volumeattachments") => self.attachment(node, verb, target),
            ("", "serviceaccounts") => self.account(node, verb, target),
            ("coordination.k8s.io", "leases") => lease(node, verb, target),
            ("storage.k8s.io", "csinodes") => own(node, verb, target),
            ("resource.k8s.io", "resourceslices") => slices(node, verb, target),
            ("", "nodes") => nodes(node, verb, target),
            ("", "pods") => self.pod(node, verb, target),
            _ => Ok(self.by_rules(attributes)),
        }
    }

    fn by_rules(&self, attributes: &Attributes<'_>) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.allows(attributes.verb, &attributes.target))
    }

    /// An object of a namespace, by name, that a pod of this node refers to.
    fn read(
        &self,
        node: &str,
        verb: &str,
        target: &ResourceTarget<'_>,
        list: impl Fn(&References) -> &[Box<str>],
    ) -> Answer {
        if !matches!(verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".to_owned());
        }
        if !target.subresource.is_empty() {
            return Err("cannot read subresource".to_owned());
        }
        if target.namespace.is_empty() {
            return Err("can only read namespaced object of this type".to_owned());
        }
        self.related(node, target, |references| {
            has(list(references), target.name)
        })
    }

    fn get(
        &self,
        node: &str,
        verb: &str,
        target: &ResourceTarget<'_>,
        list: impl Fn(&References) -> &[Box<str>],
    ) -> Answer {
        individual(verb, target)?;
        self.related(node, target, |references| {
            has(list(references), target.name)
        })
    }

    fn related(
        &self,
        node: &str,
        target: &ResourceTarget<'_>,
        refers: impl Fn(&References) -> bool,
    ) -> Answer {
        if target.name.is_empty() {
            return Err("No Object name found".to_owned());
        }
        match &self.graph {
            Some(graph) if graph.is_related(node, target.namespace, refers) => Ok(true),
            _ => Err(unrelated(node)),
        }
    }

    /// A volume whose claim a pod of this node refers to.
    fn persistent_volume(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
        individual(verb, target)?;
        let volume = self
            .object("", "persistentvolumes", target.name)
            .unwrap_or_default();
        let claim = |field: &str| meta::get_str(&volume, &["spec", "claimRef", field]);
        let (namespace, name) = (claim("namespace"), claim("name"));
        match &self.graph {
            Some(graph)
                if !name.is_empty()
                    && graph.is_related(node, namespace, |references| {
                        has(&references.claims, name)
                    }) =>
            {
                Ok(true)
            }
            _ => Err(unrelated(node)),
        }
    }

    fn attachment(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
        individual(verb, target)?;
        let attachment = self
            .object("storage.k8s.io", "volumeattachments", target.name)
            .unwrap_or_default();
        if meta::get_str(&attachment, &["spec", "nodeName"]) == node {
            return Ok(true);
        }
        Err(unrelated(node))
    }

    /// A cluster-scoped object.
    fn object(&self, group: &str, plural: &str, name: &str) -> Option<Value> {
        let resource = self.registry.get(group, "v1", plural)?;
        let entry = resource.cache.get(&resource.key("", name))?;
        serde_json::from_slice(entry.unmanaged()).ok()
    }

    fn account(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
        match (verb, target.subresource) {
            ("create", "token") | ("get", "") => self.related(node, target, |references| {
                *references.account == *target.name
            }),
            (_, "token") => {
                Err("can only create tokens for individual service accounts".to_owned())
            }
            _ => Err("can only get individual service accounts or create their tokens".to_owned()),
        }
    }

    fn pod(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
        match (verb, target.subresource) {
            ("get", "") if self.is_own_pod(node, target) => Ok(true),
            ("get", "") => Err(unrelated(node)),
            ("list" | "watch", "") => {
                let selector = target
                    .field_selector
                    .and_then(|text| FieldSelector::parse(text).ok())
                    .unwrap_or_default();
                if selector.exact("spec.nodeName") == Some(node) {
                    return Ok(true);
                }
                Err("can only list/watch pods with spec.nodeName field selector".to_owned())
            }
            // Whose pod it is, admission checks.
            ("create" | "delete", "") | ("update" | "patch", "status") | ("create", "eviction") => {
                Ok(true)
            }
            ("get", "status") => Ok(self.is_own_pod(node, target)),
            _ => Ok(false),
        }
    }

    fn is_own_pod(&self, node: &str, target: &ResourceTarget<'_>) -> bool {
        let Some(pods) = self.registry.core("pods") else {
            return false;
        };
        let entry = pods.cache.get(&pods.key(target.namespace, target.name));
        entry.is_some_and(|entry| entry.field("spec.nodeName") == Some(node))
    }
}

fn has(names: &[Box<str>], name: &str) -> bool {
    names.iter().any(|own| **own == *name)
}

fn unrelated(node: &str) -> String {
    format!("no relationship found between node '{node}' and this object")
}

fn individual(verb: &str, target: &ResourceTarget<'_>) -> Result<(), String> {
    if verb != "get" {
        return Err("can only get individual resources of this type".to_owned());
    }
    if !target.subresource.is_empty() {
        return Err("cannot get subresource".to_owned());
    }
    Ok(())
}

fn lease(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".to_owned());
    }
    if target.namespace != NODE_LEASE_NAMESPACE {
        return Err(format!(
            "can only access leases in the {NODE_LEASE_NAMESPACE:?} system namespace"
        ));
    }
    if verb != "create" && target.name != node {
        return Err(
            "can only access node lease with the same name as the requesting node".to_owned(),
        );
    }
    Ok(true)
}

fn own(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    if !target.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".to_owned());
    }
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".to_owned());
    }
    if verb != "create" && target.name != node {
        return Err("can only access CSINode with the same name as the requesting node".to_owned());
    }
    Ok(true)
}

fn slices(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    match verb {
        "create" => Ok(true),
        "list" | "watch" | "deletecollection" => {
            let selector = target
                .field_selector
                .and_then(|text| FieldSelector::parse(text).ok())
                .unwrap_or_default();
            if selector.exact("spec.nodeName") == Some(node) {
                return Ok(true);
            }
            Err(
                "can only list/watch/deletecollection resourceslices with nodeName field selector"
                    .to_owned(),
            )
        }
        _ => Ok(false),
    }
}

fn nodes(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Answer {
    match (verb, target.subresource) {
        ("create" | "update" | "patch", "") | ("update" | "patch", "status") => Ok(true),
        ("get" | "list" | "watch", "" | "status") if target.name == node => Ok(true),
        ("get" | "list" | "watch", "") => {
            let which = if target.name.is_empty() {
                "all nodes".to_owned()
            } else {
                format!("'{}'", target.name)
            };
            Err(format!(
                "node '{node}' cannot read {which}, only its own Node object"
            ))
        }
        _ => Ok(false),
    }
}
