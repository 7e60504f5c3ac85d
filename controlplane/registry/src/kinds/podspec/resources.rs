//! Checks of requests and limits of a container, and of what running a pod costs besides.
//!
//! Source: `ValidateContainerResourceRequirements` and `validateOverhead` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::{
    name,
    quantity::Quantity,
    scheduling::{is_extended, is_native},
    status::FieldErrors,
};
use serde_json::{Value, json};

use crate::{
    check::{self, NOT_NEGATIVE},
    value::string,
};

/// Checks the name of a resource, at a path.
type NameCheck = fn(&mut FieldErrors, &str, &str);

/// `resources` of a container.
pub(super) fn container(errors: &mut FieldErrors, path: &str, resources: &Value) {
    requirements(errors, path, resources, container_resource_name);
}

/// `overhead` of a pod. Upstream's paths: it is looked at as if it were limits.
pub(super) fn overhead(errors: &mut FieldErrors, path: &str, overhead: &Value) {
    if overhead.is_object() {
        container(errors, path, &json!({"limits": overhead}));
    }
}

/// Requests and limits of what may have the resources that `check_name` lets through.
pub(super) fn requirements(
    errors: &mut FieldErrors,
    path: &str,
    resources: &Value,
    check_name: NameCheck,
) {
    for list in ["limits", "requests"] {
        for (resource, amount) in resources[list].as_object().into_iter().flatten() {
            let path = format!("{path}.{list}[{resource}]");
            check_name(errors, &path, resource);
            if let Some(quantity) = quantity(errors, &path, amount) {
                quantity_value(errors, &path, resource, amount, &quantity);
            }
        }
    }
    requests_within_limits(errors, path, resources);
    huge_pages_need_company(errors, path, resources);
}

/// Parses an amount; a malformed one is an error.
pub(crate) fn quantity(errors: &mut FieldErrors, path: &str, amount: &Value) -> Option<Quantity> {
    let text = match amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    match Quantity::parse(&text) {
        Ok(quantity) => Some(quantity),
        Err(error) => {
            errors.invalid(path, amount, error.to_string());
            None
        }
    }
}

/// Neither negative nor, where only whole things can be counted, a fraction.
pub(crate) fn quantity_value(
    errors: &mut FieldErrors,
    path: &str,
    resource: &str,
    amount: &Value,
    quantity: &Quantity,
) {
    if quantity.is_negative() {
        errors.invalid(path, amount, NOT_NEGATIVE);
    }
    if is_counted(resource) && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, amount, "must be an integer");
    }
}

fn is_counted(resource: &str) -> bool {
    matches!(
        resource,
        "pods"
            | "services"
            | "secrets"
            | "configmaps"
            | "replicationcontrollers"
            | "resourcequotas"
    ) || is_extended(resource)
}

fn container_resource_name(errors: &mut FieldErrors, path: &str, resource: &str) {
    let value = Value::from(resource);
    check::invalid_all(errors, path, &value, name::qualified_name_errors(resource));
    if !resource.contains('/') {
        let standard = matches!(resource, "cpu" | "memory" | "ephemeral-storage")
            || resource.starts_with("hugepages-");
        if !standard {
            errors.invalid(path, &value, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid(
            path,
            &value,
            "doesn't follow extended resource name standard",
        );
    }
}

/// Whether more of it may be promised than there is.
fn may_overcommit(resource: &str) -> bool {
    is_native(resource) && !resource.starts_with("hugepages-")
}

fn requests_within_limits(errors: &mut FieldErrors, path: &str, resources: &Value) {
    let parse = |amount: &Value| Quantity::parse(string(amount)).ok();
    for (resource, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource.as_str()];
        if limit.is_null() {
            if !may_overcommit(resource) {
                errors.required(
                    format!("{path}.limits"),
                    "Limit must be set for non overcommitable resources",
                );
            }
            continue;
        }
        let (Some(asked), Some(most)) = (parse(request), parse(limit)) else {
            continue;
        };
        if !may_overcommit(resource) && asked != most {
            let message = format!("must be equal to {resource} limit of {}", string(limit));
            errors.invalid(format!("{path}.requests"), request, message);
        } else if asked > most {
            let message = format!(
                "must be less than or equal to {resource} limit of {}",
                string(limit)
            );
            errors.invalid(format!("{path}.requests"), request, message);
        }
    }
}

fn huge_pages_need_company(errors: &mut FieldErrors, path: &str, resources: &Value) {
    let any = |wanted: &dyn Fn(&str) -> bool| {
        ["limits", "requests"].iter().any(|list| {
            resources[*list]
                .as_object()
                .is_some_and(|map| map.keys().any(|key| wanted(key)))
        })
    };
    if any(&|name| name.starts_with("hugepages-")) && !any(&|name| matches!(name, "cpu" | "memory"))
    {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}
