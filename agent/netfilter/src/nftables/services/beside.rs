//! What is left to iptables' tables where nftables keeps Services.

use super::super::beside::Beside;
use crate::{
    iptables::{
        plan::{Chains, Changes, Desired, reconcile},
        rules::BaseRules,
    },
    service::ServiceNetwork,
};

/// What shall be there.
#[derive(Debug)]
pub(crate) struct ServicesBeside {
    nat: Desired,
    filter: Desired,
}

impl ServicesBeside {
    pub(crate) fn new(network: ServiceNetwork) -> Self {
        let (nat, filter) = BaseRules::new(network).of_other_engine();
        Self { nat, filter }
    }
}

impl Beside for ServicesBeside {
    fn tables(&self) -> &'static [&'static str] {
        &["nat"]
    }

    fn removal(&self, _: &str, actual: &Chains) -> Changes {
        reconcile(actual, &self.nat)
    }

    fn permission(&self, actual: &Chains, is_needed: bool) -> Changes {
        if is_needed {
            return reconcile(actual, &self.filter);
        }
        let nothing = Desired {
            owned_prefixes: self.filter.owned_prefixes.clone(),
            ..Desired::default()
        };
        reconcile(actual, &nothing)
    }
}
