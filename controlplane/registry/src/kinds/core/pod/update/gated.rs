//! Where a pod may go that is not to be scheduled yet: it may be said more closely, so that who
//! holds its gate decides, and who merely updates it undoes nothing.
//!
//! Source: `ValidatePodUpdate`, `validateNodeSelectorMutation` and `validateNodeAffinityMutation`
//! in `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::{Map, Value};

use super::copy;
use crate::value::items;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks `nodeSelector` and node affinity of `masked`, and makes them the old ones: what else
/// differs is not allowed. Affinity to pods is not to change at all.
pub(super) fn narrowing(errors: &mut FieldErrors, masked: &mut Value, old: &Value) {
    selector(errors, &masked["nodeSelector"], &old["nodeSelector"]);
    copy(masked, old, "nodeSelector");
    let (after, before) = (
        &masked["affinity"]["nodeAffinity"],
        &old["affinity"]["nodeAffinity"],
    );
    if after == before {
        return;
    }
    terms(
        errors,
        &after[REQUIRED]["nodeSelectorTerms"],
        &before[REQUIRED]["nodeSelectorTerms"],
    );
    let is_about_pods = ["podAffinity", "podAntiAffinity"]
        .iter()
        .any(|field| masked["affinity"][*field].is_object());
    if !old["affinity"].is_object() && !is_about_pods {
        copy(masked, old, "affinity");
        return;
    }
    if !masked["affinity"].is_object() {
        masked["affinity"] = Map::new().into();
    }
    copy(&mut masked["affinity"], &old["affinity"], "nodeAffinity");
}

fn selector(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let mut before = old.as_object().into_iter().flatten();
    if !before.all(|(key, value)| new.get(key) == Some(value)) {
        let message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid("spec.nodeSelector", new, message);
    }
}

/// One of them has to match, so that none may be added; within a term everything has to.
fn terms(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let (after, before) = (items(new), items(old));
    if before.is_empty() {
        return;
    }
    if after.len() != before.len() {
        errors.invalid(
            path,
            new,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
        return;
    }
    for (index, (after, before)) in after.iter().zip(before).enumerate() {
        if !has_only_additions(after, before) {
            let message = "only additions are allowed (no mutations or deletions)";
            errors.invalid(format!("{path}[{index}]"), after, message);
        }
    }
}

/// An empty term matches nothing, so that any addition would widen it.
fn has_only_additions(new: &Value, old: &Value) -> bool {
    let lists =
        ["matchExpressions", "matchFields"].map(|field| (items(&new[field]), items(&old[field])));
    let is_empty = lists.iter().all(|(_, old)| old.is_empty());
    lists.iter().all(|(new, old)| {
        if is_empty {
            new.is_empty()
        } else {
            new.starts_with(old)
        }
    })
}
