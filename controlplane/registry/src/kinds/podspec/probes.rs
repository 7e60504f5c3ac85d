//! Checks of probes and lifecycle hooks.
//!
//! Source: `validateProbe`, `validateHandler`, `validateLifecycle` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{items, string},
};

/// The probes and hooks of a container. `grace_secs` is the pod's.
pub(super) fn all(errors: &mut FieldErrors, path: &str, container: &Value, grace_secs: i64) {
    if container["lifecycle"].is_object() {
        for hook in ["postStart", "preStop"] {
            let value = &container["lifecycle"][hook];
            if value.is_object() {
                handler(
                    errors,
                    &format!("{path}.lifecycle.{hook}"),
                    value,
                    grace_secs,
                );
            }
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let value = &container[kind];
        if value.is_object() {
            probe(errors, &format!("{path}.{kind}"), value, kind, grace_secs);
        }
    }
}

fn probe(errors: &mut FieldErrors, path: &str, probe: &Value, kind: &str, grace_secs: i64) {
    handler(errors, path, probe, grace_secs);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        check::not_negative(errors, &format!("{path}.{field}"), &probe[field]);
    }
    let grace = &probe["terminationGracePeriodSeconds"];
    let grace_path = format!("{path}.terminationGracePeriodSeconds");
    if grace.as_i64().is_some_and(|grace| grace <= 0) {
        errors.invalid(&grace_path, grace, "must be greater than 0");
    }
    if kind == "readinessProbe" {
        if !grace.is_null() {
            errors.invalid(grace_path, grace, "must not be set for readinessProbes");
        }
    } else if probe["successThreshold"] != 1 {
        errors.invalid(
            format!("{path}.successThreshold"),
            &probe["successThreshold"],
            "must be 1",
        );
    }
}

/// Exactly one way to act: of a probe or of a hook.
fn handler(errors: &mut FieldErrors, path: &str, handler: &Value, grace_secs: i64) {
    let mut count = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[kind];
        if !action.is_object() {
            continue;
        }
        let path = format!("{path}.{kind}");
        if count > 0 {
            errors.forbidden(path, "may not specify more than 1 handler type");
            continue;
        }
        count += 1;
        match kind {
            "exec" if items(&action["command"]).is_empty() => {
                errors.required(format!("{path}.command"), "")
            }
            "httpGet" => http_get(errors, &path, action),
            "tcpSocket" => {
                check::port_number_or_name(errors, &format!("{path}.port"), &action["port"])
            }
            "grpc" => check::port_number_or_name(errors, &format!("{path}.port"), &action["port"]),
            "sleep" => sleep(errors, &path, action, grace_secs),
            _ => {}
        }
    }
    if count == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(errors: &mut FieldErrors, path: &str, action: &Value) {
    check::required(errors, &format!("{path}.path"), &action["path"]);
    check::port_number_or_name(errors, &format!("{path}.port"), &action["port"]);
    if !["HTTP", "HTTPS"].contains(&string(&action["scheme"])) {
        errors.not_supported(
            format!("{path}.scheme"),
            &action["scheme"],
            &["HTTP", "HTTPS"],
        );
    }
    for header in items(&action["httpHeaders"]) {
        let messages = name::http_header_name_errors(string(&header["name"]));
        check::invalid_all(
            errors,
            &format!("{path}.httpHeaders"),
            &header["name"],
            messages,
        );
    }
}

fn sleep(errors: &mut FieldErrors, path: &str, action: &Value, grace_secs: i64) {
    let seconds = action["seconds"].as_i64().unwrap_or(0);
    if seconds < 0 || seconds > grace_secs {
        let message = format!(
            "must be non-negative and less than terminationGracePeriodSeconds ({grace_secs})"
        );
        errors.invalid(path, &seconds.into(), message);
    }
}
