//! Checks of what a load balancer is told: who may come in, of what class it is, where its health
//! is asked for.
//!
//! Source: `validateService`, `validateLoadBalancerClassField` and
//! `validateServiceExternalTrafficPolicy` in `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::HashSet;

use coracle_api::{load_balancer::SOURCE_RANGES, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{items, number, string},
};

const NOT_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// The fields that are about a load balancer alone.
pub(super) fn fields(errors: &mut FieldErrors, spec: &Value) {
    let class = &spec["loadBalancerClass"];
    if class.is_string() {
        check::qualified_name(errors, "spec.loadBalancerClass", class);
        if spec["type"] != "LoadBalancer" {
            errors.forbidden("spec.loadBalancerClass", NOT_LOAD_BALANCER);
        }
    }
    if spec["allocateLoadBalancerNodePorts"].is_boolean() && spec["type"] != "LoadBalancer" {
        errors.forbidden("spec.allocateLoadBalancerNodePorts", NOT_LOAD_BALANCER);
    }
}

/// The port of the node that a load balancer asks for the health of a Service whose traffic stays
/// where it comes in.
pub(super) fn health_port(errors: &mut FieldErrors, spec: &Value) {
    let port = &spec["healthCheckNodePort"];
    if number(port) == 0 {
        return;
    }
    if needs_health_check(spec) {
        check::port_number(errors, "spec.healthCheckNodePort", port);
    } else {
        let message =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid("spec.healthCheckNodePort", port, message);
    }
}

/// Whether load balancers ask each node by a port of its own whether it has endpoints.
pub(crate) fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Who may come in through a load balancer, by field or annotation. What `old` has may stay.
pub(super) fn source_ranges(errors: &mut FieldErrors, service: &Value, old: &Value) {
    let is_balanced = service["spec"]["type"] == "LoadBalancer";
    let ranges = |service: &Value| items(&service["spec"]["loadBalancerSourceRanges"]).to_vec();
    let listed = ranges(service);
    if !listed.is_empty() {
        // Upstream's path, with its capital.
        const PATH: &str = "spec.LoadBalancerSourceRanges";
        if !is_balanced {
            errors.forbidden(PATH, NOT_LOAD_BALANCER);
        }
        let kept = ranges(old);
        let kept: HashSet<&str> = kept.iter().map(|range| string(range).trim()).collect();
        for (index, range) in listed.iter().enumerate() {
            if !kept.contains(string(range).trim()) {
                source_range(errors, &format!("{PATH}[{index}]"), string(range));
            }
        }
        return;
    }
    let annotation = |service: &Value| service["metadata"]["annotations"][SOURCE_RANGES].clone();
    let Some(text) = annotation(service).as_str().map(str::to_owned) else {
        return;
    };
    let path = format!("metadata.annotations[{SOURCE_RANGES}]");
    if !is_balanced {
        errors.forbidden(&path, NOT_LOAD_BALANCER);
    }
    if annotation(old) != *text && !text.trim().is_empty() {
        for range in text.split(',') {
            source_range(errors, &path, range);
        }
    }
}

/// Spaces around it are part of the API, since the annotation had them.
fn source_range(errors: &mut FieldErrors, path: &str, range: &str) {
    let range = range.trim();
    if let Some(net) = check::cidr(errors, path, &range.into())
        && net.addr() != net.network()
    {
        let message = "must not have bits set beyond the prefix length";
        errors.invalid(path, &range.into(), message);
    }
}

/// What an update may not change.
pub(super) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let are_balanced = new["type"] == "LoadBalancer" && old["type"] == "LoadBalancer";
    let class = &new["loadBalancerClass"];
    if are_balanced && *class != old["loadBalancerClass"] {
        errors.invalid("spec.loadBalancerClass", class, "may not change once set");
    }
    if needs_health_check(new)
        && needs_health_check(old)
        && number(&new["healthCheckNodePort"]) != number(&old["healthCheckNodePort"])
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}
