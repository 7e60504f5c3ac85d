//! Checks of environment variables and what they refer to.
//!
//! Source: `ValidateEnv` and what it calls in `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{items, string},
};

/// Pod fields that a variable may show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Pod fields that a file of a downwardAPI volume may show.
pub(super) const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// `env` of a container.
pub(super) fn env(errors: &mut FieldErrors, path: &str, variables: &Value) {
    for (index, variable) in items(variables).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name_path = format!("{path}.name");
        if check::required(errors, &name_path, &variable["name"]) {
            let messages = name::env_var_name_errors(string(&variable["name"]));
            check::invalid_all(errors, &name_path, &variable["name"], messages);
        }
        if variable["valueFrom"].is_object() {
            value_from(errors, &format!("{path}.valueFrom"), variable);
        }
    }
}

/// `envFrom` of a container.
pub(super) fn env_from(errors: &mut FieldErrors, path: &str, sources: &Value) {
    for (index, source) in items(sources).iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !string(&source["prefix"]).is_empty() {
            let messages = name::env_var_name_errors(string(&source["prefix"]));
            check::invalid_all(
                errors,
                &format!("{path}.prefix"),
                &source["prefix"],
                messages,
            );
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            if source[kind].is_object() {
                count += 1;
                check::required(
                    errors,
                    &format!("{path}.{kind}.name"),
                    &source[kind]["name"],
                );
            }
        }
        match count {
            0 => errors.invalid(
                path,
                &"".into(),
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                path,
                &"".into(),
                "may not have more than one field specified at a time",
            ),
        }
    }
}

fn value_from(errors: &mut FieldErrors, path: &str, variable: &Value) {
    let from = &variable["valueFrom"];
    let mut count = 0;
    if from["fieldRef"].is_object() {
        count += 1;
        field_ref(
            errors,
            &format!("{path}.fieldRef"),
            &from["fieldRef"],
            ENV_FIELDS,
        );
    }
    if from["resourceFieldRef"].is_object() {
        count += 1;
        resource_field_ref(
            errors,
            &format!("{path}.resourceFieldRef"),
            &from["resourceFieldRef"],
            false,
        );
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if from[kind].is_object() {
            count += 1;
            key_ref(errors, &format!("{path}.{kind}"), &from[kind]);
        }
    }
    if from["fileKeyRef"].is_object() {
        count += 1;
        for field in ["volumeName", "path", "key"] {
            check::required(
                errors,
                &format!("{path}.fileKeyRef.{field}"),
                &from["fileKeyRef"][field],
            );
        }
    }
    // Upstream's words, which do not know of `fileKeyRef`.
    if count == 0 {
        errors.invalid(
            path,
            &"".into(),
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        );
    } else if !string(&variable["value"]).is_empty() {
        errors.invalid(
            path,
            &"".into(),
            "may not be specified when `value` is not empty",
        );
    } else if count > 1 {
        errors.invalid(
            path,
            &"".into(),
            "may not have more than one field specified at a time",
        );
    }
}

fn key_ref(errors: &mut FieldErrors, path: &str, selector: &Value) {
    check::required(errors, &format!("{path}.name"), &selector["name"]);
    let key_path = format!("{path}.key");
    if check::required(errors, &key_path, &selector["key"]) {
        check::invalid_all(
            errors,
            &key_path,
            &selector["key"],
            name::config_map_key_errors(string(&selector["key"])),
        );
    }
}

/// A reference to a field of the pod itself.
pub(super) fn field_ref(errors: &mut FieldErrors, path: &str, selector: &Value, fields: &[&str]) {
    if !check::required(
        errors,
        &format!("{path}.apiVersion"),
        &selector["apiVersion"],
    ) || !check::required(errors, &format!("{path}.fieldPath"), &selector["fieldPath"])
    {
        return;
    }
    let field_path = format!("{path}.fieldPath");
    let value = &selector["fieldPath"];
    let field = string(value);
    if string(&selector["apiVersion"]) != "v1" {
        let message = format!(
            "unsupported pod version: {}",
            string(&selector["apiVersion"])
        );
        errors.invalid(
            field_path,
            value,
            format!("error converting fieldPath: {message}"),
        );
        return;
    }
    if let Some((map, key)) = field
        .strip_suffix("']")
        .and_then(|field| field.split_once("['"))
    {
        match map {
            "metadata.annotations" => {
                // As upstream: in annotations' names case does not matter.
                let messages = name::qualified_name_errors(&key.to_lowercase());
                check::invalid_all(errors, path, &key.into(), messages);
            }
            "metadata.labels" => check::qualified_name(errors, path, &key.into()),
            _ => errors.invalid(path, &map.into(), "does not support subscript"),
        }
        return;
    }
    if !ENV_FIELDS.contains(&field) && !FILE_FIELDS.contains(&field) {
        errors.invalid(
            field_path,
            value,
            format!("error converting fieldPath: field label not supported: {field}"),
        );
    } else if !fields.contains(&field) {
        errors.not_supported(field_path, value, fields);
    }
}

/// A reference to a request or limit of a container.
pub(super) fn resource_field_ref(
    errors: &mut FieldErrors,
    path: &str,
    selector: &Value,
    needs_container: bool,
) {
    if needs_container && string(&selector["containerName"]).is_empty() {
        errors.required(format!("{path}.containerName"), "");
        return;
    }
    let resource_path = format!("{path}.resource");
    if !check::required(errors, &resource_path, &selector["resource"]) {
        return;
    }
    let resource = string(&selector["resource"]);
    let huge =
        resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !huge && !RESOURCES.contains(&resource) {
        errors.not_supported(resource_path, &selector["resource"], RESOURCES);
    }
}
