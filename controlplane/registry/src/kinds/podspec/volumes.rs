//! Checks of volumes and of where containers mount them.
//!
//! Source: `ValidateVolumes`, `ValidateVolumeMounts` in `pkg/apis/core/validation/validation.go` at
//! v1.37.

mod claim_template;
mod projected;

use std::collections::{BTreeSet, HashMap, HashSet};

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::env::{FILE_FIELDS, field_ref, resource_field_ref};
use crate::{
    check,
    value::{items, string},
};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// `volumes` of a pod. Gives the names that mounts may use.
pub(super) fn volumes<'a>(
    errors: &mut FieldErrors,
    path: &str,
    volumes: &'a Value,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(volumes).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name_path = format!("{path}.name");
        let mut found = FieldErrors::new();
        sources(&mut found, &path, volume);
        if check::required(&mut found, &name_path, &volume["name"]) {
            check::dns_label(&mut found, &name_path, &volume["name"]);
        }
        if names.contains(string(&volume["name"])) {
            found.duplicate(&name_path, &volume["name"]);
        }
        if found.is_empty() {
            names.insert(string(&volume["name"]));
        }
        errors.extend(found);
    }
    names
}

/// Exactly one source.
fn sources(errors: &mut FieldErrors, path: &str, volume: &Value) {
    let mut count = 0;
    for (kind, source) in volume.as_object().into_iter().flatten() {
        if kind == "name" || source.is_null() {
            continue;
        }
        let path = format!("{path}.{kind}");
        if count > 0 {
            errors.forbidden(path, "may not specify more than 1 volume type");
            continue;
        }
        count += 1;
        source_of_kind(errors, &path, kind, source);
    }
    if count == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn source_of_kind(errors: &mut FieldErrors, path: &str, kind: &str, source: &Value) {
    let required = |errors: &mut FieldErrors, fields: &[&str]| {
        for field in fields {
            check::required(errors, &format!("{path}.{field}"), &source[*field]);
        }
    };
    match kind {
        "emptyDir" => {
            let limit = &source["sizeLimit"];
            let negative = string(limit).starts_with('-');
            if negative {
                errors.forbidden(
                    format!("{path}.sizeLimit"),
                    "SizeLimit field must be a valid resource quantity",
                );
            }
        }
        "hostPath" => host_path(errors, path, source),
        "secret" => {
            required(errors, &["secretName"]);
            files(errors, path, source);
        }
        "configMap" => {
            required(errors, &["name"]);
            files(errors, path, source);
        }
        "downwardAPI" => {
            file_mode(
                errors,
                &format!("{path}.defaultMode"),
                &source["defaultMode"],
            );
            downward_items(errors, path, source);
        }
        "projected" => projected::validate(errors, path, source),
        "persistentVolumeClaim" => required(errors, &["claimName"]),
        "nfs" => {
            required(errors, &["server", "path"]);
            if !string(&source["path"]).starts_with('/') {
                errors.invalid(
                    format!("{path}.path"),
                    &source["path"],
                    "must be an absolute path",
                );
            }
        }
        "csi" => csi(errors, path, source),
        "ephemeral" => claim_template::validate(errors, path, &source["volumeClaimTemplate"]),
        "image" => required(errors, &["reference"]),
        // The others are accepted as they are: no node here can mount them, and the node says so.
        _ => {}
    }
}

fn csi(errors: &mut FieldErrors, path: &str, source: &Value) {
    const MAX_LEN: usize = 63;
    let (driver, driver_path) = (&source["driver"], format!("{path}.driver"));
    if check::required(errors, &driver_path, driver) {
        if string(driver).len() > MAX_LEN {
            errors.too_long(&driver_path, driver, MAX_LEN);
        }
        let messages = name::dns_subdomain_errors(&string(driver).to_lowercase());
        check::invalid_all(errors, &driver_path, driver, messages);
    }
    let secret = &source["nodePublishSecretRef"];
    if secret.is_object() {
        let name = &secret["name"];
        if check::required(errors, &format!("{path}.nodePublishSecretRef.name"), name) {
            // Upstream's path, without the reference.
            check::dns_subdomain(errors, &format!("{path}.name"), name);
        }
    }
}

fn host_path(errors: &mut FieldErrors, path: &str, source: &Value) {
    let path_path = format!("{path}.path");
    if check::required(errors, &path_path, &source["path"]) {
        check::no_backsteps(errors, &path_path, &source["path"]);
        if !HOST_PATH_TYPES.contains(&string(&source["type"])) {
            errors.not_supported(format!("{path}.type"), &source["type"], HOST_PATH_TYPES);
        }
    }
}

fn file_mode(errors: &mut FieldErrors, path: &str, mode: &Value) {
    if mode
        .as_i64()
        .is_some_and(|mode| !(0..=0o777).contains(&mode))
    {
        errors.invalid(path, mode, FILE_MODE);
    }
}

/// `defaultMode` and `items` of configMap and secret volumes.
fn files(errors: &mut FieldErrors, path: &str, source: &Value) {
    file_mode(
        errors,
        &format!("{path}.defaultMode"),
        &source["defaultMode"],
    );
    keys_to_paths(errors, path, source);
}

fn keys_to_paths(errors: &mut FieldErrors, path: &str, source: &Value) {
    for (index, item) in items(&source["items"]).iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        check::required(errors, &format!("{path}.key"), &item["key"]);
        let file_path = format!("{path}.path");
        check::required(errors, &file_path, &item["path"]);
        local_file(errors, &file_path, &item["path"]);
        file_mode(errors, &format!("{path}.mode"), &item["mode"]);
    }
}

/// A relative path that cannot clash with the `..data` of atomic updates.
fn local_file(errors: &mut FieldErrors, path: &str, value: &Value) {
    check::descending_path(errors, path, value);
    let text = string(value);
    if text.starts_with("..") && !text.starts_with("../") && text != ".." {
        errors.invalid(path, value, "must not start with '..'");
    }
}

fn downward_items(errors: &mut FieldErrors, path: &str, source: &Value) {
    for (index, item) in items(&source["items"]).iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        let file_path = format!("{path}.path");
        check::required(errors, &file_path, &item["path"]);
        local_file(errors, &file_path, &item["path"]);
        if item["fieldRef"].is_object() {
            field_ref(
                errors,
                &format!("{path}.fieldRef"),
                &item["fieldRef"],
                FILE_FIELDS,
            );
            if item["resourceFieldRef"].is_object() {
                let message = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(&path, &"resource".into(), message);
            }
        } else if item["resourceFieldRef"].is_object() {
            resource_field_ref(
                errors,
                &format!("{path}.resourceFieldRef"),
                &item["resourceFieldRef"],
                true,
            );
        } else {
            errors.required(&path, "one of fieldRef and resourceFieldRef is required");
        }
        file_mode(errors, &format!("{path}.mode"), &item["mode"]);
    }
}

/// `volumeMounts` of a container.
pub(super) fn mounts(
    errors: &mut FieldErrors,
    path: &str,
    container: &Value,
    volumes: &BTreeSet<&str>,
) {
    let mut places = BTreeSet::new();
    let devices = items(&container["volumeDevices"]).iter();
    let (device_names, device_places): (HashSet<_>, HashSet<_>) = devices
        .map(|device| (&device["name"], &device["devicePath"]))
        .unzip();
    for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
        let index_path = format!("{path}[{index}]");
        let (name, place) = (&mount["name"], &mount["mountPath"]);
        let (name_path, place_path) = (
            format!("{index_path}.name"),
            format!("{index_path}.mountPath"),
        );
        check::required(errors, &name_path, name);
        if !volumes.contains(string(name)) {
            errors.not_found(&name_path, name);
        }
        check::required(errors, &place_path, place);
        if !places.insert(string(place)) {
            errors.invalid(&place_path, place, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(&name_path, name, "must not already exist in volumeDevices");
        }
        if device_places.contains(place) {
            errors.invalid(
                &place_path,
                place,
                "must not already exist as a path in volumeDevices",
            );
        }
        mount_options(errors, path, &index_path, mount, container);
    }
}

fn mount_options(
    errors: &mut FieldErrors,
    path: &str,
    index_path: &str,
    mount: &Value,
    container: &Value,
) {
    let sub_path = !string(&mount["subPath"]).is_empty();
    if sub_path {
        check::descending_path(errors, &format!("{path}.subPath"), &mount["subPath"]);
    }
    if !string(&mount["subPathExpr"]).is_empty() {
        if sub_path {
            let message = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(
                format!("{index_path}.subPathExpr"),
                &mount["subPathExpr"],
                message,
            );
        }
        check::descending_path(
            errors,
            &format!("{path}.subPathExpr"),
            &mount["subPathExpr"],
        );
    }
    let propagation = &mount["mountPropagation"];
    let propagation_path = format!("{path}.mountPropagation");
    check::optional_one_of(
        errors,
        &propagation_path,
        propagation,
        &["Bidirectional", "HostToContainer", "None"],
    );
    if propagation == "Bidirectional" && container["securityContext"]["privileged"] != true {
        errors.forbidden(
            propagation_path,
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
    if mount["recursiveReadOnly"].is_string() {
        let path = format!("{index_path}.recursiveReadOnly");
        check::optional_one_of(
            errors,
            &path,
            &mount["recursiveReadOnly"],
            &["Disabled", "Enabled", "IfPossible"],
        );
        if mount["recursiveReadOnly"] != "Disabled" && mount["readOnly"] != true {
            errors.forbidden(path, "may only be specified when readOnly is true");
        }
    }
}

/// `volumeDevices` of a container.
pub(super) fn devices(
    errors: &mut FieldErrors,
    path: &str,
    container: &Value,
    volumes: &HashMap<&Value, &Value>,
) {
    let mut places = BTreeSet::new();
    for (index, device) in items(&container["volumeDevices"]).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name_path = format!("{path}.name");
        check::required(errors, &name_path, &device["name"]);
        match volumes.get(&device["name"]) {
            None => errors.not_found(&name_path, &device["name"]),
            Some(volume) if !volume["persistentVolumeClaim"].is_object() && !volume["ephemeral"].is_object() => errors
                .invalid(
                    &name_path,
                    &device["name"],
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                ),
            Some(_) => {}
        }
        let place_path = format!("{path}.devicePath");
        check::required(errors, &place_path, &device["devicePath"]);
        check::no_backsteps(errors, &place_path, &device["devicePath"]);
        if !places.insert(string(&device["devicePath"])) {
            errors.invalid(&place_path, &device["devicePath"], "must be unique");
        }
    }
}
