//! What comes of a mutating policy that fails.

use coracle_api::status::{Cause, Reason, Status};

use super::{
    index::{Binding, Hook},
    mutation::Mutator,
};
use crate::attributes::Attributes;

/// Why a policy could not do its work.
pub(super) struct Failure {
    message: String,
    /// What it makes of the refusal, if not Forbidden.
    reason: Option<Reason>,
}

impl Hook<Mutator> {
    pub(super) fn misconfigured(&self, binding: Option<&Binding>, why: &str) -> Option<Failure> {
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let message = format!("failed to configure {what}: {why}");
        self.failure(binding, &message, None)
    }

    pub(super) fn failed(&self, binding: &Binding, why: &str) -> Option<Failure> {
        self.failure(Some(binding), why, Some(Reason::Invalid))
    }

    fn failure(
        &self,
        binding: Option<&Binding>,
        why: &str,
        reason: Option<Reason>,
    ) -> Option<Failure> {
        let policy = &self.name;
        let message = match binding {
            Some(Binding { name, .. }) => {
                format!("policy '{policy}' with binding '{name}' denied request: {why}")
            }
            None => format!("policy {policy:?} denied request: {why}"),
        };
        self.is_strict.then_some(Failure { message, reason })
    }
}

/// The first failure gives its message and reason; all are causes.
pub(super) fn refusal(attributes: &Attributes<'_>, failures: Vec<Failure>) -> Status {
    let mut status = attributes.forbidden("admission request denied by policy");
    if let Some(first) = failures.first() {
        status.message.clone_from(&first.message);
        status.reason = first.reason.unwrap_or(status.reason);
    }
    let causes = failures.into_iter().map(|failure| Cause {
        message: failure.message,
        ..Cause::default()
    });
    status.details.get_or_insert_default().causes.extend(causes);
    status
}
