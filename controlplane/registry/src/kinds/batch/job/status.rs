//! What may be said of a Job's state, by whatever controls it: its end stays, and says one thing.
//!
//! What a new spec alone made wrong is its controller's to mend: of most fields only changes are
//! judged.
//!
//! Source: `validateJobStatus` and `ValidateJobStatusUpdate` in
//! `pkg/apis/batch/validation/validation.go`, `getStatusValidationOptions` in
//! `pkg/registry/batch/job/strategy.go` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::has_condition;
use crate::{
    kinds::workload,
    value::{items, number, string, unix_seconds},
};

const CONDITIONS: &str = "status.conditions";

/// A Job before and after.
struct Change<'a> {
    new: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    fn has(&self, kind: &str) -> bool {
        has_condition(self.new, kind)
    }

    fn had(&self, kind: &str) -> bool {
        has_condition(self.old, kind)
    }

    fn flips(&self, kind: &str) -> bool {
        self.has(kind) != self.had(kind)
    }

    fn is_finished(&self) -> bool {
        self.has("Complete") || self.has("Failed")
    }

    fn finishes(&self) -> bool {
        self.is_finished() != (self.had("Complete") || self.had("Failed"))
    }

    fn changes(&self, field: &str) -> bool {
        self.new["status"][field] != self.old["status"][field]
    }

    /// Of a field that counts: absent is zero.
    fn counts_anew(&self, field: &str) -> bool {
        number(&self.new["status"][field]) != number(&self.old["status"][field])
    }
}

pub(super) fn validate(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let change = Change { new, old };
    let counts = ["active", "succeeded", "failed", "ready", "terminating"];
    workload::counts(errors, &new["status"], &counts, &[]);
    uncounted(errors, &new["status"]["uncountedTerminatedPods"]);
    ends(errors, &change);
    pods_of_the_end(errors, &change);
    indexes(errors, &change);
    if (change.counts_anew("ready") || change.counts_anew("active"))
        && number(&new["status"]["ready"]) > number(&new["status"]["active"])
    {
        let message = "cannot set more ready pods than active";
        errors.invalid("status.ready", &new["status"]["ready"], message);
    }
    success_criteria(errors, &change);
    never_again(errors, &change);
}

fn uncounted(errors: &mut FieldErrors, uncounted: &Value) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        for (index, uid) in items(&uncounted[list]).iter().enumerate() {
            let path = format!("status.uncountedTerminatedPods.{list}[{index}]");
            if string(uid).is_empty() {
                errors.invalid(path, uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(path, uid);
            }
        }
    }
}

/// The conditions of an end, and its times.
fn ends(errors: &mut FieldErrors, change: &Change<'_>) {
    let status = &change.new["status"];
    for (other, word) in [
        ("Failed", "Failed=true"),
        ("FailureTarget", "FailureTarget=true"),
    ] {
        if (change.flips("Complete") || change.flips(other))
            && change.has("Complete")
            && change.has(other)
        {
            let message = format!("cannot set Complete=True and {word} conditions");
            errors.invalid_unshown(CONDITIONS, message);
        }
    }
    let (start, end) = (&status["startTime"], &status["completionTime"]);
    if change.flips("Complete") || change.changes("completionTime") {
        if !end.is_null() && !change.has("Complete") {
            let message = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid("status.completionTime", end, message);
        }
        if end.is_null() && change.has("Complete") {
            let message = "completionTime is required for Complete jobs";
            errors.required("status.completionTime", message);
        }
    }
    if (change.changes("startTime") || change.changes("completionTime"))
        && let (Some(start), Some(ended)) = (unix_seconds(start), unix_seconds(end))
        && ended < start
    {
        let message = "completionTime cannot be set before startTime";
        errors.invalid("status.completionTime", end, message);
    }
    for (end, decision, word) in [
        ("Failed", "FailureTarget", "FailureTarget=true"),
        ("Complete", "SuccessCriteriaMet", "SuccessCriteriaMet=true"),
    ] {
        if (change.flips(end) || change.flips(decision)) && change.has(end) && !change.has(decision)
        {
            let message = format!("cannot set {end}=True condition without the {word} condition");
            errors.invalid_unshown(CONDITIONS, message);
        }
    }
}

/// A Job that is finished has nothing under way.
fn pods_of_the_end(errors: &mut FieldErrors, change: &Change<'_>) {
    if !change.is_finished() {
        return;
    }
    let (spec, status) = (&change.new["spec"], &change.new["status"]);
    let finishes = change.finishes();
    if (finishes || change.counts_anew("active")) && number(&status["active"]) > 0 {
        let message = "active>0 is invalid for finished job";
        errors.invalid("status.active", &status["active"], message);
    }
    // One that was never to do anything may end before it starts.
    let is_nothing = spec["suspend"] == true && spec["completions"] == 0;
    if (finishes || change.changes("startTime")) && status["startTime"].is_null() && !is_nothing {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let uncounted = &status["uncountedTerminatedPods"];
    let waiting = items(&uncounted["failed"]).len() + items(&uncounted["succeeded"]).len();
    if (finishes || change.changes("uncountedTerminatedPods")) && waiting > 0 {
        let message = "uncountedTerminatedPods needs to be empty for finished job";
        errors.invalid("status.uncountedTerminatedPods", uncounted, message);
    }
    if (finishes || change.counts_anew("terminating")) && number(&status["terminating"]) > 0 {
        let message = "terminating>0 is invalid for finished job";
        errors.invalid("status.terminating", &status["terminating"], message);
    }
}

/// Indexes are of Jobs that have such.
fn indexes(errors: &mut FieldErrors, change: &Change<'_>) {
    let (spec, status) = (&change.new["spec"], &change.new["status"]);
    let (completed, failed) = (&status["completedIndexes"], &status["failedIndexes"]);
    if change.changes("completedIndexes")
        && spec["completionMode"] != "Indexed"
        && !string(completed).is_empty()
    {
        let message = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid("status.completedIndexes", completed, message);
    }
    if change.changes("failedIndexes")
        && spec["backoffLimitPerIndex"].is_null()
        && failed.is_string()
    {
        let message = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid("status.failedIndexes", failed, message);
    }
}

/// Success is decided once, and not beside failure.
fn success_criteria(errors: &mut FieldErrors, change: &Change<'_>) {
    let is_met = change.has("SuccessCriteriaMet");
    for (other, word) in [
        ("Failed", "Failed=true"),
        ("FailureTarget", "FailureTarget=true"),
    ] {
        if is_met && change.has(other) {
            let message = format!("cannot set SuccessCriteriaMet=True and {word} conditions");
            errors.invalid_unshown(CONDITIONS, message);
        }
    }
    if change.new["spec"]["successPolicy"].is_object() && !is_met && change.has("Complete") {
        let message =
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.invalid_unshown(CONDITIONS, message);
    }
}

/// What was said and cannot be taken back.
fn never_again(errors: &mut FieldErrors, change: &Change<'_>) {
    let (spec, status, old) = (
        &change.new["spec"],
        &change.new["status"],
        &change.old["status"],
    );
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if change.had(kind) && !change.has(kind) {
            let message = format!("cannot disable the terminal {kind}=True condition");
            errors.invalid_unshown(CONDITIONS, message);
        }
    }
    // Indexes that are given up take their successes with them.
    let shrinks = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    for (count, may_shrink) in [("failed", false), ("succeeded", shrinks)] {
        if !may_shrink && number(&status[count]) < number(&old[count]) {
            let path = format!("status.{count}");
            let now = number(&status[count]).into();
            errors.invalid(path, &now, format!("cannot decrease the {count} counter"));
        }
    }
    let (end, old_end) = (&status["completionTime"], &old["completionTime"]);
    if !end.is_null() && !old_end.is_null() && end != old_end {
        let message = "completionTime cannot be mutated";
        errors.invalid("status.completionTime", end, message);
    }
    // A Job that is resumed starts anew.
    let is_resumed = change.had("Suspended") && !change.has("Suspended");
    let is_moved = !old["startTime"].is_null() && change.changes("startTime");
    if is_moved && spec["suspend"] != true && !is_resumed {
        let message = "startTime cannot be removed for unsuspended job";
        errors.required("status.startTime", message);
    }
    if change.had("SuccessCriteriaMet") && !change.has("SuccessCriteriaMet") {
        let message = "cannot disable the SuccessCriteriaMet=True condition";
        errors.invalid_unshown(CONDITIONS, message);
    }
    if change.had("Complete")
        && !change.had("SuccessCriteriaMet")
        && change.has("SuccessCriteriaMet")
    {
        let message =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_unshown(CONDITIONS, message);
    }
}

#[cfg(test)]
mod tests;
