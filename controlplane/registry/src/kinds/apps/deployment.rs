//! Deployment: pods of one template, replaced step by step when the template changes.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, text, wide},
    check, fill,
    kinds::{podspec, workload},
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{number, string},
};

/// The strategy of Deployments.
pub struct Deployment;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Ready", "Number of the pod with ready state"),
    text(
        "Up-to-date",
        "Total number of non-terminated pods targeted by this deployment that have the desired template spec.",
    ),
    text(
        "Available",
        "Total number of available pods (ready for at least minReadySeconds) targeted by this deployment.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment.",
    ),
];

impl BuiltIn for Deployment {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for Deployment {
    fn status_keeps(&self) -> &'static [&'static str] {
        &["labels"]
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::value(spec, "replicas", 1);
        let steps = [("maxUnavailable", "25%"), ("maxSurge", "25%")];
        workload::default_rolling_update(spec, "strategy", &steps);
        fill::value(spec, "revisionHistoryLimit", 10);
        fill::value(spec, "progressDeadlineSeconds", 600);
        workload::default_template(spec);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        // Annotations are copied to the ReplicaSets, so a change of them is work to do as well.
        new["spec"] != old["spec"]
            || new["metadata"]["annotations"] != old["metadata"]["annotations"]
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::not_negative(&mut errors, "spec.replicas", &spec["replicas"]);
        super::selector_and_template(&mut errors, spec);
        strategy(&mut errors, "spec.strategy", &spec["strategy"]);
        for field in [
            "minReadySeconds",
            "revisionHistoryLimit",
            "progressDeadlineSeconds",
        ] {
            check::not_negative(&mut errors, &format!("spec.{field}"), &spec[field]);
        }
        let deadline = &spec["progressDeadlineSeconds"];
        if deadline.is_i64() && number(deadline) <= number(&spec["minReadySeconds"]) {
            errors.invalid(
                "spec.progressDeadlineSeconds",
                deadline,
                "must be greater than minReadySeconds",
            );
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.selector", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let counts = [
            "observedGeneration",
            "collisionCount",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ];
        let at_most = [
            ("updatedReplicas", "replicas"),
            ("readyReplicas", "replicas"),
            ("availableReplicas", "replicas"),
            ("availableReplicas", "readyReplicas"),
        ];
        workload::counts(&mut errors, &new["status"], &counts, &at_most);
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        workload::pods_name_warnings(object)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        podspec::warnings::template("spec.template", &object["spec"]["template"])
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [containers, images] = cells::containers_and_images(&spec["template"]);
        vec![
            cells::name(object),
            workload::ready_cell(object),
            number(&status["updatedReplicas"]).into(),
            number(&status["availableReplicas"]).into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&spec["selector"]).into(),
        ]
    }
}

fn strategy(errors: &mut FieldErrors, path: &str, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    let rolling_path = format!("{path}.rollingUpdate");
    match string(&strategy["type"]) {
        "Recreate" if rolling.is_object() => {
            errors.forbidden(
                rolling_path,
                "may not be specified when strategy `type` is 'Recreate'",
            );
        }
        "Recreate" => {}
        "RollingUpdate" if rolling.is_object() => rolling_update(errors, &rolling_path, rolling),
        "RollingUpdate" => {
            errors.required(rolling_path, "this should be defaulted and never be nil")
        }
        _ => errors.not_supported(path, strategy, &["Recreate", "RollingUpdate"]),
    }
}

fn rolling_update(errors: &mut FieldErrors, path: &str, rolling: &Value) {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    let unavailable_path = format!("{path}.maxUnavailable");
    check::count_or_percent(errors, &unavailable_path, unavailable);
    check::count_or_percent(errors, &format!("{path}.maxSurge"), surge);
    if check::count_or_percent_number(unavailable) == 0
        && check::count_or_percent_number(surge) == 0
    {
        errors.invalid(
            &unavailable_path,
            unavailable,
            "may not be 0 when `maxSurge` is 0",
        );
    }
    check::at_most_100_percent(errors, &unavailable_path, unavailable);
}

#[cfg(test)]
mod tests;
