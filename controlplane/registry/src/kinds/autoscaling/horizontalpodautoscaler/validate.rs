//! Checks of what is scaled, by which metrics, and how fast.
//!
//! Source: `pkg/apis/autoscaling/validation/validation.go` at v1.37.

use coracle_api::{name, quantity::Quantity, status::FieldErrors};
use serde_json::Value;

use crate::{
    check,
    value::{items, number, string},
};

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
const MAX_PERIOD_SECS: i64 = 1800;
const MAX_WINDOW_SECS: i64 = 3600;

/// The whole spec.
pub(super) fn spec(errors: &mut FieldErrors, spec: &Value) {
    let (least, most) = (&spec["minReplicas"], number(&spec["maxReplicas"]));
    // The gate `HPAScaleToZero` is off, as it is by default, whatever the metrics are.
    if least.as_i64().is_some_and(|least| least < 1) {
        errors.invalid(
            "spec.minReplicas",
            least,
            "must be greater than or equal to 1",
        );
    }
    if most < 1 {
        errors.invalid("spec.maxReplicas", &most.into(), "must be greater than 0");
    }
    if least.as_i64().is_some_and(|least| most < least) {
        errors.invalid(
            "spec.maxReplicas",
            &most.into(),
            "must be greater than or equal to `minReplicas`",
        );
    }
    reference(errors, "spec.scaleTargetRef", &spec["scaleTargetRef"]);
    for (index, metric) in items(&spec["metrics"]).iter().enumerate() {
        check_metric(errors, &format!("spec.metrics[{index}]"), metric);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if rules.is_object() {
            check_rules(errors, &format!("spec.behavior.{direction}"), rules);
        }
    }
}

fn reference(errors: &mut FieldErrors, path: &str, reference: &Value) {
    for field in ["kind", "name"] {
        let path = format!("{path}.{field}");
        if check::required(errors, &path, &reference[field]) {
            let messages = name::path_segment_errors(string(&reference[field]));
            check::invalid_all(errors, &path, &reference[field], messages);
        }
    }
}

fn check_metric(errors: &mut FieldErrors, path: &str, metric: &Value) {
    let kind = string(&metric["type"]);
    if kind.is_empty() {
        errors.required(format!("{path}.type"), "must specify a metric source type");
    }
    let Some((_, source)) = SOURCES.iter().find(|(known, _)| *known == kind) else {
        let known: Vec<_> = SOURCES.iter().map(|(kind, _)| *kind).collect();
        errors.not_supported(format!("{path}.type"), &kind.into(), &known);
        return;
    };
    for (_, other) in SOURCES
        .iter()
        .filter(|(_, other)| other != source && !metric[*other].is_null())
    {
        errors.forbidden(
            format!("{path}.{other}"),
            "must populate the given metric source only",
        );
    }
    let own = &metric[*source];
    let path = format!("{path}.{source}");
    if own.is_null() {
        errors.required(
            &path,
            "must populate information for the given metric source",
        );
        return;
    }
    if *source == "object" {
        reference(
            errors,
            &format!("{path}.describedObject"),
            &own["describedObject"],
        );
    }
    if matches!(*source, "resource" | "containerResource") {
        if string(&own["name"]).is_empty() {
            errors.required(format!("{path}.name"), "must specify a resource name");
        }
        if *source == "containerResource" && string(&own["container"]).is_empty() {
            errors.required(format!("{path}.container"), "must specify a container");
        }
    } else {
        let metric_path = format!("{path}.metric");
        if string(&own["metric"]["name"]).is_empty() {
            errors.required(format!("{metric_path}.name"), "must specify a metric name");
        }
        check::label_selector(
            errors,
            &format!("{metric_path}.selector"),
            &own["metric"]["selector"],
        );
    }
    target(errors, &format!("{path}.target"), source, &own["target"]);
}

fn target(errors: &mut FieldErrors, path: &str, source: &str, target: &Value) {
    if string(&target["type"]).is_empty() {
        errors.required(format!("{path}.type"), "must specify a metric target type");
    }
    let types = ["AverageValue", "Utilization", "Value"];
    check::optional_one_of(errors, &format!("{path}.type"), &target["type"], &types);
    for field in ["value", "averageValue"] {
        let amount = &target[field];
        let is_positive = |text: &str| {
            Quantity::parse(text).is_ok_and(|own| !own.is_zero() && !own.is_negative())
        };
        if amount.as_str().is_some_and(|text| !is_positive(text)) {
            errors.invalid(format!("{path}.{field}"), amount, "must be positive");
        }
    }
    let utilization = &target["averageUtilization"];
    if utilization.as_i64().is_some_and(|own| own < 1) {
        errors.invalid(
            format!("{path}.averageUtilization"),
            utilization,
            "must be greater than 0",
        );
    }
    let (has_value, has_average, has_utilization) = (
        !target["value"].is_null(),
        !target["averageValue"].is_null(),
        !utilization.is_null(),
    );
    match source {
        "resource" | "containerResource" => {
            if has_utilization && has_average {
                let message = "may not set both a target raw value and a target utilization";
                errors.forbidden(format!("{path}.averageValue"), message);
            } else if !has_utilization && !has_average {
                let message = "must set either a target raw value or a target utilization";
                errors.required(format!("{path}.averageUtilization"), message);
            }
        }
        "pods" if !has_average => {
            errors.required(
                format!("{path}.averageValue"),
                "must specify a positive target averageValue",
            );
        }
        "pods" => {}
        _ if !has_value && !has_average => {
            let message = "must set either a target value for metric or a per-pod target";
            errors.required(format!("{path}.averageValue"), message);
        }
        "external" if has_value && has_average => {
            let message = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(format!("{path}.value"), message);
        }
        _ => {}
    }
}

fn check_rules(errors: &mut FieldErrors, path: &str, rules: &Value) {
    let window = &rules["stabilizationWindowSeconds"];
    let window_path = format!("{path}.stabilizationWindowSeconds");
    match window.as_i64() {
        Some(secs) if secs < 0 => {
            errors.invalid(window_path, window, "must be greater than or equal to zero")
        }
        Some(secs) if secs > MAX_WINDOW_SECS => {
            errors.invalid(
                window_path,
                window,
                format!("must be less than or equal to {MAX_WINDOW_SECS}"),
            );
        }
        _ => {}
    }
    let selects = ["Disabled", "Max", "Min"];
    check::optional_one_of(
        errors,
        &format!("{path}.selectPolicy"),
        &rules["selectPolicy"],
        &selects,
    );
    let policies = items(&rules["policies"]);
    if policies.is_empty() {
        errors.required(
            format!("{path}.policies"),
            "must specify at least one Policy",
        );
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = format!("{path}.policies[{index}]");
        if !matches!(string(&policy["type"]), "Percent" | "Pods") {
            errors.not_supported(
                format!("{path}.type"),
                &policy["type"],
                &["Percent", "Pods"],
            );
        }
        for field in ["value", "periodSeconds"] {
            if number(&policy[field]) <= 0 {
                errors.invalid(
                    format!("{path}.{field}"),
                    &number(&policy[field]).into(),
                    "must be greater than zero",
                );
            }
        }
        if number(&policy["periodSeconds"]) > MAX_PERIOD_SECS {
            let message = format!("must be less than or equal to {MAX_PERIOD_SECS}");
            errors.invalid(
                format!("{path}.periodSeconds"),
                &policy["periodSeconds"],
                message,
            );
        }
    }
}
