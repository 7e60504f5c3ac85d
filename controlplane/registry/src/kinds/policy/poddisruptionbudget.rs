//! PodDisruptionBudget: how many of a set of pods may be evicted at once.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, integer, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value,
};

/// The strategy of PodDisruptionBudgets.
pub struct PodDisruptionBudget;

static INFO: ResourceInfo = ResourceInfo {
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[Subresource::Status],
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Min Available",
        "The minimum number of pods that must be available.",
    ),
    text(
        "Max Unavailable",
        "The maximum number of pods that may be unavailable.",
    ),
    integer(
        "Allowed Disruptions",
        "Calculated number of pods that may be disrupted at this time.",
    ),
    AGE,
];

impl BuiltIn for PodDisruptionBudget {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for PodDisruptionBudget {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::object(object, "status");
        for field in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            fill::value(&mut object["status"], field, 0);
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            errors.invalid(
                "spec",
                spec,
                "minAvailable and maxUnavailable cannot be both set",
            );
        }
        for field in ["minAvailable", "maxUnavailable"] {
            let path = format!("spec.{field}");
            if !spec[field].is_null() {
                check::count_or_percent(&mut errors, &path, &spec[field]);
                check::at_most_100_percent(&mut errors, &path, &spec[field]);
            }
        }
        check::label_selector(&mut errors, "spec.selector", &spec["selector"]);
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        let policy = &spec["unhealthyPodEvictionPolicy"];
        check::optional_one_of(
            &mut errors,
            "spec.unhealthyPodEvictionPolicy",
            policy,
            &policies,
        );
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let limit = |value: &Value| match value {
            Value::Null => "N/A".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![
            cells::name(object),
            limit(&object["spec"]["minAvailable"]).into(),
            limit(&object["spec"]["maxUnavailable"]).into(),
            value::number(&object["status"]["disruptionsAllowed"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn budgets_are_checked() {
        for (spec, expect) in [
            (json!({"minAvailable": 1}), ""),
            (
                json!({"minAvailable": "101%"}),
                "spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (
                json!({"maxUnavailable": -1}),
                "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0",
            ),
        ] {
            assert_eq!(
                create_errors(&PodDisruptionBudget, json!({"spec": spec})),
                expect
            );
        }
        let row = PodDisruptionBudget.row(&json!({"spec": {"minAvailable": "50%"}}), 0);
        assert_eq!((&row[1], &row[2]), (&json!("50%"), &json!("N/A")));
    }
}
