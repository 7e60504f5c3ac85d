//! What is known and written of policies, for whoever asks.

use coracle_netfilter::policy::Plan;
use coracle_policy::tracker::Tracker;

/// What holds this node's pods to their policies.
#[derive(Debug, Clone)]
pub struct PolicyPlan {
    /// The cluster as policies see it.
    pub tracker: Tracker,
    /// What the kernel has been told.
    pub written: Plan,
    /// Whether all is known that policies look at, on every node.
    pub is_complete: bool,
    /// Why the kernel may have something else.
    pub trouble: Option<String>,
}
