//! What objects count against a ResourceQuota: pure, for admission (which charges) and the
//! controller (which counts).
//!
//! Usage is a map from the names that a quota has for resources, such as `requests.cpu`, to
//! amounts. Whether an amount is allowed is admission's to say.
//!
//! Source: `k8s.io/apiserver/pkg/quota/v1` and `pkg/quota/v1/evaluator/core` at v1.37.

mod pod;
mod resource_claim;
mod scope;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    meta,
    quantity::{Format, Quantity},
    resource_list::Amounts,
};

pub use pod::missing;

const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Kinds that a quota counts under their plain names too.
const PLAIN_NAMES: [&str; 4] = [
    "configmaps",
    "secrets",
    "replicationcontrollers",
    "resourcequotas",
];

/// How a quota counts the objects of a resource: `count/deployments.apps`, `count/pods`.
#[must_use]
pub fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() {
        format!("count/{plural}")
    } else {
        format!("count/{plural}.{group}")
    }
}

/// What an object uses.
#[must_use]
pub fn usage(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let mut amounts = Amounts::from([(count_name(group, plural), one())]);
    match (group, plural) {
        ("", "pods") => pod::usage(&mut amounts, object, now),
        ("", "services") => service(&mut amounts, &object["spec"]),
        ("", "persistentvolumeclaims") => claim(&mut amounts, object),
        ("resource.k8s.io", "resourceclaims") => resource_claim::usage(&mut amounts, object),
        ("", plural) if PLAIN_NAMES.contains(&plural) => {
            amounts.insert(plural.to_owned(), one());
        }
        _ => {}
    }
    amounts
}

/// Those of a quota's names that objects of a resource can use.
#[must_use]
pub fn names_of<'a>(
    group: &str,
    plural: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let count = count_name(group, plural);
    let is_own = |name: &&str| match (group, plural) {
        _ if *name == count => true,
        ("", "pods") => pod::is_name(name),
        ("", "services") => matches!(
            *name,
            "services" | "services.nodeports" | "services.loadbalancers"
        ),
        ("", "persistentvolumeclaims") => {
            matches!(*name, "persistentvolumeclaims" | "requests.storage")
                || name.contains(STORAGE_CLASS_SUFFIX)
        }
        ("resource.k8s.io", "resourceclaims") => resource_claim::is_name(name),
        ("", plural) => PLAIN_NAMES.contains(&plural) && *name == plural,
        _ => false,
    };
    names.into_iter().filter(is_own).collect()
}

/// Whether a change of an object, of `old` to `new`, may change what it uses, or whose quota it
/// uses. Everything else counts only when it is made.
#[must_use]
pub fn changes_by_update(
    (group, plural): (&str, &str),
    subresource: &str,
    (old, new): (&Value, &Value),
) -> bool {
    match (group, plural) {
        // It comes to the quota of those with a deadline.
        ("", "pods") if subresource.is_empty() => {
            scope::has_deadline(old) != scope::has_deadline(new)
        }
        ("", "services") => subresource.is_empty(),
        // The status says what was given, and of which VolumeAttributesClass.
        ("", "persistentvolumeclaims") => matches!(subresource, "" | "status"),
        ("", "pods") => subresource == "resize",
        _ => false,
    }
}

/// Whether a quota is about an object of a resource, by the scopes of its `spec`. Those with scopes
/// are about pods, or about claims, and about nothing else.
#[must_use]
pub fn in_scope(spec: &Value, group: &str, plural: &str, object: &Value) -> bool {
    scope::requirements(spec)
        .iter()
        .all(|requirement| is_of_scope(requirement, group, plural, object))
}

/// The scopes of a quota's `spec`, all in the form of `scopeSelector`.
#[must_use]
pub fn scopes(spec: &Value) -> Vec<Value> {
    scope::requirements(spec)
}

/// Whether an object of a resource is of one scope, in the form of `scopeSelector`.
#[must_use]
pub fn is_of_scope(scope: &Value, group: &str, plural: &str, object: &Value) -> bool {
    match (group, plural) {
        ("", "pods") => scope::matches_pod(scope, object),
        ("", "persistentvolumeclaims") => scope::matches_claim(scope, object),
        _ => false,
    }
}

/// Amounts as they stand in an object.
#[must_use]
pub fn to_value(amounts: &Amounts) -> Value {
    let one =
        |(name, amount): (&String, &Quantity)| (name.clone(), Value::from(amount.to_string()));
    Value::Object(amounts.iter().map(one).collect())
}

/// `a=1,b=2`, as messages show amounts.
#[must_use]
pub fn print<'a>(amounts: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> String {
    amounts
        .into_iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect::<Vec<_>>()
        .join(",")
}

fn one() -> Quantity {
    units(1)
}

fn units(count: usize) -> Quantity {
    Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi)
}

fn service(amounts: &mut Amounts, spec: &Value) {
    let ports = meta::get_array(spec, &["ports"]);
    let chosen = ports
        .iter()
        .filter(|port| port["nodePort"].as_i64().is_some_and(|number| number != 0))
        .count();
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports.len(), 0),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (chosen, 1),
        Some("LoadBalancer") => (ports.len(), 1),
        _ => (0, 0),
    };
    amounts.insert("services".to_owned(), one());
    amounts.insert("services.nodeports".to_owned(), units(node_ports));
    amounts.insert("services.loadbalancers".to_owned(), units(balancers));
}

fn claim(amounts: &mut Amounts, claim: &Value) {
    let class = meta::annotation(claim, STORAGE_CLASS_ANNOTATION)
        .unwrap_or_else(|| meta::get_str(claim, &["spec", "storageClassName"]));
    let asked = Quantity::parse(meta::get_str(
        claim,
        &["spec", "resources", "requests", "storage"],
    ))
    .ok();
    let given = Quantity::parse(meta::get_str(
        claim,
        &["status", "allocatedResources", "storage"],
    ))
    .ok();
    amounts.insert("persistentvolumeclaims".to_owned(), one());
    if !class.is_empty() {
        amounts.insert(
            format!("{class}{STORAGE_CLASS_SUFFIX}persistentvolumeclaims"),
            one(),
        );
    }
    if let Some(storage) = asked.max(given) {
        amounts.insert("requests.storage".to_owned(), storage);
        if !class.is_empty() {
            amounts.insert(
                format!("{class}{STORAGE_CLASS_SUFFIX}requests.storage"),
                storage,
            );
        }
    }
}

#[cfg(test)]
mod tests;
