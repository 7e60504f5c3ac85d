//! What the kinds of the group have in common: requests for devices, selectors, configuration.
//!
//! Source: `pkg/apis/resource/{v1/defaults.go,validation}` at v1.37.

use std::collections::BTreeSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    check, fill,
    value::{items, number, string},
};

const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIGS: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_DRIVER: usize = 63;

/// Fills in the requests of a claim's spec.
pub(super) fn default(spec: &mut Value) {
    fill::object(spec, "devices");
    fill::each(&mut spec["devices"], "requests", |request| {
        fill::within(request, "exactly", amount);
        fill::each(request, "firstAvailable", amount);
    });
}

fn amount(request: &mut Value) {
    fill::text(request, "allocationMode", "ExactCount");
    if request["allocationMode"] == "ExactCount" {
        fill::number(request, "count", 1);
    }
    fill::each(request, "tolerations", |toleration| {
        fill::text(toleration, "operator", "Equal")
    });
}

/// Checks the spec of a claim.
pub(super) fn claim(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let path = format!("{path}.devices");
    let devices = &spec["devices"];
    let requests = items(&devices["requests"]);
    if requests.len() > MAX_REQUESTS {
        errors.too_many(format!("{path}.requests"), requests.len(), MAX_REQUESTS);
    }
    let mut names = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = format!("{path}.requests[{index}]");
        if check::required(errors, &format!("{path}.name"), &request["name"]) {
            check::dns_label(errors, &format!("{path}.name"), &request["name"]);
        }
        if !names.insert(string(&request["name"])) {
            errors.duplicate(&path, &request["name"]);
        }
        check_request(errors, &path, request);
    }
    let constraints = items(&devices["constraints"]);
    if constraints.len() > MAX_CONSTRAINTS {
        errors.too_many(
            format!("{path}.constraints"),
            constraints.len(),
            MAX_CONSTRAINTS,
        );
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let path = format!("{path}.constraints[{index}]");
        request_names(
            errors,
            &format!("{path}.requests"),
            &constraint["requests"],
            &names,
        );
        if constraint["matchAttribute"].is_null() && constraint["distinctAttribute"].is_null() {
            errors.required(format!("{path}.matchAttribute"), "");
        }
    }
    let configs = &devices["config"];
    for (index, config) in items(configs).iter().enumerate() {
        request_names(
            errors,
            &format!("{path}.config[{index}].requests"),
            &config["requests"],
            &names,
        );
    }
    configuration(errors, &format!("{path}.config"), configs);
}

fn request_names(errors: &mut FieldErrors, path: &str, list: &Value, known: &BTreeSet<&str>) {
    for (index, name) in items(list).iter().enumerate() {
        let request = string(name).split('/').next().unwrap_or_default();
        if !known.contains(request) {
            let message = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.invalid(format!("{path}[{index}]"), name, message);
        }
    }
}

fn check_request(errors: &mut FieldErrors, path: &str, request: &Value) {
    let (exactly, choices) = (&request["exactly"], items(&request["firstAvailable"]));
    match (exactly.is_object(), !choices.is_empty()) {
        (false, false) => errors.required(
            path,
            "exactly one of `exactly` or `firstAvailable` is required",
        ),
        (true, true) => {
            errors.invalid(
                path,
                request,
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
            );
        }
        (true, false) => one(errors, &format!("{path}.exactly"), exactly),
        (false, true) => {
            for (index, choice) in choices.iter().enumerate() {
                let path = format!("{path}.firstAvailable[{index}]");
                if check::required(errors, &format!("{path}.name"), &choice["name"]) {
                    check::dns_label(errors, &format!("{path}.name"), &choice["name"]);
                }
                one(errors, &path, choice);
            }
        }
    }
}

fn one(errors: &mut FieldErrors, path: &str, request: &Value) {
    if check::required(
        errors,
        &format!("{path}.deviceClassName"),
        &request["deviceClassName"],
    ) {
        check::dns_subdomain(
            errors,
            &format!("{path}.deviceClassName"),
            &request["deviceClassName"],
        );
    }
    selectors(errors, &format!("{path}.selectors"), &request["selectors"]);
    match string(&request["allocationMode"]) {
        "All" if number(&request["count"]) != 0 => {
            let message = "must not be specified when allocationMode is 'All'";
            errors.invalid(format!("{path}.count"), &request["count"], message);
        }
        "ExactCount" if number(&request["count"]) <= 0 => {
            errors.invalid(
                format!("{path}.count"),
                &request["count"],
                "must be greater than zero",
            );
        }
        "All" | "ExactCount" => {}
        _ => {
            let path = format!("{path}.allocationMode");
            errors.not_supported(path, &request["allocationMode"], &["All", "ExactCount"]);
        }
    }
}

/// Selectors: one expression each.
pub(super) fn selectors(errors: &mut FieldErrors, path: &str, selectors: &Value) {
    let list = items(selectors);
    if list.len() > MAX_SELECTORS {
        errors.too_many(path, list.len(), MAX_SELECTORS);
    }
    for (index, selector) in list.iter().enumerate() {
        let path = format!("{path}[{index}].cel");
        if selector["cel"].is_null() {
            errors.required(path, "");
        } else {
            check::required(
                errors,
                &format!("{path}.expression"),
                &selector["cel"]["expression"],
            );
        }
    }
}

/// Configuration for drivers.
pub(super) fn configuration(errors: &mut FieldErrors, path: &str, configs: &Value) {
    let list = items(configs);
    if list.len() > MAX_CONFIGS {
        errors.too_many(path, list.len(), MAX_CONFIGS);
    }
    for (index, config) in list.iter().enumerate() {
        let path = format!("{path}[{index}].opaque");
        let opaque = &config["opaque"];
        if opaque.is_null() {
            errors.required(path, "");
            continue;
        }
        driver(errors, &format!("{path}.driver"), &opaque["driver"]);
        if opaque["parameters"].is_null() {
            errors.required(format!("{path}.parameters"), "");
        }
    }
}

/// The name of a driver.
pub(super) fn driver(errors: &mut FieldErrors, path: &str, name: &Value) {
    if !check::required(errors, path, name) {
        return;
    }
    if string(name).len() > MAX_DRIVER {
        errors.too_long(path, name, MAX_DRIVER);
    }
    check::dns_subdomain(errors, path, name);
}

/// The taint that a device has or is given.
pub(super) fn taint(errors: &mut FieldErrors, path: &str, taint: &Value) {
    if check::required(errors, &format!("{path}.key"), &taint["key"]) {
        check::qualified_name(errors, &format!("{path}.key"), &taint["key"]);
    }
    let value = &taint["value"];
    check::invalid_all(
        errors,
        &format!("{path}.value"),
        value,
        coracle_api::name::label_value_errors(string(value)),
    );
    let effects = ["NoExecute", "NoSchedule", "None"];
    check::one_of(
        errors,
        &format!("{path}.effect"),
        &taint["effect"],
        &effects,
    );
}
