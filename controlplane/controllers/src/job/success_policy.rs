//! Whether a Job has succeeded by its `successPolicy`, before all of its indexes have. Pure.
//!
//! Source: `pkg/controller/job/success_policy.go` at v1.37.

use k8s_openapi::api::batch::v1::{JobSpec, SuccessPolicyRule};

use super::{indexes::Indexes, observed::completions};

/// The message of the first rule that is met.
pub(super) fn met(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    let rules = &spec.success_policy.as_ref()?.rules;
    if succeeded.is_empty() {
        return None;
    }
    let met = |rule: &SuccessPolicyRule| is_met(rule, completions(spec), succeeded);
    let index = rules.iter().position(met)?;
    Some(format!("Matched rules at index {index}"))
}

fn is_met(rule: &SuccessPolicyRule, completions: u32, succeeded: &Indexes) -> bool {
    let reaches = |count: usize| {
        let wanted = rule.succeeded_count.map(usize::try_from);
        wanted.is_some_and(|wanted| wanted.is_ok_and(|wanted| count >= wanted))
    };
    let Some(text) = &rule.succeeded_indexes else {
        return reaches(succeeded.len());
    };
    let required = Indexes::parse(text, completions);
    let done = required.common(succeeded);
    // Of a rule whose indexes cannot be read nothing is known.
    !required.is_empty() && (done == required.len() || reaches(done))
}
