//! The condition `DisruptionAllowed` of a PodDisruptionBudget. Pure.
//!
//! The disruption controller writes it with every count, the eviction of a pod with the last
//! disruption that is taken.
//!
//! Source: `k8s.io/component-helpers/apps/poddisruptionbudget/helpers.go` at v1.37.

use serde_json::{Value, json};

use crate::meta;

/// The condition's type.
pub const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";
/// Its reason while the numbers of the status are not to be trusted.
pub const SYNC_FAILED: &str = "SyncFailed";

/// The condition, if the status has it.
#[must_use]
pub fn condition(status: &Value) -> Option<&Value> {
    meta::get_array(status, &["conditions"])
        .iter()
        .find(|condition| condition["type"] == DISRUPTION_ALLOWED)
}

/// Makes the condition say what `disruptionsAllowed` means.
pub fn settle(status: &mut Value) {
    let is_allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0) > 0;
    set(
        status,
        is_allowed,
        if is_allowed {
            "SufficientPods"
        } else {
            "InsufficientPods"
        },
        "",
    );
}

/// Makes the condition say that the disruptions cannot be counted, and allows none.
pub fn fail(status: &mut Value, why: &str) {
    status["disruptionsAllowed"] = 0.into();
    set(status, false, SYNC_FAILED, why);
}

/// The time of transition stays unless the condition turns.
fn set(status: &mut Value, is_allowed: bool, reason: &str, message: &str) {
    let value = if is_allowed { "True" } else { "False" };
    let since = match condition(status) {
        Some(present) if present["status"] == value => present["lastTransitionTime"].clone(),
        _ => meta::now().into(),
    };
    let wanted = json!({
        "type": DISRUPTION_ALLOWED,
        "status": value,
        "observedGeneration": status["observedGeneration"].as_i64().unwrap_or(0),
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    });
    let others = meta::get_array(status, &["conditions"])
        .iter()
        .filter(|one| one["type"] != DISRUPTION_ALLOWED);
    status["conditions"] = others.cloned().chain([wanted]).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_turns_with_the_count_and_keeps_its_time_otherwise() {
        let mut status = json!({"disruptionsAllowed": 1, "observedGeneration": 3, "conditions": [
            {"type": "Other"},
            {"type": "DisruptionAllowed", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
        settle(&mut status);
        let allowed = condition(&status).unwrap();
        assert_eq!(
            (&allowed["reason"], &allowed["observedGeneration"]),
            (&json!("SufficientPods"), &json!(3))
        );
        assert_eq!(allowed["lastTransitionTime"], "2020-01-01T00:00:00Z");
        status["disruptionsAllowed"] = 0.into();
        settle(&mut status);
        let refused = condition(&status).unwrap();
        assert_eq!(
            (&refused["status"], &refused["reason"]),
            (&json!("False"), &json!("InsufficientPods"))
        );
        assert_ne!(refused["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn failure_allows_nothing_and_says_why() {
        let mut status = json!({"disruptionsAllowed": 4});
        fail(&mut status, "found no controllers for pod \"p\"");
        assert_eq!(status["disruptionsAllowed"], 0);
        let condition = condition(&status).unwrap();
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!(SYNC_FAILED))
        );
        assert_eq!(condition["message"], "found no controllers for pod \"p\"");
    }
}
