//! What authorization can only say once it sees the objects: nobody grants what they do not hold, nodes write what is
//! their own, and certificates are approved and signed by those who may.
//!
//! Source: `pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased/storage.go`,
//! `plugin/pkg/admission/{noderestriction,certificates}` at v1.37.

use coracle_api::{meta, status::Status};
use coracle_auth::{
    authz::{
        Attributes, ResourceTarget, Target, escalation,
        rule::{Pool, Rule},
    },
    user::GROUP_MASTERS,
};
use coracle_registry::store::cache_status;
use serde_json::Value;

use super::node_restriction as restriction;
use crate::{endpoints::Call, request_info::Verb};

const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Whether [`check_request`] has anything to say: nothing about nearly all requests.
pub(crate) fn concerns(call: &Call<'_>) -> bool {
    !call.info.verb.is_read() && (call.resource.info.group == RBAC || call.user.node_name().is_some())
}

/// Before anything is done: a node deletes and evicts pods of its own.
pub(crate) async fn check_request(call: &Call<'_>) -> Result<(), Status> {
    if call.resource.info.group == RBAC {
        // Who writes a role and then a binding of it expects the one to be known to the other.
        call.server.store.cache.catch_up().await.map_err(cache_status)?;
    }
    let Some(node) = call.user.node_name() else { return Ok(()) };
    if call.resource.is_core("pods") && call.info.verb == Verb::Create && call.info.subresource.is_empty() {
        // A mirror pod names its Node, which may have come a moment ago.
        return call.server.store.cache.catch_up().await.map_err(cache_status);
    }
    let doing = match (call.info.verb, call.info.subresource) {
        (Verb::Delete, "") => "delete",
        (Verb::Create, "eviction") => "evict",
        _ => return Ok(()),
    };
    if !call.resource.is_core("pods") {
        return Ok(());
    }
    let key = call.resource.key(&call.info.namespace, &call.info.name);
    // A pod that is gone is for the handler to miss.
    let Some(pod) = call.server.store.current(call.resource, &key).await? else { return Ok(()) };
    if meta::get_str(&pod.object, &["spec", "nodeName"]) == node {
        return Ok(());
    }
    Err(forbidden(
        call,
        &call.info.name,
        format!("node {node:?} can only {doing} pods with spec.nodeName set to itself"),
    ))
}

/// Whether the user may make this object.
pub(crate) fn check_create(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let (group, plural) = (call.resource.info.group, call.resource.info.plural);
    let name = meta::name(object);
    if let Some(node) = call.user.node_name() {
        let entry = call.server.registry.core("nodes").and_then(|nodes| nodes.cache.get(&nodes.key("", node)));
        let uid = entry.as_ref().map(|entry| entry.uid());
        restriction::check_create((node, uid), group, plural, object)
            .and_then(|()| check_addresses(call, node, object, &Value::Null))
            .map_err(|why| forbidden(call, name, why))?;
    }
    match group {
        RBAC => check_grant(call, object),
        CERTIFICATES if plural == "certificatesigningrequests" => check_subject(call, object),
        _ => Ok(()),
    }
}

/// Whether the user may change this object so.
pub(crate) fn check_update(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    let (group, plural) = (call.resource.info.group, call.resource.info.plural);
    if let Some(node) = call.user.node_name()
        && group.is_empty()
    {
        restriction::check_update(node, (plural, call.info.subresource), new, old)
            .and_then(|()| check_addresses(call, node, new, old))
            .map_err(|why| forbidden(call, meta::name(old), why))?;
    }
    match group {
        RBAC if grants_differ(new, old) => check_grant(call, new),
        CERTIFICATES if plural == "certificatesigningrequests" => check_signer(call, new, old),
        _ => Ok(()),
    }
}

/// A node says of itself where it is; what is nobody's or somebody else's it may not say. Other nodes route to it.
fn check_addresses(call: &Call<'_>, node: &str, new: &Value, old: &Value) -> Result<(), String> {
    if !call.resource.is_core("nodes") {
        return Ok(());
    }
    let server = call.server;
    let added = restriction::added_addresses(node, new, old)?;
    let foreign = added.iter().find(|address| {
        !server.may_be_nodes(**address) || server.config.service_cidr.contains(&address.to_canonical())
    });
    match foreign {
        Some(address) => Err(format!("node {node:?} is not allowed to report the address {address} as its own")),
        None => Ok(()),
    }
}

fn forbidden(call: &Call<'_>, name: &str, why: impl std::fmt::Display) -> Status {
    Status::forbidden(&call.resource.group_resource, name, why)
}

// === roles and bindings ===

/// Finalizers and owners may be changed by who holds nothing: the garbage collector does.
fn grants_differ(new: &Value, old: &Value) -> bool {
    let differ = |field: &str| new.get(field) != old.get(field);
    ["rules", "aggregationRule", "roleRef", "subjects"].into_iter().any(differ)
        || meta::labels(new) != meta::labels(old)
        || meta::annotations(new) != meta::annotations(old)
}

fn check_grant(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    // May do anything without a role: there is nothing to compare with.
    if call.user.is_in(GROUP_MASTERS) {
        return Ok(());
    }
    let rbac = &call.server.authorizer.rbac;
    let namespace = call.info.namespace.as_ref();
    let name = meta::name(object);
    let wanted = if object.get("roleRef").is_some() {
        let is_cluster_role = meta::get_str(object, &["roleRef", "kind"]) == "ClusterRole";
        let role = meta::get_str(object, &["roleRef", "name"]);
        if may(call, "bind", if is_cluster_role { "clusterroles" } else { "roles" }, role) {
            return Ok(());
        }
        rbac.role(is_cluster_role, role, namespace).map_err(|_| {
            let plural = if is_cluster_role { "clusterroles" } else { "roles" };
            Status::not_found(&coracle_api::resource::GroupResource::new(RBAC, plural), role)
        })?
    } else {
        if may(call, "escalate", call.resource.info.plural, &call.info.name) {
            return Ok(());
        }
        Rule::parse_all(object, &mut Pool::default()).into_vec()
    };
    let (own, missing_roles) = rbac.rules_for(call.user, namespace);
    // Its rules come of roles that are yet to be written: nothing less than all rights covers them.
    if object.get("aggregationRule").is_some_and(Value::is_object) {
        let mut pool = Pool::default();
        let everything = serde_json::json!({"rules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]});
        if !escalation::uncovered(&own, &Rule::parse_all(&everything, &mut pool)).is_empty() {
            return Err(forbidden(call, name, "must have cluster-admin privileges to use the aggregationRule"));
        }
    }
    escalation::confirm(call.user, &own, &missing_roles, &wanted).map_err(|why| forbidden(call, name, why))
}

fn may(call: &Call<'_>, verb: &str, resource: &str, name: &str) -> bool {
    let target =
        ResourceTarget { group: RBAC, resource, namespace: &call.info.namespace, name, ..ResourceTarget::default() };
    call.server.authorizer.allows(&Attributes { user: call.user, verb, target: Target::Resource(target) })
}

// === certificates ===

/// Nobody gets a certificate of `system:masters` by asking for it.
fn check_subject(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    if meta::get_str(object, &["spec", "signerName"]) != CLIENT_SIGNER {
        return Ok(());
    }
    let is_master = restriction::with_subject(meta::get_str(object, &["spec", "request"]), |subject| {
        subject.iter_organization().any(|group| group.as_str() == Ok(GROUP_MASTERS))
    });
    if is_master == Some(true) {
        let why = format!("use of {CLIENT_SIGNER} signer with {GROUP_MASTERS} group is not allowed");
        return Err(forbidden(call, meta::name(object), why));
    }
    Ok(())
}

fn check_signer(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    let differ = |field: &str| meta::get(new, &["status", field]) != meta::get(old, &["status", field]);
    let verb = match call.info.subresource {
        "approval" => "approve",
        "status" if differ("certificate") || differ("conditions") => "sign",
        _ => return Ok(()),
    };
    let signer = meta::get_str(old, &["spec", "signerName"]);
    let every = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let allowed = [signer, &every].into_iter().any(|name| {
        let target = ResourceTarget { group: CERTIFICATES, resource: "signers", name, ..ResourceTarget::default() };
        call.server.authorizer.allows(&Attributes { user: call.user, verb, target: Target::Resource(target) })
    });
    if allowed {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(forbidden(call, meta::name(old), why))
}
