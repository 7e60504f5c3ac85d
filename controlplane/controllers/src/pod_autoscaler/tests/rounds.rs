//! A whole round: what is scaled, and what the status and Events say of it.

use std::time::Duration;

use coracle_client::event_recorder::EventType;
use k8s_openapi::{api::autoscaling::v2::HorizontalPodAutoscaler, jiff::Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{both, metrics, pods, seen};
use crate::pod_autoscaler::{
    history::History,
    metrics::Measured,
    plan::{self, Next, Round},
    replicas::Seen,
    status::Draft,
};

fn hpa(spec: &Value) -> HorizontalPodAutoscaler {
    let mut object = json!({
        "metadata": {"name": "h", "namespace": "default", "generation": 7},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "minReplicas": 2, "maxReplicas": 6, "metrics": [cpu(30)]},
    });
    let spec = spec.as_object().unwrap().clone();
    object["spec"].as_object_mut().unwrap().extend(spec);
    serde_json::from_value(object).unwrap()
}

fn cpu(percent: i32) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// What a round has come to.
struct Done {
    /// What the target shall have, if that is another number.
    scaled: Option<i32>,
    draft: Draft,
}

impl Done {
    fn condition(&self, kind: &str) -> (&str, &str, &str) {
        let conditions = self.draft.status.conditions.as_deref().unwrap();
        let condition = conditions.iter().find(|one| one.type_ == kind).unwrap();
        (
            condition.status.as_str(),
            condition.reason.as_deref().unwrap_or_default(),
            condition.message.as_deref().unwrap_or_default(),
        )
    }

    fn events(&self) -> Vec<(&str, &str)> {
        let events = self.draft.events.iter();
        events
            .map(|told| (told.reason, told.message.as_str()))
            .collect()
    }
}

/// `current` pods, of which each container asks for a core and uses these thousandths.
fn round(spec: &Value, current: i32, levels: &[i64], written: Result<(), String>) -> Done {
    let now = Timestamp::now();
    let letters = "r".repeat(usize::try_from(current).unwrap());
    let pods = pods(&letters, &["1"; 10], now);
    let measured: Measured = Some(if levels.is_empty() {
        Err("no metrics returned from resource metrics API".to_owned())
    } else {
        Ok(metrics("cpu", &both(levels), now))
    });
    let (hpa, mut history) = (hpa(spec), History::default());
    let mut draft = Draft::of(&hpa, now);
    let round = Round {
        hpa: &hpa,
        seen: Seen {
            tolerances: plan::tolerances(&hpa, 0.1),
            ..seen(&pods, current, "", now)
        },
        measured: &measured,
        downscale_stabilization: Duration::ZERO,
        now: Instant::now(),
    };
    let Some(decision) = plan::measured(&round, &mut history, &mut draft) else {
        return Done {
            scaled: None,
            draft,
        };
    };
    let scaled = decision.rescale.as_ref().map(|_| decision.desired);
    plan::settle(&hpa, decision, written, &mut history, &mut draft, round.now);
    Done { scaled, draft }
}

#[test]
fn a_target_that_is_used_too_much_grows() {
    let done = round(&json!({}), 3, &[300, 500, 700], Ok(()));
    assert_eq!(done.scaled, Some(5));
    let reason = "cpu resource utilization (percentage of request) above target";
    let event = format!("New size: 5; reason: {reason}");
    assert_eq!(done.events(), [("SuccessfulRescale", event.as_str())]);
    assert_eq!(done.draft.events[0].kind, EventType::Normal);
    let able = "the HPA controller was able to update the target scale to 5";
    assert_eq!(
        done.condition("AbleToScale"),
        ("True", "SucceededRescale", able)
    );
    let active = "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)";
    assert_eq!(
        done.condition("ScalingActive"),
        ("True", "ValidMetricFound", active)
    );
    let limited = "the desired count is within the acceptable range";
    assert_eq!(
        done.condition("ScalingLimited"),
        ("False", "DesiredWithinRange", limited)
    );
    let status = serde_json::to_value(&done.draft.status).unwrap();
    assert_eq!(
        (
            &status["currentReplicas"],
            &status["desiredReplicas"],
            &status["observedGeneration"]
        ),
        (&json!(3), &json!(5), &json!(7))
    );
    let current = json!({"averageUtilization": 50, "averageValue": "1"});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
    assert_eq!(status["currentMetrics"], json!([metric]));
    assert!(status["lastScaleTime"].is_string());
}

#[test]
fn a_target_that_is_used_too_little_shrinks_to_its_bounds() {
    let done = round(&json!({"minReplicas": 4}), 5, &[10; 5], Ok(()));
    assert_eq!(done.scaled, Some(4));
    let told = [(
        "SuccessfulRescale",
        "New size: 4; reason: All metrics below target",
    )];
    assert_eq!(done.events(), told);
    let limited = "the desired replica count is less than the minimum replica count";
    assert_eq!(
        done.condition("ScalingLimited"),
        ("True", "TooFewReplicas", limited)
    );
}

#[test]
fn a_target_that_is_right_is_left_alone() {
    let done = round(&json!({}), 3, &[300, 310, 290], Ok(()));
    assert_eq!((done.scaled, done.events().len()), (None, 0));
    let able = "recommended size matches current size";
    assert_eq!(
        done.condition("AbleToScale"),
        ("True", "ReadyForNewScale", able)
    );
    let status = &done.draft.status;
    assert_eq!(
        (status.desired_replicas, &status.last_scale_time),
        (3, &None)
    );
}

#[test]
fn the_metric_that_wants_most_decides() {
    let done = round(
        &json!({"metrics": [cpu(50), cpu(30), cpu(80)]}),
        3,
        &[500; 3],
        Ok(()),
    );
    assert_eq!(done.scaled, Some(5));
}

#[test]
fn a_metric_that_is_not_known_stops_what_would_shrink() {
    let queue = json!({"type": "External", "external": {"metric": {"name": "queue"},
        "target": {"type": "AverageValue", "averageValue": "1"}}});
    let spec = json!({"metrics": [cpu(30), queue]});
    let more = round(&spec, 3, &[300, 500, 700], Ok(()));
    assert_eq!(
        (more.scaled, more.condition("ScalingActive").1),
        (Some(5), "ValidMetricFound")
    );
    let less = round(&spec, 3, &[10; 3], Ok(()));
    assert_eq!(less.scaled, None);
    assert_eq!(less.condition("ScalingActive").1, "FailedGetExternalMetric");
    let status = serde_json::to_value(&less.draft.status).unwrap();
    assert_eq!(status["currentMetrics"][1], json!({"type": ""}));
}

#[test]
fn what_nobody_serves_is_said_as_upstream_says_it() {
    let metric = |name| json!({"name": name});
    let average = json!({"type": "AverageValue", "averageValue": "1"});
    let value = json!({"type": "Value", "value": "1"});
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"});
    let selected = json!({"name": "queue", "selector": {"matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}});
    let custom = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    let external = "unable to fetch metrics from external metrics API: the server could not find the requested resource (get queue.external.metrics.k8s.io)";
    let on_queue = |selector: &str| {
        format!("unable to get external metric default/queue/{selector}: {external}")
    };
    let shown = "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[d e],},},}";
    let pods = format!("unable to get metric qps: {custom}");
    let on_object = format!("unable to get metric qps: Ingress on default main/{custom}");
    // The metric, the reason, the message of the condition, and what comes before it in the Event
    // about all.
    let table = [
        (
            json!({"type": "Pods", "pods": {"metric": metric("qps"), "target": average}}),
            "FailedGetPodsMetric",
            pods,
            "failed to get pods metric value: ",
        ),
        (
            json!({"type": "Object", "object": {"metric": metric("qps"), "describedObject": object, "target": value}}),
            "FailedGetObjectMetric",
            on_object.clone(),
            "failed to get object metric value: ",
        ),
        (
            json!({"type": "Object", "object": {"metric": metric("qps"), "describedObject": object, "target": average}}),
            "FailedGetObjectMetric",
            on_object,
            "failed to get object metric value: failed to get qps object metric: ",
        ),
        (
            json!({"type": "External", "external": {"metric": metric("queue"), "target": average}}),
            "FailedGetExternalMetric",
            on_queue("nil"),
            "failed to get queue external metric value: failed to get queue external metric: ",
        ),
        (
            json!({"type": "External", "external": {"metric": selected, "target": value}}),
            "FailedGetExternalMetric",
            on_queue(shown),
            "failed to get queue external metric value: failed to get external metric queue: ",
        ),
    ];
    for (metric, reason, why, before) in table {
        let done = round(&json!({"metrics": [metric]}), 3, &[], Ok(()));
        let message = format!("the HPA was unable to compute the replica count: {why}");
        assert_eq!(
            done.condition("ScalingActive"),
            ("False", reason, message.as_str())
        );
        let all = format!("invalid metrics (1 invalid out of 1), first error is: {before}{why}");
        let told = [
            (reason, why.as_str()),
            ("FailedComputeMetricsReplicas", all.as_str()),
        ];
        assert_eq!(done.events(), told);
    }
}

#[test]
fn a_silent_metrics_api_is_told_of() {
    let done = round(&json!({}), 3, &[], Ok(()));
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let all = format!(
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {why}"
    );
    let told = [
        ("FailedGetResourceMetric", why),
        ("FailedComputeMetricsReplicas", all.as_str()),
    ];
    assert_eq!(done.events(), told);
    let status = &done.draft.status;
    assert_eq!(
        (status.current_replicas, status.desired_replicas),
        (Some(3), 0)
    );
}

#[test]
fn a_container_is_measured_by_itself() {
    let of = |target: Value| json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "container1", "target": target}});
    let utilization = of(json!({"type": "Utilization", "averageUtilization": 30}));
    let done = round(
        &json!({"metrics": [utilization]}),
        3,
        &[300, 500, 700],
        Ok(()),
    );
    assert_eq!(done.scaled, Some(5));
    let name = "cpu container resource utilization (percentage of request) above target";
    assert_eq!(done.events()[0].1, format!("New size: 5; reason: {name}"));
    let average = of(json!({"type": "AverageValue", "averageValue": "300m"}));
    let done = round(&json!({"metrics": [average]}), 3, &[300, 500, 700], Ok(()));
    assert_eq!(
        done.events()[0].1,
        "New size: 5; reason: cpu resource above target"
    );
    let status = serde_json::to_value(&done.draft.status).unwrap();
    let current = &status["currentMetrics"][0]["containerResource"];
    let expect =
        json!({"name": "cpu", "container": "container1", "current": {"averageValue": "500m"}});
    assert_eq!(current, &expect);
}

#[test]
fn a_target_that_cannot_be_written_keeps_its_size() {
    let done = round(&json!({}), 3, &[300, 500, 700], Err("boom".to_owned()));
    let reason = "cpu resource utilization (percentage of request) above target";
    let event = format!("New size: 5; reason: {reason}; error: boom");
    assert_eq!(done.events(), [("FailedRescale", event.as_str())]);
    let able = "the HPA controller was unable to update the target scale: boom";
    assert_eq!(
        done.condition("AbleToScale"),
        ("False", "FailedUpdateScale", able)
    );
    let status = &done.draft.status;
    assert_eq!(
        (status.desired_replicas, &status.last_scale_time),
        (0, &None)
    );
}

#[test]
fn behaviours_hold_it_back() {
    let policy = json!({"type": "Pods", "value": 1, "periodSeconds": 60});
    let rules =
        json!({"policies": [policy], "selectPolicy": "Max", "stabilizationWindowSeconds": 0});
    let spec = json!({"behavior": {"scaleUp": rules, "scaleDown": rules}});
    let more = round(&spec, 3, &[300, 500, 700], Ok(()));
    assert_eq!(
        (more.scaled, more.condition("ScalingLimited").1),
        (Some(4), "ScaleUpLimit")
    );
    let less = round(&spec, 5, &[10; 5], Ok(()));
    assert_eq!(
        (less.scaled, less.condition("ScalingLimited").1),
        (Some(4), "ScaleDownLimit")
    );
    let mut wide = spec;
    wide["behavior"]["scaleUp"]["tolerance"] = json!("1");
    assert_eq!(round(&wide, 3, &[300, 500, 700], Ok(())).scaled, None);
}

#[test]
fn the_size_alone_may_decide() {
    let hpa = hpa(&json!({}));
    let bound = |to, reason| Next::Bound { to, reason };
    let above = "Current number of replicas above Spec.MaxReplicas";
    let below = "Current number of replicas below Spec.MinReplicas";
    let table = [
        (0, Next::Disabled),
        (1, bound(2, below)),
        (2, Next::Measure),
        (6, Next::Measure),
        (7, bound(6, above)),
    ];
    for (current, expect) in table {
        assert_eq!(plan::next(&hpa, current), expect, "{current}");
    }
    let mut draft = Draft::of(&hpa, Timestamp::now());
    let decision = plan::disabled(&mut draft);
    assert_eq!((decision.desired, decision.rescale), (0, None));
    let condition = &draft.status.conditions.unwrap()[0];
    assert_eq!(
        (condition.reason.as_deref(), condition.message.as_deref()),
        (
            Some("ScalingDisabled"),
            Some("scaling is disabled since the replica count of the target is zero")
        )
    );
}

#[test]
fn a_condition_keeps_its_time_while_it_holds() {
    let mut hpa = hpa(&json!({}));
    let first = Timestamp::now();
    let later = first.checked_add(Duration::from_secs(60)).unwrap();
    let mut draft = Draft::of(&hpa, first);
    draft.condition("AbleToScale", true, "One", "one");
    hpa.status = Some(draft.status);
    let since = |hpa: &HorizontalPodAutoscaler, holds| {
        let mut draft = Draft::of(hpa, later);
        draft.condition("AbleToScale", holds, "Two", "two");
        let conditions = draft.status.conditions.unwrap();
        conditions[0].last_transition_time.as_ref().unwrap().0
    };
    assert_eq!(
        since(&hpa, false)
            .duration_since(since(&hpa, true))
            .as_secs(),
        60
    );
}
