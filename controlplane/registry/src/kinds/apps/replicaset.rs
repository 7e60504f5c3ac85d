//! ReplicaSet: so many pods of one template.

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, integer, wide},
    check, fill,
    kinds::{podspec, workload},
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
};

/// The strategy of ReplicaSets.
pub struct ReplicaSet;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ReplicaSet",
    plural: "replicasets",
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer("Desired", "Replicas is the number of desired pods."),
    integer(
        "Current",
        "Replicas is the most recently observed number of non-terminating pods.",
    ),
    integer(
        "Ready",
        "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "Selector is a label query over pods that should match the replica count.",
    ),
];

impl BuiltIn for ReplicaSet {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }
}

impl Strategy for ReplicaSet {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::value(spec, "replicas", 1);
        workload::default_template(spec);
        fill::object(object, "status");
        fill::value(&mut object["status"], "replicas", 0);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"replicas": 0})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::not_negative(&mut errors, "spec.replicas", &spec["replicas"]);
        check::not_negative(
            &mut errors,
            "spec.minReadySeconds",
            &spec["minReadySeconds"],
        );
        super::selector_and_template(&mut errors, spec);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "spec.selector", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        workload::replica_status(&new["status"])
    }

    fn field(&self, object: &Value, path: &str) -> String {
        workload::replicas_field(object, path)
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
        let selector = cells::label_selector(&object["spec"]["selector"]);
        workload::replica_row(object, selector, now_secs)
    }
}
