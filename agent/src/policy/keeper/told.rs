//! What others are told of policies: by events, and when they ask.

use coracle_netfilter::{
    nftables::policies::RefusedPolicies,
    policy::{Plan, PolicyKey},
};
use coracle_telemetry::ErrorChain;
use tokio::time::Instant;

use super::{
    super::{
        enforcer::{EnforceError, Enforcer},
        plan::PolicyPlan,
    },
    Keeper,
};
use crate::events::EventType;

impl Keeper {
    /// For who asks what is enforced.
    pub(super) fn plan(&self) -> PolicyPlan {
        let is_complete = self.is_settled();
        let trouble = match (self.retry_at, is_complete) {
            (Some(_), _) => Some("they cannot be written, and are tried again"),
            (None, false) => Some("not all that they look at is known yet"),
            (None, true) => None,
        };
        let enforcer = self.enforcer.as_ref();
        PolicyPlan {
            tracker: self.tracker.clone(),
            written: enforcer.map_or_else(Plan::default, |kernel| kernel.plan().clone()),
            is_complete,
            trouble: trouble.map(str::to_owned),
        }
    }

    pub(super) fn tell_of_flaw(&self, policy: &PolicyKey, why: &str) {
        let message = format!(
            "NetworkPolicy {policy} cannot be read, and lets nothing through on this node: {why}"
        );
        self.events
            .node(EventType::Warning, "NetworkPolicyUnreadable", message);
    }

    /// What their pods have open is cut, too.
    pub(super) fn tell_of_refused(&mut self) {
        let refused = self.enforcer.as_mut().map(Enforcer::take_refused);
        for RefusedPolicies { policies, why } in refused.into_iter().flatten() {
            self.cut_due = true;
            let message = format!(
                "the kernel refuses rules of NetworkPolicies, which let nothing through on this node until they change or it takes them: {}: {why}",
                listed(&policies)
            );
            tracing::error!("{message}");
            self.events
                .node(EventType::Warning, "NetworkPoliciesRefused", message);
        }
    }

    pub(super) fn tell_of_overfull(&self, policies: &[PolicyKey]) {
        let message = format!(
            "{} NetworkPolicies that select one pod have too many rules together, and let nothing through on this node: {}",
            policies.len(),
            listed(policies)
        );
        self.events
            .node(EventType::Warning, "NetworkPoliciesTooLarge", message);
    }

    /// Says why.
    pub(super) fn fail(&mut self, error: &EnforceError) -> String {
        let why = ErrorChain(error).to_string();
        let delay = self.retry.pause();
        let is_first = self.retry_at.replace(Instant::now() + delay).is_none();
        tracing::error!(
            error = why,
            ?delay,
            "cannot write NetworkPolicies; trying again"
        );
        if is_first {
            let message = format!(
                "NetworkPolicies cannot be enforced on this node, and pods that they select do not start: {why}"
            );
            self.events
                .node(EventType::Warning, "NetworkPoliciesFailing", message);
        }
        why
    }
}

/// In one event.
const NAMED: usize = 8;

fn listed(policies: &[PolicyKey]) -> String {
    let names = policies.iter().take(NAMED).map(ToString::to_string);
    let mut listed = names.collect::<Vec<_>>().join(", ");
    if policies.len() > NAMED {
        listed.push_str(&format!(" and {} more", policies.len() - NAMED));
    }
    listed
}
