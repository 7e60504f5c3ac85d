//! What a PodDisruptionBudget says to the eviction of a pod. Pure.
//!
//! Source: `checkAndDecrement`, `canIgnorePDB` in `pkg/registry/core/pod/storage/eviction.go` at
//! v1.37.

use coracle_api::{
    disruption, meta,
    resource::GroupResource,
    status::{Cause, Reason, Status},
};
use serde_json::Value;

/// Evictions that the controller has not confirmed, beyond which there are none.
const DISRUPTED_MAX: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// What clients that were told to wait are told to wait.
const RETRY_SECS: u32 = 10;

/// Whether the pod has ended, or is about to.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(
        meta::get_str(pod, &["status", "phase"]),
        "Succeeded" | "Failed"
    ) || meta::is_terminating(pod)
}

/// Whether no budget is asked: nothing runs that could be disrupted.
pub(super) fn is_free(pod: &Value) -> bool {
    is_over(pod) || meta::get_str(pod, &["status", "phase"]) == "Pending"
}

/// How a budget guards a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The pod counts: its eviction has to be charged.
    Charged,
    /// The pod does not count, and the budget lets such pods go.
    Unhealthy,
}

pub(super) fn guard(budget: &Value, pod: &Value) -> Guard {
    let conditions = meta::get_array(pod, &["status", "conditions"]);
    let is_ready = conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let (healthy, desired) = (
        number(budget, "currentHealthy"),
        number(budget, "desiredHealthy"),
    );
    let is_undisturbed = healthy >= desired && desired > 0;
    if !is_ready
        && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || is_undisturbed)
    {
        return Guard::Unhealthy;
    }
    Guard::Charged
}

/// The budget after the disruption of one more pod.
///
/// # Errors
/// What the client is told if there must not be one.
pub(super) fn charge(budget: &Value, pod: &str) -> Result<Value, Status> {
    let name = meta::name(budget);
    if number(budget, "observedGeneration") < meta::generation(budget) {
        return Err(in_process(name));
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden(
            name,
            "pdb disruptions allowed is negative",
            "pdb disruptions allowed is negative",
        ));
    }
    if meta::get(budget, &["status", "disruptedPods"])
        .and_then(Value::as_object)
        .is_some_and(|pods| pods.len() > DISRUPTED_MAX)
    {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(
            name,
            why,
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(with_cause(
            Status::too_many_requests_because(REFUSED, 0),
            refusal(budget),
        ));
    }
    let mut charged = budget.clone();
    charged["status"]["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        disruption::settle(&mut charged["status"]);
    }
    meta::set(&mut charged, &["status", "disruptedPods", pod], meta::now());
    meta::remove(&mut charged, &["metadata", "resourceVersion"]);
    Ok(charged)
}

/// Why the budget allows no disruption.
fn refusal(budget: &Value) -> String {
    let name = meta::name(budget);
    let refused = disruption::condition(&budget["status"]).filter(|one| one["status"] == "False");
    let said = refused.map_or("", |condition| meta::get_str(condition, &["message"]));
    let reason = refused.map_or("", |condition| meta::get_str(condition, &["reason"]));
    let (healthy, desired) = (
        number(budget, "currentHealthy"),
        number(budget, "desiredHealthy"),
    );
    let not_now = format!("The disruption budget {name} does not allow evicting pods currently");
    // The numbers are not to be trusted after a failed count.
    if !said.is_empty() && reason == disruption::SYNC_FAILED {
        format!("{not_now} because it failed sync: {said}")
    } else if healthy <= desired {
        format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    } else if !said.is_empty() {
        format!("{not_now} ({reason}): {said}")
    } else {
        not_now
    }
}

/// 429: the controller has not counted yet.
pub(super) fn in_process(budget: &str) -> Status {
    let message = format!("The disruption budget {budget} is still being processed by the server.");
    with_cause(
        Status::too_many_requests_because(REFUSED, RETRY_SECS),
        message,
    )
}

/// 500: which of several budgets to charge cannot be said.
pub(super) fn too_many() -> Status {
    let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    Status::new(500, Reason::Unknown, message)
}

fn forbidden(budget: &str, why: &str, said: &str) -> Status {
    let message =
        format!("The disruption budget {budget} does not allow evicting pods currently: {said}");
    with_cause(
        Status::forbidden(
            &GroupResource::new("policy", "poddisruptionbudget"),
            budget,
            why,
        ),
        message,
    )
}

fn with_cause(mut status: Status, message: String) -> Status {
    let cause = Cause {
        kind: "DisruptionBudget".to_owned(),
        message,
        field: String::new(),
    };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

fn number(budget: &Value, field: &str) -> i64 {
    meta::get_i64(budget, &["status", field]).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 1, "resourceVersion": "7"}, "spec": {}, "status": status})
    }

    #[test]
    fn what_does_not_run_needs_no_budget() {
        for (phase, is_free, is_over) in [
            ("Pending", true, false),
            ("Running", false, false),
            ("Succeeded", true, true),
            ("Failed", true, true),
        ] {
            let pod = json!({"status": {"phase": phase}});
            assert_eq!(
                (super::is_free(&pod), super::is_over(&pod)),
                (is_free, is_over),
                "{phase}"
            );
        }
        assert!(is_free(
            &json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})
        ));
    }

    #[test]
    fn unready_pods_go_as_the_policy_says() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        for (pod, policy, healthy, desired, expect) in [
            (&ready, "AlwaysAllow", 3, 1, Guard::Charged),
            (&unready, "AlwaysAllow", 0, 1, Guard::Unhealthy),
            (&unready, "IfHealthyBudget", 1, 1, Guard::Unhealthy),
            (&unready, "IfHealthyBudget", 0, 1, Guard::Charged),
            (&unready, "", 0, 0, Guard::Charged),
        ] {
            let mut budget = budget(json!({"currentHealthy": healthy, "desiredHealthy": desired}));
            budget["spec"]["unhealthyPodEvictionPolicy"] = policy.into();
            assert_eq!(guard(&budget, pod), expect, "{policy} {healthy} {desired}");
        }
    }

    #[test]
    fn a_disruption_is_taken_from_the_budget() {
        let two = budget(json!({"disruptionsAllowed": 2, "observedGeneration": 1}));
        let one = charge(&two, "p").unwrap();
        assert_eq!(one["status"]["disruptionsAllowed"], 1);
        assert!(
            one["status"]["disruptedPods"]["p"].is_string()
                && disruption::condition(&one["status"]).is_none()
        );
        let none = charge(&one, "q").unwrap();
        assert_eq!(
            none["status"]["disruptedPods"].as_object().unwrap().len(),
            2
        );
        assert_eq!(
            disruption::condition(&none["status"]).unwrap()["reason"],
            "InsufficientPods"
        );
        assert_eq!(charge(&none, "r").unwrap_err().code, 429);
    }

    #[test]
    fn refusals_say_why() {
        let many: Value = (0..=DISRUPTED_MAX)
            .map(|number| (number.to_string(), ""))
            .collect();
        let failed = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "oh"});
        for (status, code, retry, cause) in [
            (
                json!({}),
                429,
                10,
                "The disruption budget b is still being processed by the server.",
            ),
            (
                json!({"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 1}),
                429,
                0,
                "The disruption budget b needs 2 healthy pods and has 1 currently",
            ),
            (
                json!({"observedGeneration": 1, "conditions": [failed]}),
                429,
                0,
                "The disruption budget b does not allow evicting pods currently because it failed sync: oh",
            ),
            (
                json!({"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 2}),
                429,
                0,
                "The disruption budget b does not allow evicting pods currently",
            ),
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": -1}),
                403,
                0,
                "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative",
            ),
            (
                json!({"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": many}),
                403,
                0,
                "The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller",
            ),
        ] {
            let refused = charge(&budget(status), "p").unwrap_err();
            let details = refused.details.unwrap();
            assert_eq!(
                (refused.code, details.retry_after_seconds),
                (code, retry),
                "{cause}"
            );
            assert_eq!(
                (
                    details.causes[0].kind.as_str(),
                    details.causes[0].message.as_str()
                ),
                ("DisruptionBudget", cause)
            );
        }
    }
}
