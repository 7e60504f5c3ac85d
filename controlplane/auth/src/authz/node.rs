//! What a node may do: read what its pods need, write what is its own.
//!
//! What only the body of a request shows is for admission to check.
//!
//! Source: `plugin/pkg/auth/authorizer/node/node_authorizer.go` at v1.37.

mod graph;

use std::sync::Arc;

use coracle_api::{
    meta::{self, NODE_LEASE_NAMESPACE},
    selector::{FieldSelector, LabelSelector, Operator},
    volume::local_path,
};
use coracle_registry::resource::Registry;
use serde_json::Value;

use self::graph::Graph;
pub use self::graph::References;
use super::{
    Attributes, Decision, ResourceTarget, Target,
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

const ALLOW: Decision = Decision::Allow(String::new());
const NO_OPINION: Decision = Decision::NoOpinion(String::new());

fn allow_if(allowed: bool) -> Decision {
    if allowed { ALLOW } else { NO_OPINION }
}

fn refused(why: &str) -> Decision {
    Decision::NoOpinion(why.to_owned())
}

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

    /// Whether a node may, or why not, in upstream's words. No opinion on anybody else.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = attributes.user.node_name() else {
            return NO_OPINION;
        };
        let Target::Resource(target) = &attributes.target else {
            return allow_if(self.by_rules(attributes));
        };
        let verb = attributes.verb;
        match (target.group, target.resource) {
            ("", "secrets") => self.read(node, verb, target, |references| &references.secrets),
            ("", "configmaps") => {
                self.read(node, verb, target, |references| &references.config_maps)
            }
            ("", "persistentvolumeclaims") if target.subresource == "status" => {
                if !matches!(verb, "get" | "update" | "patch") {
                    return refused("can only get/update/patch this type");
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
            _ => allow_if(self.by_rules(attributes)),
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
    ) -> Decision {
        if !matches!(verb, "get" | "list" | "watch") {
            return refused("can only read resources of this type");
        }
        if !target.subresource.is_empty() {
            return refused("cannot read subresource");
        }
        if target.namespace.is_empty() {
            return refused("can only read namespaced object of this type");
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
    ) -> Decision {
        if let Err(why) = individual(verb, target) {
            return refused(why);
        }
        self.related(node, target, |references| {
            has(list(references), target.name)
        })
    }

    fn related(
        &self,
        node: &str,
        target: &ResourceTarget<'_>,
        refers: impl Fn(&References) -> bool,
    ) -> Decision {
        if target.name.is_empty() {
            return refused("No Object name found");
        }
        match &self.graph {
            Some(graph) if graph.is_related(node, target.namespace, refers) => ALLOW,
            _ => unrelated(node),
        }
    }

    /// A volume whose claim a pod of this node refers to; and those that say that they are a
    /// directory of this node, which upstream does not have: it follows them, and takes its
    /// finalizer off one that goes. That it changes nothing else, admission sees to.
    fn persistent_volume(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
        match (verb, target.subresource) {
            ("list" | "watch", "") if selects_own_volumes(node, target) => return ALLOW,
            ("list" | "watch", "") => {
                return Decision::NoOpinion(format!(
                    "can only list/watch persistentvolumes with {} label selector",
                    local_path::NODE
                ));
            }
            ("update" | "patch", "") => {
                let volume = self.object("", "persistentvolumes", target.name);
                let is_own = volume
                    .is_some_and(|volume| meta::label(&volume, local_path::NODE) == Some(node));
                return if is_own { ALLOW } else { unrelated(node) };
            }
            _ => {}
        }
        if let Err(why) = individual(verb, target) {
            return refused(why);
        }
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
                ALLOW
            }
            _ => unrelated(node),
        }
    }

    fn attachment(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
        if let Err(why) = individual(verb, target) {
            return refused(why);
        }
        let attachment = self
            .object("storage.k8s.io", "volumeattachments", target.name)
            .unwrap_or_default();
        if meta::get_str(&attachment, &["spec", "nodeName"]) == node {
            return ALLOW;
        }
        unrelated(node)
    }

    /// A cluster-scoped object.
    fn object(&self, group: &str, plural: &str, name: &str) -> Option<Value> {
        let resource = self.registry.get(group, "v1", plural)?;
        let entry = resource.cache.get(&resource.key("", name))?;
        serde_json::from_slice(&entry.unmanaged()).ok()
    }

    fn account(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
        match (verb, target.subresource) {
            ("create", "token") | ("get", "") => self.related(node, target, |references| {
                *references.account == *target.name
            }),
            (_, "token") => refused("can only create tokens for individual service accounts"),
            _ => refused("can only get individual service accounts or create their tokens"),
        }
    }

    fn pod(&self, node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
        match (verb, target.subresource) {
            ("get", "") if self.is_own_pod(node, target) => ALLOW,
            ("get", "") => unrelated(node),
            ("list" | "watch", "") => {
                let selector = target
                    .field_selector
                    .and_then(|text| FieldSelector::parse(text).ok())
                    .unwrap_or_default();
                if selector.exact("spec.nodeName") == Some(node) {
                    return ALLOW;
                }
                refused("can only list/watch pods with spec.nodeName field selector")
            }
            // Whose pod it is, admission checks.
            ("create" | "delete", "") | ("update" | "patch", "status") | ("create", "eviction") => {
                ALLOW
            }
            ("get", "status") => allow_if(self.is_own_pod(node, target)),
            _ => NO_OPINION,
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

/// Whether a list shows no other volumes than those of the node's own directories. As upstream with
/// the pods of a node, more conditions may stand beside that.
fn selects_own_volumes(node: &str, target: &ResourceTarget<'_>) -> bool {
    let selector = target
        .label_selector
        .and_then(|text| LabelSelector::parse(text).ok());
    selector.is_some_and(|selector| {
        selector.requirements().iter().any(|one| {
            one.key == local_path::NODE && one.operator == Operator::In && one.values == [node]
        })
    })
}

fn has(names: &[Box<str>], name: &str) -> bool {
    names.iter().any(|own| **own == *name)
}

fn unrelated(node: &str) -> Decision {
    Decision::NoOpinion(format!(
        "no relationship found between node '{node}' and this object"
    ))
}

/// # Errors
/// Why this is no read of one object.
fn individual(verb: &str, target: &ResourceTarget<'_>) -> Result<(), &'static str> {
    if verb != "get" {
        return Err("can only get individual resources of this type");
    }
    if !target.subresource.is_empty() {
        return Err("cannot get subresource");
    }
    Ok(())
}

fn lease(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refused("can only get, create, update, patch, or delete a node lease");
    }
    if target.namespace != NODE_LEASE_NAMESPACE {
        return Decision::NoOpinion(format!(
            "can only access leases in the {NODE_LEASE_NAMESPACE:?} system namespace"
        ));
    }
    if verb != "create" && target.name != node {
        return refused("can only access node lease with the same name as the requesting node");
    }
    ALLOW
}

fn own(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    if !target.subresource.is_empty() {
        return refused("cannot authorize CSINode subresources");
    }
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refused("can only get, create, update, patch, or delete a CSINode");
    }
    if verb != "create" && target.name != node {
        return refused("can only access CSINode with the same name as the requesting node");
    }
    ALLOW
}

fn slices(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match verb {
        "create" => ALLOW,
        "list" | "watch" | "deletecollection" => {
            let selector = target
                .field_selector
                .and_then(|text| FieldSelector::parse(text).ok())
                .unwrap_or_default();
            if selector.exact("spec.nodeName") == Some(node) {
                return ALLOW;
            }
            refused(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            )
        }
        _ => NO_OPINION,
    }
}

fn nodes(node: &str, verb: &str, target: &ResourceTarget<'_>) -> Decision {
    match (verb, target.subresource) {
        ("create" | "update" | "patch", "") | ("update" | "patch", "status") => ALLOW,
        ("get" | "list" | "watch", "" | "status") if target.name == node => ALLOW,
        ("get" | "list" | "watch", "") => {
            let which = if target.name.is_empty() {
                "all nodes".to_owned()
            } else {
                format!("'{}'", target.name)
            };
            Decision::NoOpinion(format!(
                "node '{node}' cannot read {which}, only its own Node object"
            ))
        }
        _ => NO_OPINION,
    }
}
