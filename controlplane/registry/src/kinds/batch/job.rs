//! Job: pods that run until so many of them have succeeded.
//!
//! Source: `pkg/registry/batch/job/strategy.go`, `pkg/apis/batch/validation` at v1.37.

mod status;

use coracle_api::{name, status::FieldErrors};
use serde_json::{Value, json};

use super::jobspec;
use crate::{
    cells::{self, AGE, CONTAINERS, IMAGES, NAME, text, wide},
    fill,
    kinds::{podspec, workload},
    lifecycle::{self, Lifecycle},
    strategy::{BuiltIn, Column, Dependents, ResourceInfo, Strategy, Subresource},
    value::{self, items, number, string},
};

/// The strategy of Jobs.
pub struct Job;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Status", "Status of the job."),
    text(
        "Completions",
        "Completions specifies the desired number of successfully finished pods the job should be run with. Setting to null means that the success of any pod signals the success of all pods, and allows parallelism to have any positive value. Setting to 1 means that parallelism is limited to 1 and the success of that pod signals the success of the job. More info: https://kubernetes.io/docs/concepts/workloads/controllers/jobs-run-to-completion/",
    ),
    text("Duration", "Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    wide(
        "Selector",
        "A label query over pods that should match the pod count. Normally, the system sets this field for you. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors",
    ),
];

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const OLD_UID_LABEL: &str = "controller-uid";
const OLD_NAME_LABEL: &str = "job-name";

impl BuiltIn for Job {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.successful"]
    }
}

impl Strategy for Job {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        if spec["completions"].is_null() && spec["parallelism"].is_null() {
            fill::value(spec, "completions", 1);
        }
        fill::value(spec, "parallelism", 1);
        let limit = if spec["backoffLimitPerIndex"].is_null() {
            6
        } else {
            i32::MAX
        };
        fill::value(spec, "backoffLimit", limit);
        fill::value(spec, "completionMode", "NonIndexed");
        fill::value(spec, "suspend", false);
        fill::value(spec, "manualSelector", false);
        jobspec::default_failure_policy(spec);
        let replacement = if spec["podFailurePolicy"].is_null() {
            "TerminatingOrFailed"
        } else {
            "Failed"
        };
        fill::value(spec, "podReplacementPolicy", replacement);
        workload::default_template(spec);
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        if value::len(&labels) > 0 && value::len(&object["metadata"]["labels"]) == 0 {
            object["metadata"]["labels"] = labels;
        }
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn dependents(&self) -> Dependents {
        Dependents::Orphaned
    }

    fn prepare_for_create(&self, object: &mut Value) {
        if object["spec"]["manualSelector"] != true {
            generate_selector(object);
        }
        lifecycle::create(self, object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        generated_selector(&mut errors, object);
        jobspec::with_selector(&mut errors, "spec", spec);
        let completions = number(&spec["completions"]);
        if spec["completionMode"] == "Indexed" && completions > 0 {
            let host = format!(
                "{}-{}",
                string(&object["metadata"]["name"]),
                completions - 1
            );
            if !name::dns_label_errors(&host).is_empty() {
                let message = format!("will not able to create pod with invalid DNS label: {host}");
                errors.invalid("metadata.name", &object["metadata"]["name"], message);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        jobspec::with_selector(&mut errors, "spec", &new["spec"]);
        jobspec::update(&mut errors, new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        status::validate(&mut errors, new, old);
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "status.successful" => number(&object["status"]["succeeded"]).to_string(),
            _ => String::new(),
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        workload::pods_name_warnings(object)
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let mut warnings = podspec::warnings::template("spec.template", &spec["template"]);
        if spec["completionMode"] == "Indexed" {
            let (completions, parallelism) =
                (number(&spec["completions"]), number(&spec["parallelism"]));
            if completions > 100_000 && parallelism > 10_000 {
                warnings.push("In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail".to_owned());
            }
        }
        warnings
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let [containers, images] = cells::containers_and_images(&spec["template"]);
        vec![
            cells::name(object),
            state(object).into(),
            completions(object).into(),
            duration(&object["status"], now_secs).into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&spec["selector"]).into(),
        ]
    }
}

/// Whether a condition of the status is true.
fn has_condition(object: &Value, kind: &str) -> bool {
    items(&object["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn state(object: &Value) -> &'static str {
    for kind in ["Complete", "Failed"] {
        if has_condition(object, kind) {
            return kind;
        }
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    ["Suspended", "SuccessCriteriaMet", "FailureTarget"]
        .into_iter()
        .find(|kind| has_condition(object, kind))
        .unwrap_or("Running")
}

fn completions(object: &Value) -> String {
    let spec = &object["spec"];
    let done = number(&object["status"]["succeeded"]);
    match spec["completions"].as_i64() {
        Some(wanted) => format!("{done}/{wanted}"),
        None if number(&spec["parallelism"]) > 1 => {
            format!("{done}/1 of {}", number(&spec["parallelism"]))
        }
        None => format!("{done}/1"),
    }
}

fn duration(status: &Value, now_secs: i64) -> String {
    let Some(start) = value::unix_seconds(&status["startTime"]) else {
        return String::new();
    };
    let end = value::unix_seconds(&status["completionTime"]).unwrap_or(now_secs);
    cells::human_duration(end - start)
}

/// Makes the selector and the labels that tie the pods to this Job alone.
fn generate_selector(object: &mut Value) {
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    let own_labels = object["metadata"]["labels"].clone();
    let template = &mut object["spec"]["template"];
    fill::object(template, "metadata");
    let before = template["metadata"]["labels"].clone();
    fill::object(&mut template["metadata"], "labels");
    let labels = &mut template["metadata"]["labels"];
    // Set by the client: validation judges them.
    for (key, value) in [
        (OLD_UID_LABEL, &uid),
        (OLD_NAME_LABEL, &name),
        (UID_LABEL, &uid),
        (NAME_LABEL, &name),
    ] {
        fill::value(labels, key, string(value));
    }
    let labels = labels.clone();
    // What the Job has from its template it goes on having from it.
    if value::len(&own_labels) == 0 || own_labels == before {
        object["metadata"]["labels"] = labels;
    }
    let spec = &mut object["spec"];
    fill::object(spec, "selector");
    fill::object(&mut spec["selector"], "matchLabels");
    fill::value(
        &mut spec["selector"]["matchLabels"],
        UID_LABEL,
        string(&uid),
    );
}

/// The selector must be exactly what would have been generated.
fn generated_selector(errors: &mut FieldErrors, object: &Value) {
    let spec = &object["spec"];
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let uid = string(&object["metadata"]["uid"]);
    if uid.is_empty() {
        errors.required("metadata.uid", "");
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let name = string(&object["metadata"]["name"]);
    for (key, expected) in [
        (OLD_UID_LABEL, uid),
        (OLD_NAME_LABEL, name),
        (UID_LABEL, uid),
        (NAME_LABEL, name),
    ] {
        let path = format!("spec.template.metadata.labels[{key}]");
        let message = format!("must be '{expected}'");
        match labels[key].as_str() {
            None => errors.required(path, message),
            Some(value) if value != expected => errors.invalid(path, labels, message),
            Some(_) => {}
        }
    }
    let expected = |key: &str| spec["selector"] == json!({"matchLabels": {key: uid}});
    if !expected(UID_LABEL) && !expected(OLD_UID_LABEL) {
        errors.invalid(
            "spec.selector",
            &spec["selector"],
            "`selector` not auto-generated",
        );
    }
}

#[cfg(test)]
mod tests;
