//! Checks of what a Job does, and one of its defaults, shared by Jobs and the templates of
//! CronJobs.
//!
//! Source: `validateJobSpec`, `ValidateJobSpecUpdate` in `pkg/apis/batch/validation/validation.go`
//! at v1.37.

use std::collections::HashSet;

use coracle_api::{selector::LabelSelector, status::FieldErrors};
use serde_json::Value;

use super::success_policy;
use crate::{
    check, fill,
    kinds::podspec,
    value::{items, number, string},
};

const MAX_PARALLELISM: i64 = 100_000;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;

/// A condition that a policy names without a status is one that is true, in templates, too.
///
/// Source: `SetDefaults_PodFailurePolicyOnPodConditionsPattern` in `pkg/apis/batch/v1/defaults.go`
/// at v1.37.
pub(super) fn default_failure_policy(spec: &mut Value) {
    fill::within(spec, "podFailurePolicy", |policy| {
        fill::each(policy, "rules", |rule| {
            fill::each(rule, "onPodConditions", |condition| {
                fill::text(condition, "status", "True")
            });
        });
    });
}

/// The spec of a Job, selector included.
pub(super) fn with_selector(errors: &mut FieldErrors, path: &str, spec: &Value) {
    without_selector(errors, path, spec);
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.required(format!("{path}.selector"), "");
    } else {
        check::label_selector(errors, &format!("{path}.selector"), selector);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if LabelSelector::from_object(selector)
        .is_ok_and(|selector| !selector.matches(|key| labels[key].as_str()))
    {
        let message = "`selector` does not match template `labels`";
        errors.invalid(format!("{path}.template.metadata.labels"), labels, message);
    }
}

/// The spec of a Job that is yet to be made.
pub(super) fn without_selector(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in counts {
        check::not_negative(errors, &format!("{path}.{field}"), &spec[field]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(
            format!("{path}.backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        check::domain_prefixed_path(errors, &format!("{path}.managedBy"), &spec["managedBy"]);
        if manager.len() > 63 {
            errors.too_long(format!("{path}.managedBy"), &spec["managedBy"], 63);
        }
    }
    completion_mode(errors, path, spec);
    if spec["podFailurePolicy"].is_object() {
        failure_policy(errors, path, spec);
    }
    if spec["successPolicy"].is_object() {
        success_policy::check(
            errors,
            &format!("{path}.successPolicy"),
            &spec["successPolicy"],
            &spec["completions"],
        );
    }
    let replacement = &spec["podReplacementPolicy"];
    // A failure policy looks at how a pod has ended: no pod is replaced before it has.
    let allowed: &[&str] = if spec["podFailurePolicy"].is_null() {
        &["Failed", "TerminatingOrFailed"]
    } else {
        &["Failed"]
    };
    check::optional_one_of(
        errors,
        &format!("{path}.podReplacementPolicy"),
        replacement,
        allowed,
    );
    let template = format!("{path}.template");
    podspec::validate::template(errors, &template, &spec["template"]);
    restart_policy(errors, &format!("{template}.spec.restartPolicy"), spec);
}

fn restart_policy(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let policy = &spec["template"]["spec"]["restartPolicy"];
    match string(policy) {
        // That is what a template without one is given.
        "Always" | "" => errors.required(path, r#"valid values: "OnFailure", "Never""#),
        "Never" => {}
        "OnFailure" if spec["podFailurePolicy"].is_object() => {
            errors.invalid(
                path,
                policy,
                r#"only "Never" is supported when podFailurePolicy is specified"#,
            );
        }
        "OnFailure" => {}
        _ => errors.not_supported(path, policy, &["OnFailure", "Never"]),
    }
}

fn completion_mode(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    match string(&spec["completionMode"]) {
        "" => {}
        "Indexed" => {
            if spec["completions"].is_null() {
                errors.required(at("completions"), "when completion mode is Indexed");
            }
            if number(&spec["parallelism"]) > MAX_PARALLELISM {
                let message = format!(
                    "must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
                );
                errors.invalid(at("parallelism"), &spec["parallelism"], message);
            }
            let (most, completions) = (
                spec["maxFailedIndexes"].as_i64(),
                spec["completions"].as_i64(),
            );
            if let (Some(most), Some(completions)) = (most, completions)
                && most > completions
            {
                let message = "must be less than or equal to completions";
                errors.invalid(at("maxFailedIndexes"), &spec["maxFailedIndexes"], message);
            }
        }
        "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
                if !spec[field].is_null() {
                    errors.invalid(at(field), &spec[field], "requires indexed completion mode");
                }
            }
        }
        _ => errors.not_supported(
            at("completionMode"),
            &spec["completionMode"],
            &["Indexed", "NonIndexed"],
        ),
    }
}

fn failure_policy(errors: &mut FieldErrors, path: &str, spec: &Value) {
    let rules_path = format!("{path}.podFailurePolicy.rules");
    let rules = items(&spec["podFailurePolicy"]["rules"]);
    if rules.len() > MAX_RULES {
        errors.too_many(&rules_path, rules.len(), MAX_RULES);
    }
    let pod = &spec["template"]["spec"];
    let containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(&pod[*list]));
    let containers: HashSet<_> = containers.map(|container| &container["name"]).collect();
    for (index, rule) in rules.iter().enumerate() {
        failure_rule(
            errors,
            &format!("{rules_path}[{index}]"),
            rule,
            spec,
            &containers,
        );
    }
}

fn failure_rule(
    errors: &mut FieldErrors,
    path: &str,
    rule: &Value,
    spec: &Value,
    containers: &HashSet<&Value>,
) {
    let action = &rule["action"];
    let action_path = format!("{path}.action");
    match string(action) {
        "" => errors.required(
            action_path,
            r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#,
        ),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            errors.invalid(
                action_path,
                action,
                "requires the backoffLimitPerIndex to be set",
            );
        }
        "FailIndex" | "Count" | "FailJob" | "Ignore" => {}
        _ => errors.not_supported(
            action_path,
            action,
            &["Count", "FailIndex", "FailJob", "Ignore"],
        ),
    }
    let (codes, conditions) = (&rule["onExitCodes"], items(&rule["onPodConditions"]));
    if codes.is_object() && !conditions.is_empty() {
        errors.invalid(
            path,
            rule,
            "specifying both OnExitCodes and OnPodConditions is not supported",
        );
    } else if codes.is_null() && conditions.is_empty() {
        errors.invalid(
            path,
            rule,
            "specifying one of OnExitCodes and OnPodConditions is required",
        );
    }
    if codes.is_object() {
        exit_codes(errors, &format!("{path}.onExitCodes"), codes, containers);
    }
    if conditions.len() > MAX_PATTERNS {
        errors.too_many(
            format!("{path}.onPodConditions"),
            conditions.len(),
            MAX_PATTERNS,
        );
    }
    for (index, condition) in conditions.iter().enumerate() {
        let path = format!("{path}.onPodConditions[{index}]");
        check::qualified_name(errors, &format!("{path}.type"), &condition["type"]);
        let statuses = ["False", "True", "Unknown"];
        check::one_of(
            errors,
            &format!("{path}.status"),
            &condition["status"],
            &statuses,
        );
    }
}

fn exit_codes(errors: &mut FieldErrors, path: &str, codes: &Value, containers: &HashSet<&Value>) {
    check::one_of(
        errors,
        &format!("{path}.operator"),
        &codes["operator"],
        &["In", "NotIn"],
    );
    let container = &codes["containerName"];
    if container.is_string() && !containers.contains(container) {
        let message = "must be one of the container or initContainer names in the pod template";
        errors.invalid(format!("{path}.containerName"), container, message);
    }
    let values = items(&codes["values"]);
    let values_path = format!("{path}.values");
    if values.is_empty() {
        errors.invalid(
            &values_path,
            &codes["values"],
            "at least one value is required",
        );
    } else if values.len() > MAX_EXIT_CODES {
        errors.too_many(&values_path, values.len(), MAX_EXIT_CODES);
    }
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        if codes["operator"] == "In" && *value == 0 {
            errors.invalid(
                format!("{values_path}[{index}]"),
                value,
                "must not be 0 for the In operator",
            );
        }
        if !seen.insert(value) {
            errors.duplicate(format!("{values_path}[{index}]"), value);
        }
    }
    if !values.is_sorted_by_key(number) {
        errors.invalid(&values_path, &codes["values"], "must be ordered");
    }
}

/// What an update of a Job may change: how fast it goes, and while it is suspended where its pods
/// go.
pub(super) fn update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    completions(errors, spec, before);
    check::immutable_field(errors, "spec.selector", new, old);
    template(errors, new, old);
    let fixed = [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ];
    for field in fixed {
        check::immutable_field(errors, &format!("spec.{field}"), new, old);
    }
}

fn completions(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let (wanted, before) = (&new["completions"], &old["completions"]);
    if wanted == before {
        return;
    }
    if new["completionMode"] != "Indexed" || wanted.is_null() || before.is_null() {
        errors.immutable("spec.completions", wanted);
    } else if *wanted != new["parallelism"] {
        let message = "can only be modified in tandem with spec.parallelism";
        errors.invalid("spec.completions", wanted, message);
    }
}

fn template(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let mut masked = new["spec"]["template"].clone();
    let before = &old["spec"]["template"];
    // Not yet started: what schedules the pods may still be set.
    if old["spec"]["suspend"] == true && old["status"]["startTime"].is_null() {
        for field in ["nodeSelector", "tolerations", "affinity", "schedulingGates"] {
            crate::lifecycle::keep(&mut masked["spec"], &before["spec"], field);
        }
        for field in ["labels", "annotations"] {
            crate::lifecycle::keep(&mut masked["metadata"], &before["metadata"], field);
        }
    }
    if masked != *before {
        errors.immutable("spec.template", &new["spec"]["template"]);
    }
}
