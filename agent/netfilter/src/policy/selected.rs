//! Which pods policies select, without what they say.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Chain, ChainId, Change, Direction, Plan};

/// Addresses of the pods that chains decide on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// What they get is decided on.
    pub to: BTreeSet<IpAddr>,
    /// What they send is.
    pub from: BTreeSet<IpAddr>,
}

impl Selected {
    /// Those of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            to: plan.to.keys().copied().collect(),
            from: plan.from.keys().copied().collect(),
        }
    }

    /// Those of a plan after a change.
    pub fn apply(&mut self, change: &Change) {
        for (all, changed) in [(&mut self.to, &change.to), (&mut self.from, &change.from)] {
            for (address, chain) in changed {
                match chain {
                    Some(_) => all.insert(*address),
                    None => all.remove(address),
                };
            }
        }
    }

    /// These, too.
    pub(crate) fn extend(&mut self, others: Self) {
        self.to.extend(others.to);
        self.from.extend(others.from);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.is_empty() && self.from.is_empty()
    }

    /// Lets nothing through that would be decided on. From an empty plan.
    #[must_use]
    pub fn shut(&self) -> Change {
        let mut change = Change::default();
        for (direction, name, addresses, leads) in [
            (Direction::Ingress, "shut-to", &self.to, &mut change.to),
            (Direction::Egress, "shut-from", &self.from, &mut change.from),
        ] {
            if addresses.is_empty() {
                continue;
            }
            let chain = Chain {
                direction,
                policies: Vec::new(),
                rules: Vec::new(),
            };
            let id = ChainId::new(name);
            let led = addresses.iter().map(|ip| (*ip, Some(id.clone())));
            *leads = led.collect::<BTreeMap<_, _>>();
            change.chains_made.insert(id, chain);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::Packet, service::Protocol};

    #[test]
    fn who_is_shut_in_gets_what_nobody_decides_on() {
        let [a, b]: [IpAddr; 2] = [[10, 1, 0, 5].into(), [10, 1, 0, 6].into()];
        let selected = Selected {
            to: BTreeSet::from([a]),
            from: BTreeSet::new(),
        };
        let mut plan = Plan::default();
        plan.apply(&selected.shut());
        let passes = |source, destination| {
            let packet = Packet {
                source,
                destination,
                protocol: Some(Protocol::Tcp),
                destination_port: 80,
            };
            plan.verdict(&packet, &[]).is_allowed()
        };
        assert!(passes(a, b) && !passes(b, a));
        assert!(Selected::default().shut().is_empty());
    }
}
