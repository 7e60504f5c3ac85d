//! The engine for Services over nftables: each Service is some elements of maps, and the rules are
//! the same for all.
//!
//! ```text
//! prerouting, output -> services: address . protocol . port -> pick-3, or by the ways below
//!                         pick-3: endpoints: address . protocol . port . random(3) -> DNAT
//!                         mark-pick-3: the same, masqueraded
//!                         pick-3-for-10800: client . address . protocol . port: as last time; else the same
//!                         external-local: this node's pods and itself -> anywhere -> pick-3; others -> here -> local-pick-1
//!                         guard: allowed: address . protocol . port . client -> guarded -> as above
//!                         where a port of the node is looked up, the address is 0.0.0.0: node-pick-3
//! before routing -> affinity: remember-for-10800: where the client goes now
//! postrouting -> a pod that reaches itself (hairpins), what is marked: masquerade
//! input, output, forward (new) -> unserved: drop or refuse; the rest of the Services' range: refuse
//! ```
//! A connection looks up one element, however many Services there are; a Service that comes or goes
//! writes its own elements; of a thousand endpoints one that leaves writes three. No program is
//! executed. A transaction is all of a change or nothing of it, and the kernel says of each Service
//! in it why it is not taken.

mod beside;
mod book;
mod comparison;
mod difference;
mod elements;
mod error;
mod layout;
mod parts;
mod pick;
mod probe;
mod reading;
mod sticky;

use std::{collections::BTreeSet, time::Instant};

use coracle_telemetry::ErrorChain;

pub(crate) use self::beside::ServicesBeside;
use self::{book::Book, difference::Difference, parts::TABLE, reading::inherited_order};
pub use self::{error::NftablesError, probe::probe};
use super::{
    batch::Batch,
    beside::Iptabled,
    kept::Kept,
    kernel::{self, CommitError},
};
use crate::{
    engine::{EngineError, Refusal, ServiceEngine},
    flows::Targets,
    generation::Generation,
    iptables::Iptables,
    service::{ServiceKey, ServiceNetwork, ServiceView},
};

/// An endpoint is the same when it is written again.
#[cfg(feature = "fuzzing")]
pub(super) fn check(key: &super::batch::Key, data: &super::batch::Data) {
    if let Some((_, endpoint)) = elements::parse_endpoint(key, data) {
        let value = super::vip::endpoint_value(&endpoint);
        assert_eq!(super::vip::parse_value(&value), Some(endpoint));
    }
}

/// Keeps the table of Services.
#[derive(Debug)]
pub struct Services {
    book: Book,
    /// What is left to iptables, and whether it is so.
    beside: ServicesBeside,
    iptabled: Iptabled,
    /// How a predecessor has numbered endpoints was asked.
    inherited: bool,
    refused_at: Option<Instant>,
    /// Refused since last asked.
    news: Vec<Refusal>,
    kept: Kept,
    /// The kernel's table may differ from what was written.
    suspect: bool,
    /// When the table was found to be right.
    verified: Generation,
}

impl ServiceEngine for Services {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn apply(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, EngineError> {
        self.write_changes(changes).map_err(EngineError::new)
    }

    fn reconcile(&mut self) -> Result<bool, EngineError> {
        self.write_all().map_err(EngineError::new)
    }

    fn is_suspect(&self) -> bool {
        self.suspect
    }

    fn is_disturbed(&self) -> bool {
        self.verified.is_disturbed()
    }

    fn udp_targets(&self) -> Targets {
        self.book.udp_targets()
    }

    fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.news)
    }

    fn refused(&self) -> BTreeSet<ServiceKey> {
        self.book.refused()
    }
}

impl Services {
    /// Without iptables nothing is looked for there.
    ///
    /// Knows nothing of the kernel's table yet: the first [`ServiceEngine::apply`] reconciles.
    #[must_use]
    pub fn new(iptables: Option<Iptables>, network: ServiceNetwork) -> Self {
        Self {
            beside: ServicesBeside::new(network.clone()),
            iptabled: Iptabled::new(iptables),
            book: Book::new(network),
            inherited: false,
            refused_at: None,
            news: Vec::new(),
            kept: Kept::new(TABLE),
            suspect: true,
            verified: Generation::default(),
        }
    }

    fn write_changes(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, NftablesError> {
        if !self.inherited {
            self.inherit();
        }
        let difference = self.book.change(changes);
        if self.suspect {
            return self.write_all().map(|_| true);
        }
        self.write(&difference)
    }

    /// Writes a change of the book into a table that was equal to it.
    fn write(&mut self, difference: &Difference) -> Result<bool, NftablesError> {
        if let Err(error) = self.commit(difference.batch()) {
            tracing::debug!(error = %ErrorChain(&error), "compares Services with the kernel's after a refusal");
            self.suspect = true;
            return self.write_all().map(|_| true);
        }
        if !difference.new_branches.is_empty() || !difference.gone_branches.is_empty() {
            self.kept.learn(&self.book.layout());
        }
        self.forget_clients(&difference.moved);
        Ok(difference.udp_changed)
    }

    /// Without it, the first comparison only writes more than it has to.
    fn inherit(&mut self) {
        match inherited_order() {
            Ok(order) => {
                self.inherited = true;
                self.book.inherit(order);
            }
            Err(error) => {
                tracing::debug!(error = %ErrorChain(&error), "cannot list a predecessor's endpoints");
            }
        }
    }

    /// Sends a transaction that knows what is there; counts it.
    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.verified.change(|| kernel::commit(batch))
    }
}

/// Removes the table; there need not be one.
///
/// # Errors
/// [`NftablesError`].
pub fn remove() -> Result<(), NftablesError> {
    let removal = kernel::removal(&TABLE).map_err(NftablesError::List)?;
    Ok(kernel::commit(removal)?)
}

#[cfg(test)]
pub(crate) mod tests;
