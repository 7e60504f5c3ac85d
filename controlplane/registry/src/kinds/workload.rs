//! What the kinds that have pods made share: defaults, checks and cells of a pod template, of how
//! it is rolled out and of the counts of its pods.
//!
//! Source: `pkg/apis/{apps,batch,core}/validation`, `pkg/apis/apps/v1/defaults.go` and
//! `pkg/printers/internalversion/printers.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::podspec;
use crate::{
    cells, check, fill,
    value::{number, string},
};

/// What who makes something is told of a name that others make names of: host names have no dots.
pub(super) fn name_warnings(object: &Value, used_in: &str) -> Vec<String> {
    let messages = name::dns_label_errors(string(&object["metadata"]["name"]));
    if messages.is_empty() {
        return Vec::new();
    }
    let messages = messages.join(" ");
    vec![format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{messages}]"
    )]
}

/// Of what is made for pods, whose names begin with its own.
pub(super) fn pods_name_warnings(object: &Value) -> Vec<String> {
    name_warnings(object, "Pod names and hostnames")
}

/// Fills in the field `template` of a spec.
pub(super) fn default_template(spec: &mut Value) {
    fill::object(spec, "template");
    fill::within(spec, "template", podspec::defaults::template);
}

/// Fills in the field of a spec that says how pods are replaced: step by step, in such steps.
pub(super) fn default_rolling_update<T>(spec: &mut Value, field: &str, steps: &[(&str, T)])
where
    T: Into<Value> + Copy,
{
    fill::object(spec, field);
    fill::within(spec, field, |strategy| {
        fill::text(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            fill::object(strategy, "rollingUpdate");
            fill::within(strategy, "rollingUpdate", |rolling| {
                for (step, default) in steps {
                    fill::value(rolling, step, *default);
                }
            });
        }
    });
}

/// A selector that must be there and select something. `kind` is as upstream's message has it.
pub(super) fn selector(errors: &mut FieldErrors, selector: &Value, kind: &str) {
    if !selector.is_object() {
        errors.required("spec.selector", "");
        return;
    }
    check::label_selector(errors, "spec.selector", selector);
    if check::selector_is_empty(selector) {
        let message = format!("empty selector is invalid for {kind}");
        errors.invalid("spec.selector", selector, message);
    }
}

/// The template of pods that are never done.
pub(super) fn runs_forever(errors: &mut FieldErrors, template: &Value, kind: &str) {
    const PATH: &str = "spec.template.spec";
    let (policy, deadline) = (
        &template["spec"]["restartPolicy"],
        &template["spec"]["activeDeadlineSeconds"],
    );
    if string(policy) != "Always" {
        errors.not_supported(format!("{PATH}.restartPolicy"), policy, &["Always"]);
    }
    if !deadline.is_null() {
        let message = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(format!("{PATH}.activeDeadlineSeconds"), message);
    }
}

/// Counts of a status: none is negative, and of each pair in `at_most` the first is no greater than
/// the second.
pub(super) fn counts(
    errors: &mut FieldErrors,
    status: &Value,
    fields: &[&str],
    at_most: &[(&str, &str)],
) {
    for field in fields {
        check::not_negative(errors, &format!("status.{field}"), &status[*field]);
    }
    for (field, most) in at_most {
        check::at_most(errors, status, field, most);
    }
}

/// The status of a ReplicaSet or ReplicationController.
pub(super) fn replica_status(status: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let fields = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ];
    let at_most = [
        ("fullyLabeledReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ];
    counts(&mut errors, status, &fields, &at_most);
    errors
}

/// The field of a ReplicaSet or ReplicationController that a field selector may name.
pub(super) fn replicas_field(object: &Value, path: &str) -> String {
    match path {
        "status.replicas" => number(&object["status"]["replicas"]).to_string(),
        _ => String::new(),
    }
}

/// The row of a ReplicaSet or ReplicationController.
pub(super) fn replica_row(object: &Value, selector: String, now_secs: i64) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [containers, images] = cells::containers_and_images(&spec["template"]);
    vec![
        cells::name(object),
        number(&spec["replicas"]).into(),
        number(&status["replicas"]).into(),
        number(&status["readyReplicas"]).into(),
        cells::age(object, now_secs),
        containers,
        images,
        selector.into(),
    ]
}

/// How many pods are ready of how many that are wanted: `1/3`.
pub(super) fn ready_cell(object: &Value) -> Value {
    let ready = number(&object["status"]["readyReplicas"]);
    format!("{ready}/{}", number(&object["spec"]["replicas"])).into()
}
