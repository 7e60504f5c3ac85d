//! What of the plan for Services the proxy alone knows, for whoever asks.

use std::collections::{BTreeMap, BTreeSet};

use coracle_netfilter::service::{ServiceKey, ServiceNetwork, ServiceView};

/// A copy, for one answer.
#[derive(Debug, Clone)]
pub(super) struct Owned {
    pub(super) engine: &'static str,
    pub(super) network: ServiceNetwork,
    /// Services with addresses of their owner's choice, without what is somebody else's.
    pub(super) external: BTreeMap<ServiceKey, ServiceView>,
    /// They have changed and are not written yet.
    pub(super) waiting: BTreeSet<ServiceKey>,
    /// The kernel does not take them.
    pub(super) refused: BTreeSet<ServiceKey>,
    /// The last transaction failed.
    pub(super) is_failing: bool,
}
