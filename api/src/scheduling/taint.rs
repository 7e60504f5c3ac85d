//! Tolerations against taints.
//!
//! Source: `ToleratesTaint` in `k8s.io/api/core/v1/toleration.go` at v1.37. Its operators `Lt` and
//! `Gt` are behind a gate that is off (`TaintTolerationComparisonOperators`), and match nothing.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration matches a taint: an unsaid effect matches every effect, an unsaid key every
/// key.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    fn said(field: &Option<String>) -> &str {
        field.as_deref().unwrap_or_default()
    }
    let (key, effect) = (said(&toleration.key), said(&toleration.effect));
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match said(&toleration.operator) {
        "Exists" => true,
        "" | "Equal" => said(&toleration.value) == said(&taint.value),
        _ => false,
    }
}

/// Whether any of them does.
#[must_use]
pub fn tolerates_any(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations
        .iter()
        .any(|toleration| tolerates(toleration, taint))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taint(value: Value) -> Taint {
        serde_json::from_value(value).expect("a taint")
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let valued = taint(json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
        let bare = taint(json!({"key": "k", "effect": "NoExecute"}));
        let number = taint(json!({"key": "k", "value": "5", "effect": "NoExecute"}));
        for (toleration, taint, expect) in [
            (
                json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
                &valued,
                true,
            ),
            (json!({"key": "k", "value": "v"}), &valued, true),
            (
                json!({"key": "k", "operator": "", "value": "v", "effect": ""}),
                &valued,
                true,
            ),
            (json!({"key": "k", "value": "other"}), &valued, false),
            (json!({"key": "k"}), &valued, false),
            (json!({"key": "k", "operator": "Exists"}), &valued, true),
            (json!({"operator": "Exists"}), &valued, true),
            (
                json!({"operator": "Exists", "effect": "NoSchedule"}),
                &valued,
                true,
            ),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                &valued,
                false,
            ),
            (
                json!({"key": "other", "operator": "Exists"}),
                &valued,
                false,
            ),
            (json!({"key": "k"}), &bare, true),
            (json!({"key": "k", "value": ""}), &bare, true),
            (
                json!({"key": "k", "operator": "Gt", "value": "4"}),
                &number,
                false,
            ),
            (
                json!({"key": "k", "operator": "Lt", "value": "6"}),
                &number,
                false,
            ),
        ] {
            let parsed = serde_json::from_value(toleration.clone()).expect("a toleration");
            assert_eq!(tolerates(&parsed, taint), expect, "{toleration} {taint:?}");
        }
    }

    #[test]
    fn one_toleration_that_matches_is_enough() {
        let taint = taint(json!({"key": "k", "effect": "NoExecute"}));
        let list: Vec<Toleration> =
            serde_json::from_value(json!([{"key": "other", "operator": "Exists"}, {"key": "k"}]))
                .expect("tolerations");
        assert!(
            tolerates_any(&list, &taint)
                && !tolerates_any(&list[..1], &taint)
                && !tolerates_any(&[], &taint)
        );
    }
}
