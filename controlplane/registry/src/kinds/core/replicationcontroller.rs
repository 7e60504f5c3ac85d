//! ReplicationController: so many pods of one template; what ReplicaSets were before.
//!
//! Source: `pkg/registry/core/replicationcontroller/strategy.go`, `pkg/apis/core/validation` at
//! v1.37.

use coracle_api::{selector::LabelSelector, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, integer, wide},
    check, fill,
    kinds::{podspec, workload},
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, Dependents, ResourceInfo, Strategy, Subresource},
    value,
};

/// The strategy of ReplicationControllers.
pub struct ReplicationController;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Desired",
        "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    integer(
        "Current",
        "Replicas is the most recently observed number of replicas. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller",
    ),
    integer(
        "Ready",
        "The number of ready replicas for this replication controller.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is defaulted to the labels present on the Pod template. Label keys and values that must match in order to be controlled by this replication controller, if empty defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

impl BuiltIn for ReplicationController {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }
}

impl Strategy for ReplicationController {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        if value::len(&labels) > 0 {
            if value::len(&object["spec"]["selector"]) == 0 {
                object["spec"]["selector"] = labels.clone();
            }
            if value::len(&object["metadata"]["labels"]) == 0 {
                object["metadata"]["labels"] = labels;
            }
        }
        let spec = &mut object["spec"];
        if spec.get("template").is_some_and(Value::is_null)
            && let Some(spec) = spec.as_object_mut()
        {
            spec.remove("template");
        }
        fill::value(spec, "replicas", 1);
        fill::within(spec, "template", podspec::defaults::template);
        fill::object(object, "status");
        fill::value(&mut object["status"], "replicas", 0);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn dependents(&self) -> Dependents {
        Dependents::Orphaned
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"replicas": 0})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        check::not_negative(
            &mut errors,
            "spec.minReadySeconds",
            &spec["minReadySeconds"],
        );
        if value::len(&spec["selector"]) == 0 {
            errors.required("spec.selector", "");
        }
        check::not_negative(&mut errors, "spec.replicas", &spec["replicas"]);
        if spec["template"].is_null() {
            errors.required("spec.template", "");
        } else {
            check_template(&mut errors, spec);
        }
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
        let selector = cells::labels(&object["spec"]["selector"]);
        workload::replica_row(object, selector, now_secs)
    }
}

fn check_template(errors: &mut FieldErrors, spec: &Value) {
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let labels = &template["metadata"]["labels"];
    if value::len(selector) > 0
        && !LabelSelector::from_map(selector).matches(|key| labels[key].as_str())
    {
        let message = "`selector` does not match template `labels`";
        errors.invalid("spec.template.metadata.labels", labels, message);
    }
    podspec::validate::template(errors, "spec.template", template);
    workload::runs_forever(errors, template, "ReplicationController");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create_errors, created, with};

    fn controller() -> Value {
        json!({"metadata": {"name": "r"}, "spec": {"template": {
            "metadata": {"labels": {"app": "r"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
    }

    #[test]
    fn the_selector_comes_from_the_template() {
        let object = created(&ReplicationController, controller());
        assert_eq!(object["spec"]["selector"], json!({"app": "r"}));
        assert_eq!(object["metadata"]["labels"], json!({"app": "r"}));
        assert_eq!(
            json!(ReplicationController.row(&object, 0)),
            json!(["r", 1, 0, 0, "<unknown>", "c", "i:1", "app=r"])
        );
    }

    #[test]
    fn controllers_are_checked() {
        for (pointer, value, expect) in [
            ("/spec/replicas", json!(2), ""),
            (
                "/spec/replicas",
                json!(-1),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "/spec/template",
                Value::Null,
                "[spec.selector: Required value, spec.template: Required value]",
            ),
            (
                "/spec/selector",
                json!({"a": "b"}),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"r\"}: `selector` does not match template `labels`",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
        ] {
            let object = with(&controller(), pointer, value.clone());
            assert_eq!(
                create_errors(&ReplicationController, object),
                expect,
                "{pointer} = {value}"
            );
        }
    }
}
