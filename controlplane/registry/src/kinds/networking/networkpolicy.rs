//! NetworkPolicy: which traffic pods may send and receive.
//!
//! Source: `pkg/registry/networking/networkpolicy/strategy.go`, `pkg/apis/networking/validation` at
//! v1.37.

use std::collections::HashSet;

use coracle_api::{name, status::FieldErrors};
use ipnet::IpNet;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{items, number, string},
};

/// The strategy of NetworkPolicies.
pub struct NetworkPolicy;

static INFO: ResourceInfo = ResourceInfo {
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    ..super::V1
};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const TYPES: [&str; 2] = ["Ingress", "Egress"];

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Pod-Selector",
        "podSelector selects the pods to which this NetworkPolicy object applies. The array of rules is applied to any pods selected by this field. An empty selector matches all pods in the policy's namespace. Multiple network policies can select the same set of pods. In this case, the ingress rules for each are combined additively. This field is optional. If it is not specified, it defaults to an empty selector.",
    ),
    AGE,
];

impl BuiltIn for NetworkPolicy {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::object(spec, "podSelector");
        for direction in ["ingress", "egress"] {
            fill::each(spec, direction, |rule| {
                fill::each(rule, "ports", |port| fill::value(port, "protocol", "TCP"));
            });
        }
        if items(&spec["policyTypes"]).is_empty() {
            let mut types = vec!["Ingress"];
            if !items(&spec["egress"]).is_empty() {
                types.push("Egress");
            }
            spec["policyTypes"] = types.into();
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        checked(&object["spec"], &Known::new())
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        // What is there already may stay, wherever it has gone.
        checked(&new["spec"], &ranges(&old["spec"]))
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            cells::label_selector(&object["spec"]["podSelector"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// Ranges of addresses that were there before.
type Known<'a> = HashSet<&'a str>;

/// The rules of both directions, each with its path and its peers' name.
fn rules(spec: &Value) -> impl Iterator<Item = (String, &'static str, &Value)> {
    let directions = [("ingress", "from"), ("egress", "to")].into_iter();
    directions.flat_map(move |(direction, peers)| {
        let rules = items(&spec[direction]).iter().enumerate();
        rules.map(move |(index, rule)| (format!("spec.{direction}[{index}]"), peers, rule))
    })
}

fn ranges(spec: &Value) -> Known<'_> {
    let peers = rules(spec).flat_map(|(_, peers, rule)| items(&rule[peers]));
    let blocks = peers.map(|peer| &peer["ipBlock"]);
    blocks
        .flat_map(|block| std::iter::once(&block["cidr"]).chain(items(&block["except"])))
        .map(string)
        .collect()
}

fn checked(spec: &Value, known: &Known<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check::label_selector(&mut errors, "spec.podSelector", &spec["podSelector"]);
    for (path, peers, rule) in rules(spec) {
        for (index, one) in items(&rule["ports"]).iter().enumerate() {
            port(&mut errors, &format!("{path}.ports[{index}]"), one);
        }
        for (index, one) in items(&rule[peers]).iter().enumerate() {
            peer(&mut errors, &format!("{path}.{peers}[{index}]"), one, known);
        }
    }
    let types = &spec["policyTypes"];
    if items(types).len() > TYPES.len() {
        let message = "may not specify more than two policyTypes";
        errors.invalid("spec.policyTypes", types, message);
        return errors;
    }
    for (index, one) in items(types).iter().enumerate() {
        if !TYPES.contains(&string(one)) {
            errors.not_supported(format!("spec.policyTypes[{index}]"), one, &TYPES);
        }
    }
    errors
}

fn port(errors: &mut FieldErrors, path: &str, port: &Value) {
    let protocol = &port["protocol"];
    // An empty one is not one that nobody said.
    if !protocol.is_null() && !PROTOCOLS.contains(&string(protocol)) {
        errors.not_supported(format!("{path}.protocol"), protocol, &PROTOCOLS);
    }
    let (first, last) = (&port["port"], &port["endPort"]);
    let last_path = format!("{path}.endPort");
    match first {
        Value::Null => {
            if !last.is_null() {
                let message = "may not be specified when `port` is not specified";
                errors.invalid(last_path, last, message);
            }
        }
        Value::String(text) => {
            if !last.is_null() {
                errors.invalid(
                    last_path,
                    last,
                    "may not be specified when `port` is non-numeric",
                );
            }
            check::invalid_all(
                errors,
                &format!("{path}.port"),
                first,
                name::port_name_errors(text),
            );
        }
        _ => {
            check::port_number(errors, &format!("{path}.port"), first);
            if !last.is_null() {
                if number(last) < number(first) {
                    errors.invalid(&last_path, last, "must be greater than or equal to `port`");
                }
                check::port_number(errors, &last_path, last);
            }
        }
    }
}

fn peer(errors: &mut FieldErrors, path: &str, peer: &Value, known: &Known<'_>) {
    let mut count = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if peer[selector].is_object() {
            count += 1;
            check::label_selector(errors, &format!("{path}.{selector}"), &peer[selector]);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        ip_block(errors, &format!("{path}.ipBlock"), block, known);
        if count > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if count == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn ip_block(errors: &mut FieldErrors, path: &str, block: &Value, known: &Known<'_>) {
    if string(&block["cidr"]).is_empty() {
        errors.required(format!("{path}.cidr"), "");
        return;
    }
    let Some(whole) = range(errors, &format!("{path}.cidr"), &block["cidr"], known) else {
        return;
    };
    for (index, except) in items(&block["except"]).iter().enumerate() {
        let path = format!("{path}.except[{index}]");
        let Some(part) = range(errors, &path, except, known) else {
            continue;
        };
        let is_part =
            whole.trunc().contains(&IpNet::trunc(&part)) && whole.prefix_len() < part.prefix_len();
        if !is_part {
            errors.invalid(path, except, "must be a strict subset of `cidr`");
        }
    }
}

fn range(errors: &mut FieldErrors, path: &str, value: &Value, known: &Known<'_>) -> Option<IpNet> {
    if known.contains(string(value)) {
        // Of what was there nothing is said again.
        return check::strict_cidr(&mut FieldErrors::new(), path, value);
    }
    check::strict_cidr(errors, path, value)
}

#[cfg(test)]
mod tests;
