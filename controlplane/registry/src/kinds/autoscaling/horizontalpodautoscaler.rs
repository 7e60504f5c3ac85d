//! HorizontalPodAutoscaler: as many pods as their load needs. Stored as v2; v1 is a view.
//!
//! Source: `pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go`,
//! `pkg/apis/autoscaling/{v2,validation}` at v1.37.

mod metrics;
mod validate;

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, text},
    fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::{items, number, string},
};

/// The strategy of HorizontalPodAutoscalers.
pub struct HorizontalPodAutoscaler;

static INFO: ResourceInfo = ResourceInfo {
    version: "v2",
    ..BOTH
};

/// What the names of the kind are in every version.
pub(super) const BOTH: ResourceInfo = ResourceInfo {
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    subresources: &[Subresource::Status],
    ..ResourceInfo::in_group("autoscaling", "v2")
};

pub(super) static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Reference",
        "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be collected, as well as to actually change the replica count.",
    ),
    text(
        "Targets",
        "metrics contains the specifications for which to use to calculate the desired replica count (the maximum replica count across all metrics will be used).  The desired replica count is calculated multiplying the ratio between the target value and the current value by the current number of pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for more information about how each type of metric must respond. If not set, the default metric will be set to 80% average CPU utilization.",
    ),
    text(
        "MinPods",
        "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  Scaling is active as long as at least one metric value is available.",
    ),
    text(
        "MaxPods",
        "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot be less that minReplicas.",
    ),
    text(
        "Replicas",
        "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the autoscaler.",
    ),
    AGE,
];

impl BuiltIn for HorizontalPodAutoscaler {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::value(spec, "minReplicas", 1);
        if items(&spec["metrics"]).is_empty() {
            spec["metrics"] = json!([{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        }
        fill::within(spec, "behavior", behavior);
        fill::object(object, "status");
        fill::value(&mut object["status"], "currentMetrics", Value::Null);
        fill::value(&mut object["status"], "desiredReplicas", 0);
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn first_status(&self, _object: &Value) -> Value {
        json!({"currentMetrics": null, "desiredReplicas": 0})
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate::spec(&mut errors, &object["spec"]);
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for field in ["currentReplicas", "desiredReplicas"] {
            crate::check::not_negative(
                &mut errors,
                &format!("status.{field}"),
                &new["status"][field],
            );
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let target = &spec["scaleTargetRef"];
        let least = match spec["minReplicas"].as_i64() {
            Some(least) => least.to_string(),
            None => "<unset>".to_owned(),
        };
        vec![
            cells::name(object),
            format!("{}/{}", string(&target["kind"]), string(&target["name"])).into(),
            metrics::shown(&spec["metrics"], &status["currentMetrics"]).into(),
            least.into(),
            number(&spec["maxReplicas"]).into(),
            number(&status["currentReplicas"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// Fills in how fast it scales, in both directions, if anything was said of it.
fn behavior(behavior: &mut Value) {
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15}]);
    let down = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", down)] {
        fill::object(behavior, direction);
        let rules = &mut behavior[direction];
        fill::value(rules, "selectPolicy", "Max");
        if items(&rules["policies"]).is_empty() {
            fill::value(rules, "policies", policies);
        }
        if direction == "scaleUp" {
            fill::value(rules, "stabilizationWindowSeconds", 0);
        }
    }
}

#[cfg(test)]
mod tests;
