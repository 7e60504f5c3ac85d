//! Checks of what a pod asks for as a whole, also against what its containers ask for.
//!
//! Source: `validatePodResources` and `validatePodResourceConsistency` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::{
    name,
    quantity::Quantity,
    resource_list::{Amounts, amounts_of_json},
    scheduling::{pod_limits_of_json, pod_requests_of_json},
    status::FieldErrors,
};
use serde_json::{Value, json};

use super::resources;
use crate::{check, value::items};

/// Huge pages by any size.
const HUGE_PAGES: &str = "hugepages-";
/// In the order in which upstream names them.
const SUPPORTED: [&str; 3] = ["cpu", HUGE_PAGES, "memory"];

/// `resources` of the pod with this `spec`.
pub(super) fn validate(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let resources = &spec["resources"];
    if !resources.is_object() {
        return;
    }
    let path = format!("{path}.resources");
    if spec["os"]["name"] == "windows" {
        errors.forbidden(path, "may not be set for a windows pod");
        return;
    }
    if !resources["claims"].is_null() {
        let message = "claims may not be set for Resources at pod-level";
        errors.forbidden(format!("{path}.claims"), message);
    }
    resources::requirements(errors, &path, resources, resource_name);
    consistent(errors, &path, spec);
}

fn resource_name(errors: &mut FieldErrors, path: &str, resource: &str) {
    let value = Value::from(resource);
    let messages = name::qualified_name_errors(resource);
    if !messages.is_empty() {
        check::invalid_all(errors, path, &value, messages);
    } else if !matches!(resource, "cpu" | "memory") && !resource.starts_with(HUGE_PAGES) {
        errors.not_supported(path, &value, &SUPPORTED);
    }
}

/// The pod asks for what its containers ask for together, and none of them may have more than it.
fn consistent(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let [requests, limits] =
        ["requests", "limits"].map(|list| amounts_of_json(&spec["resources"][list]));
    let containers =
        json!({"initContainers": spec["initContainers"], "containers": spec["containers"]});
    let asked = pod_requests_of_json(&containers);
    for (resource, whole, sum) in exceeded(&requests, &asked) {
        let message =
            format!("must be greater than or equal to aggregate container requests of {sum}");
        let path = format!("{path}.requests[{resource}]");
        errors.invalid(path, &whole.to_string().into(), message);
    }
    let mut most = pod_limits_of_json(&containers);
    // Nothing else is promised as a sum: containers need not reach their limits at one time.
    most.retain(|resource, _| resource.starts_with(HUGE_PAGES));
    for (resource, whole, sum) in exceeded(&limits, &most) {
        let message =
            format!("must be greater than or equal to aggregate container limits of {sum}");
        let path = format!("{path}.limits[{resource}]");
        errors.invalid(path, &whole.to_string().into(), message);
    }
    for (index, container) in items(&spec["containers"]).iter().enumerate() {
        let own = amounts_of_json(&container["resources"]["limits"]);
        for (resource, whole, one) in exceeded(&limits, &own) {
            let message = format!("must be less than or equal to pod limits of {whole}");
            let path = format!("{path}.containers[{index}][{resource}].limits");
            errors.invalid(path, &one.to_string().into(), message);
        }
    }
}

/// Where `parts` has more than `whole`, of what `whole` names: the resource, and both amounts.
fn exceeded<'a>(
    whole: &'a Amounts,
    parts: &'a Amounts,
) -> impl Iterator<Item = (&'a str, Quantity, Quantity)> {
    parts.iter().filter_map(|(resource, part)| {
        let whole = whole.get(resource)?;
        (part > whole).then_some((resource.as_str(), *whole, *part))
    })
}
