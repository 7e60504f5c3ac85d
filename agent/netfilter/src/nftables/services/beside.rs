//! What is left to iptables' tables where nftables keeps Services.
//!
//! Packets pass both. So what the engine over iptables has left of nat goes, once this engine's
//! table is there; and of filter only the permission to be forwarded stays: a rule of another's
//! table cannot overrule `iptables -P FORWARD DROP`, one in that table can.

use coracle_telemetry::ErrorChain;

use crate::{
    iptables::{Iptables, IptablesError, plan::Desired, rules::BaseRules},
    service::ServiceNetwork,
};

/// What shall be in iptables' tables, and whether it is.
#[derive(Debug)]
pub(super) struct Beside {
    iptables: Iptables,
    nat: Desired,
    filter: Desired,
    /// What the other engine has left of nat is gone, and the rest is as it should be.
    settled: bool,
}

impl Beside {
    pub(super) fn new(iptables: Iptables, network: ServiceNetwork) -> Self {
        let (nat, filter) = BaseRules::new(network).of_other_engine();
        Self {
            iptables,
            nat,
            filter,
            settled: false,
        }
    }

    /// Looks, and writes what is missing. Returns whether it wrote. What fails is tried again with
    /// the next comparison: Services do not wait for it.
    pub(super) fn ensure(&mut self) -> bool {
        match self.try_ensure() {
            Ok(wrote) => {
                self.settled = true;
                wrote
            }
            Err(error) => {
                self.settled = false;
                tracing::error!(error = %ErrorChain(&error), "cannot write what the Services' nftables table needs beside it");
                false
            }
        }
    }

    /// The same where the kernel's count does not tell whether somebody has changed it.
    pub(super) fn ensure_uncounted(&mut self) -> bool {
        let counted = self.iptables.generation().is_some();
        if counted && self.settled {
            return false;
        }
        self.ensure()
    }

    fn try_ensure(&self) -> Result<bool, IptablesError> {
        let mut wrote = false;
        if !self.settled {
            wrote |= self.iptables.ensure("nat", &self.nat)?;
        }
        wrote |= self.iptables.ensure("filter", &self.filter)?;
        Ok(wrote)
    }
}
