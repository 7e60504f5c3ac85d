//! PriorityClass: a name for how much a pod matters.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, flag, integer, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value,
};

/// The strategy of PriorityClasses.
pub struct PriorityClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Value",
        "value represents the integer value of this priority class.",
    ),
    flag(
        "Global-Default",
        "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class.",
    ),
    AGE,
    text(
        "PreemptionPolicy",
        "preemptionPolicy is the Policy for preempting pods with lower priority.",
    ),
];

/// More is for the system's own classes.
const MAX_USER_VALUE: i64 = 1_000_000_000;
const SYSTEM: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

impl BuiltIn for PriorityClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value) {
        fill::value(object, "value", 0);
        fill::text(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (name, value) = (
            value::string(&object["metadata"]["name"]),
            value::number(&object["value"]),
        );
        if name.starts_with("system-") {
            if !SYSTEM.contains(&(name, value)) {
                let message =
                    "priority class names with 'system-' prefix are reserved for system use only";
                errors.forbidden("metadata.name", message);
            }
        } else if value > MAX_USER_VALUE {
            let message =
                format!("maximum allowed value of a user defined priority is {MAX_USER_VALUE}");
            errors.forbidden("value", message);
        }
        let policies = ["Never", "PreemptLowerPriority"];
        check::optional_one_of(
            &mut errors,
            "preemptionPolicy",
            &object["preemptionPolicy"],
            &policies,
        );
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for field in ["value", "preemptionPolicy"] {
            if new[field] != old[field] {
                errors.invalid(field, &new[field], "field is immutable");
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::number(&object["value"]).into(),
            (object["globalDefault"] == true).into(),
            cells::age(object, now_secs),
            value::string(&object["preemptionPolicy"]).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn classes_are_checked() {
        for (name, value, expect) in [
            ("high", 1000, ""),
            ("system-node-critical", 2_000_001_000, ""),
            (
                "system-x",
                1,
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only",
            ),
            (
                "high",
                2_000_000_000,
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
            ),
        ] {
            assert_eq!(
                create_errors(
                    &PriorityClass,
                    json!({"metadata": {"name": name}, "value": value})
                ),
                expect
            );
        }
    }
}
