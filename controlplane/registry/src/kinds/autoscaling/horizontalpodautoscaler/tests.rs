use super::*;
use crate::testing::{create_errors, created, with};

fn autoscaler() -> Value {
    json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}})
}

#[test]
fn the_default_metric_is_the_cpu() {
    let object = created(&HorizontalPodAutoscaler, autoscaler());
    assert_eq!(
        object["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
        80
    );
    assert_eq!(object["spec"]["minReplicas"], 1);
    assert_eq!(create_errors(&HorizontalPodAutoscaler, autoscaler()), "");
    let mut object = created(
        &HorizontalPodAutoscaler,
        with(
            &autoscaler(),
            "/spec/behavior",
            json!({"scaleDown": {"selectPolicy": "Min"}}),
        ),
    );
    assert_eq!(
        object["spec"]["behavior"]["scaleUp"]["stabilizationWindowSeconds"],
        0
    );
    assert_eq!(
        object["spec"]["behavior"]["scaleDown"]["selectPolicy"],
        "Min"
    );
    object["status"] = json!({"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {
        "name": "cpu", "current": {"averageUtilization": 12}}}]});
    assert_eq!(
        json!(HorizontalPodAutoscaler.row(&object, 0)),
        json!([
            "h",
            "Deployment/web",
            "cpu: 12%/80%",
            "1",
            3,
            2,
            "<unknown>"
        ])
    );
}

#[test]
fn autoscalers_are_checked() {
    for (pointer, value, expect) in [
        (
            "/spec/maxReplicas",
            json!(0),
            "[spec.maxReplicas: Invalid value: 0: must be greater than 0, spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`]",
        ),
        (
            "/spec/minReplicas",
            json!(0),
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            "/spec",
            json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 0, "maxReplicas": 3,
                "metrics": [{"type": "External", "external": {"metric": {"name": "queue"},
                    "target": {"type": "AverageValue", "averageValue": "1"}}}]}),
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            "/spec/minReplicas",
            json!(5),
            "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
        (
            "/spec/scaleTargetRef/name",
            json!(""),
            "spec.scaleTargetRef.name: Required value",
        ),
        (
            "/spec/metrics",
            json!([{"type": "Resource"}]),
            "spec.metrics[0].resource: Required value: must populate information for the given metric source",
        ),
        (
            "/spec/metrics",
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]),
            "spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
        ),
        (
            "/spec/behavior",
            json!({"scaleUp": {"stabilizationWindowSeconds": 3601}}),
            "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
        ),
        (
            "/spec/behavior",
            json!({"scaleUp": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 5}]}}),
            "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
        ),
    ] {
        let object = with(&autoscaler(), pointer, value.clone());
        assert_eq!(
            create_errors(&HorizontalPodAutoscaler, object),
            expect,
            "{pointer} = {value}"
        );
    }
}
