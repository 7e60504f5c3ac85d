//! What an update of a pod may change: nearly nothing.
//!
//! Source: `ValidatePodUpdate` in `pkg/apis/core/validation/validation.go` at v1.37. The difference
//! that is reported is a list of changed fields, where upstream prints Go structures.

mod gated;

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::value::{items, string};

const MAY_CHANGE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn validate(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let (new, old) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        if items(&new[list]).len() != items(&old[list]).len() {
            errors.forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            );
            return;
        }
    }
    if !active_deadline(errors, new, old) {
        return;
    }
    tolerations(errors, new, old);
    scheduling_gates(errors, new, old);
    rest(errors, new, old);
}

/// It may be set, and made shorter. Says whether to go on.
fn active_deadline(errors: &mut FieldErrors, new: &Value, old: &Value) -> bool {
    let (new, old) = (&new["activeDeadlineSeconds"], &old["activeDeadlineSeconds"]);
    let path = "spec.activeDeadlineSeconds";
    match (new.as_i64(), old.as_i64()) {
        (Some(after), _) if !(0..=i64::from(i32::MAX)).contains(&after) => {
            errors.invalid(path, new, "must be between 0 and 2147483647, inclusive");
            return false;
        }
        (Some(after), Some(before)) if after > before => {
            errors.invalid(path, new, "must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => errors.invalid(
            path,
            new,
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
    true
}

/// New ones may come; those that are there stay, but for their seconds.
fn tolerations(errors: &mut FieldErrors, new: &Value, old: &Value) {
    fn but_seconds(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|field| string(&toleration[field]))
    }
    let kept: HashSet<_> = items(&new["tolerations"]).iter().map(but_seconds).collect();
    if !items(&old["tolerations"])
        .iter()
        .all(|before| kept.contains(&but_seconds(before)))
    {
        let message = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", message);
    }
}

/// They may only go.
fn scheduling_gates(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let old: HashSet<_> = items(&old["schedulingGates"]).iter().collect();
    for (index, gate) in items(&new["schedulingGates"]).iter().enumerate() {
        if !old.contains(gate) {
            let message = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                string(&gate["name"])
            );
            errors.forbidden(format!("spec.schedulingGates[{index}]"), message);
        }
    }
}

/// Everything else must be as it was.
fn rest(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if new == old {
        return;
    }
    let mut masked = new.clone();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        copy(&mut masked, old, field);
    }
    if !items(&old["schedulingGates"]).is_empty() {
        gated::narrowing(errors, &mut masked, old);
    }
    if old["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|grace| grace < 0)
        && new["terminationGracePeriodSeconds"] == 1
    {
        copy(&mut masked, old, "terminationGracePeriodSeconds");
    }
    for list in ["containers", "initContainers"] {
        let before = items(&old[list]);
        if let Some(containers) = masked.get_mut(list).and_then(Value::as_array_mut) {
            for (container, before) in containers.iter_mut().zip(before) {
                copy(container, before, "image");
            }
        }
    }
    if masked != *old {
        let mut changes = String::new();
        differences(&mut changes, "spec", old, &masked);
        errors.forbidden(
            "spec",
            format!("pod updates may not change fields other than {MAY_CHANGE}\n{changes}"),
        );
    }
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    let Some(map) = to.as_object_mut() else {
        return;
    };
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// One line a change: `- spec.hostname: "a"`, `+ spec.hostname: "b"`.
fn differences(out: &mut String, path: &str, old: &Value, new: &Value) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                differences(
                    out,
                    &format!("{path}.{key}"),
                    &old[key.as_str()],
                    &new[key.as_str()],
                );
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                let at = |list: &[Value]| list.get(index).cloned().unwrap_or_default();
                differences(out, &format!("{path}[{index}]"), &at(before), &at(after));
            }
        }
        _ => {
            for (sign, value) in [('-', old), ('+', new)] {
                if !value.is_null() {
                    out.push_str(&format!("{sign} {path}: {value}\n"));
                }
            }
        }
    }
}
