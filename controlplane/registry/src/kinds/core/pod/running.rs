//! `/ephemeralcontainers` and `/resize`: the parts of a pod's spec that may change while it runs.
//!
//! What is not the subresource's is taken from the stored pod, as upstream does, without a word,
//! whoever has changed it: the client, or admission.
//!
//! Source: `pkg/registry/core/pod/strategy.go`, `ValidatePodEphemeralContainersUpdate` and
//! `ValidatePodResize` in `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::{
    meta, qos, quantity::Quantity, scheduling::is_sidecar_json, status::FieldErrors,
};
use serde_json::{Value, json};

use crate::{part::Part, value::items};

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The stored pod with what a write of this part may change of it.
pub(crate) fn restrict(part: Part, new: &mut Value, old: &Value) {
    match part {
        Part::Resize => *new = resized(new, old),
        Part::EphemeralContainers => *new = debugged(new, old),
        Part::Main | Part::Status | Part::Internal => {}
    }
}

/// Whether it may change so.
pub(crate) fn check(part: Part, new: &Value, old: &Value) -> FieldErrors {
    match part {
        Part::Resize => check_resize(new, old),
        Part::EphemeralContainers => check_debug(new, old),
        Part::Main | Part::Status | Part::Internal => FieldErrors::default(),
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match value.filter(|value| !value.is_null()) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

// === ephemeral containers ===

/// The stored pod with the ephemeral containers of `wanted`.
fn debugged(wanted: &Value, old: &Value) -> Value {
    let mut new = old.clone();
    set_or_remove(
        &mut new["spec"],
        "ephemeralContainers",
        wanted["spec"].get("ephemeralContainers"),
    );
    new
}

/// They may be added. Those that are there stay as they are.
fn check_debug(new: &Value, old: &Value) -> FieldErrors {
    const PATH: &str = "spec.ephemeralContainers";
    let mut errors = FieldErrors::default();
    if meta::is_mirror(old) {
        errors.forbidden("", "static pods do not support ephemeral containers");
        return errors;
    }
    let after = items(&new["spec"]["ephemeralContainers"]);
    for before in items(&old["spec"]["ephemeralContainers"]) {
        let name = meta::get_str(before, &["name"]);
        match after
            .iter()
            .find(|container| container["name"] == before["name"])
        {
            None => errors.forbidden(
                PATH,
                format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(same) if !is_within(same, before) => {
                errors.forbidden(
                    PATH,
                    format!("existing ephemeral containers {name:?} may not be changed\n"),
                );
            }
            Some(_) => {}
        }
    }
    errors
}

/// Whether everything that is said is what is stored; defaults may be left out.
fn is_within(said: &Value, stored: &Value) -> bool {
    match (said, stored) {
        (Value::Object(said), Value::Object(stored)) => said.iter().all(|(key, value)| {
            stored
                .get(key)
                .is_some_and(|stored| is_within(value, stored))
        }),
        (said, stored) => said == stored,
    }
}

// === resize ===

/// The stored pod with the resources of `wanted`.
fn resized(wanted: &Value, old: &Value) -> Value {
    let mut new = old.clone();
    for list in LISTS {
        let source = items(&wanted["spec"][list]);
        // Not by an index: that would leave a null where there is no such list.
        let own = new["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in own.into_iter().flatten() {
            let Some(same) = source.iter().find(|one| one["name"] == container["name"]) else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                set_or_remove(container, field, same.get(field));
            }
        }
    }
    new
}

fn check_resize(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    // The node has these from its own files, which nothing here changes.
    if meta::is_mirror(old) {
        errors.forbidden("", "static pods cannot be resized");
        return errors;
    }
    if old["spec"]["os"]["name"] == "windows" {
        errors.forbidden("", "windows pods cannot be resized");
        return errors;
    }
    let (before, after) = (
        qos::class_of_json(&old["spec"]),
        qos::class_of_json(&new["spec"]),
    );
    if before != after {
        let message = "Pod QOS Class may not change as a result of resizing";
        errors.invalid("metadata", &json!(after.as_str()), message);
    }
    for list in LISTS {
        for (index, container) in items(&new["spec"][list]).iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            let Some(present) = items(&old["spec"][list]).get(index) else {
                continue;
            };
            if list == "initContainers"
                && !is_sidecar_json(container)
                && container["resources"] != present["resources"]
            {
                errors.forbidden(
                    format!("{path}.resources"),
                    "resources for non-sidecar init containers are immutable",
                );
            }
            amounts(
                &mut errors,
                &path,
                &container["resources"],
                &present["resources"],
            );
        }
    }
    errors
}

/// cpu and memory may change, but not go.
fn amounts(errors: &mut FieldErrors, path: &str, new: &Value, old: &Value) {
    for list in ["limits", "requests"] {
        for name in ["cpu", "memory"] {
            if !old[list][name].is_null() && new[list][name].is_null() {
                let message = format!("resource {list} cannot be removed");
                errors.forbidden(format!("{path}.resources.{list}"), message);
            }
        }
        let others = |resources: &Value| -> Vec<(String, Option<Quantity>)> {
            let all = resources[list].as_object().into_iter().flatten();
            all.filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
                .map(|(name, amount)| {
                    (
                        name.clone(),
                        amount.as_str().and_then(|text| Quantity::parse(text).ok()),
                    )
                })
                .collect()
        };
        if others(new) != others(old) {
            errors.forbidden(
                format!("{path}.resources.{list}"),
                "only cpu and memory resources are mutable",
            );
        }
    }
}
