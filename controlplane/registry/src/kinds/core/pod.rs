//! Pod: containers that run together on one node.

mod columns;
pub(crate) mod running;
mod status;
mod update;

use coracle_api::{qos, status::FieldErrors};
use serde_json::{Value, json};

use crate::{
    fill,
    kinds::{podspec, workload},
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, Deletion, ResourceInfo, Strategy, Subresource},
    value::{self, items, string},
};

const ANNOTATIONS: &str = "metadata.annotations";

/// The strategy of Pods.
pub struct Pod;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource::Attach,
        Subresource::Binding,
        Subresource::EphemeralContainers,
        Subresource::Eviction,
        Subresource::Exec,
        Subresource::Log,
        Subresource::Portforward,
        Subresource::Proxy,
        Subresource::Resize,
        Subresource::Status,
    ],
    ..super::V1
};

const FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

impl BuiltIn for Pod {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }
}

impl Strategy for Pod {
    fn status_keeps(&self) -> &'static [&'static str] {
        &["ownerReferences"]
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::within(object, "spec", podspec::defaults::pod);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::create(self, object);
        podspec::label_keys::merge(object);
        podspec::app_armor::fields_from_annotations(object);
    }

    fn first_status(&self, object: &Value) -> Value {
        let mut status =
            json!({"phase": "Pending", "qosClass": qos::class_of_json(&object["spec"]).as_str()});
        if !items(&object["spec"]["schedulingGates"]).is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        status
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        if string(&new["status"]["qosClass"]).is_empty() && old["status"]["qosClass"].is_string() {
            new["status"]["qosClass"] = old["status"]["qosClass"].clone();
        }
        one_and_many(new, "podIP", "podIPs");
        // Of the node's addresses neither is taken for the other where they differ.
        if string(&new["status"]["hostIP"]).is_empty()
            || items(&new["status"]["hostIPs"]).is_empty()
        {
            one_and_many(new, "hostIP", "hostIPs");
        }
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        checked(object)
    }

    fn validate_create(&self, object: &Value) -> FieldErrors {
        let mut errors = checked(object);
        podspec::creation::validate(&mut errors, object);
        podspec::app_armor::validate_match(&mut errors, object);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // What is there already may stay: a pod from before a check was made can be let go.
        if new["spec"] != old["spec"]
            || new["metadata"]["annotations"] != old["metadata"]["annotations"]
        {
            errors = checked(new);
        }
        podspec::mirror::validate_update(&mut errors, new, old);
        podspec::app_armor::validate_update(&mut errors, new, old);
        update::validate(&mut errors, new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // Labels and annotations may come with a status.
        podspec::mirror::validate_update(&mut errors, new, old);
        podspec::app_armor::validate_update(&mut errors, new, old);
        status::validate(&mut errors, new, old);
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let Some((part, field)) = path.split_once('.') else {
            return String::new();
        };
        match &object[part][field] {
            Value::Bool(value) => value.to_string(),
            _ if path == "spec.hostNetwork" => "false".to_owned(),
            value => value::string(value).to_owned(),
        }
    }

    fn deletion(&self, object: &Value, grace_secs: Option<i64>) -> Deletion {
        let spec = &object["spec"];
        let mut grace = grace_secs
            .or_else(|| spec["terminationGracePeriodSeconds"].as_i64())
            .unwrap_or(30);
        // Nobody would confirm: not yet on a node, or already at its end.
        let phase = value::string(&object["status"]["phase"]);
        if value::string(&spec["nodeName"]).is_empty() || matches!(phase, "Succeeded" | "Failed") {
            grace = 0;
        }
        if grace < 0 {
            grace = 1;
        }
        if grace == 0 {
            Deletion::Immediate
        } else {
            Deletion::Graceful(grace)
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        let mut warnings = workload::name_warnings(object, "the Pod's hostname");
        warnings.extend(podspec::app_armor::warnings(object));
        warnings
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        podspec::warnings::template("", object)
    }

    fn columns(&self) -> &'static [Column] {
        columns::COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        columns::row(object, now_secs)
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        columns::row_conditions(object)
    }
}

/// What holds of a pod at any time.
fn checked(pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    podspec::mirror::validate(&mut errors, ANNOTATIONS, annotations, spec);
    podspec::app_armor::validate(&mut errors, ANNOTATIONS, annotations, spec);
    podspec::validate::pod(&mut errors, "spec", spec);
    errors
}

/// Keeps the field for one address and the list of them in step. A lone address makes the list;
/// else the list decides.
fn one_and_many(object: &mut Value, one: &str, many: &str) {
    let status = &mut object["status"];
    let first = string(&status[many][0]["ip"]).to_owned();
    let single = string(&status[one]).to_owned();
    if first.is_empty() && !single.is_empty() {
        status[many] = json!([{"ip": single}]);
    } else if !first.is_empty() {
        status[one] = first.into();
    }
}

#[cfg(test)]
mod tests;
