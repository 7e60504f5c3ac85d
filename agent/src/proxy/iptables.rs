//! The owner of the kernel's Service rules: knows what was written, writes only differences.
//!
//! A change of some Services is one `iptables-restore` transaction made from what they were and what they are, without
//! reading the kernel's rules. [`Writer::reconcile`] reads them: at the start (which takes a killed predecessor's rules
//! over as they are), after a failure, and now and then to repair what others changed. Blocks; runs no command itself.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
};

use coracle_cni::iptables::{
    Iptables, IptablesError,
    plan::{self, Changes},
};

use super::{
    change_tracker::{ServiceKey, ServiceView},
    rules::{Fragment, Frame, HAIRPIN, NODE_PORTS, REJECT, SERVICES, hairpin_rule},
};

/// What was written and how to write more.
#[derive(Debug)]
pub struct Writer {
    iptables: Iptables,
    frame: Frame,
    written: HashMap<ServiceKey, Fragment>,
    /// Local endpoint addresses and how many Services have them.
    hairpins: BTreeMap<Ipv4Addr, usize>,
    /// The kernel's rules may differ from what was written.
    suspect: bool,
    /// When the kernel's rules were found to be right: see [`Iptables::generation`].
    verified: Option<u32>,
}

impl Writer {
    /// Knows nothing of the kernel's rules yet: the first [`Self::apply`] reconciles.
    #[must_use]
    pub fn new(iptables: Iptables, frame: Frame) -> Self {
        Self { iptables, frame, written: HashMap::new(), hairpins: BTreeMap::new(), suspect: true, verified: None }
    }

    /// Takes changed Services in and writes the difference. Returns whether UDP endpoints changed.
    ///
    /// # Errors
    /// [`IptablesError`]; the changes are remembered and the next call reconciles.
    pub fn apply(&mut self, changes: Vec<(ServiceKey, Option<ServiceView>)>) -> Result<bool, IptablesError> {
        let (mut nat, mut filter) = (Changes::default(), Changes::default());
        let hairpins_before: Vec<Ipv4Addr> = self.hairpins.keys().copied().collect();
        let mut udp_changed = false;
        for (key, view) in changes {
            let after = view.map(|view| self.frame.fragment(&key, &view)).unwrap_or_default();
            let before = self.written.remove(&key).unwrap_or_default();
            udp_changed |= before.udp != after.udp || before.udp_node_ports != after.udp_node_ports;
            difference(&before, &after, &mut nat, &mut filter);
            self.count_hairpins(&before, &after);
            if after != Fragment::default() {
                self.written.insert(key, after);
            }
        }
        if self.suspect {
            return self.reconcile().map(|_| true);
        }
        if !hairpins_before.iter().eq(self.hairpins.keys()) {
            let rules = |ips: &mut dyn Iterator<Item = Ipv4Addr>| ips.map(hairpin_rule).collect::<Vec<_>>();
            let before = rules(&mut hairpins_before.into_iter());
            nat.edit_set(HAIRPIN, &before, &rules(&mut self.hairpins.keys().copied()));
        }
        let text = plan::transaction("nat", &nat) + &plan::transaction("filter", &filter);
        if !text.is_empty() {
            // What was verified is not what is there now; the next comparison verifies it again.
            self.verified = None;
            self.restore(&text)?;
        }
        Ok(udp_changed)
    }

    /// Compares the kernel's rules with what they should be and writes the difference. Returns whether there was any.
    ///
    /// # Errors
    /// [`IptablesError`]; the next call tries again.
    pub fn reconcile(&mut self) -> Result<bool, IptablesError> {
        let generation = self.iptables.generation();
        if !self.suspect && generation.is_some() && generation == self.verified {
            return Ok(false);
        }
        self.suspect = true;
        let nat = plan::parse(&self.iptables.save("nat")?);
        let filter = plan::parse(&self.iptables.save("filter")?);
        let text = plan::transaction("nat", &plan::reconcile(&nat, &self.frame.nat(self.written.values())))
            + &plan::transaction("filter", &plan::reconcile(&filter, &self.frame.filter(self.written.values())));
        if text.is_empty() {
            self.verified = generation;
        } else {
            self.restore(&text)?;
        }
        self.suspect = false;
        Ok(!text.is_empty())
    }

    /// Whether the kernel's rules may differ from what was written.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// The rules of all Services, for cleaning the connection table.
    pub fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        self.written.values()
    }

    fn restore(&mut self, text: &str) -> Result<(), IptablesError> {
        tracing::trace!(text, "write rules");
        self.iptables.restore(text).inspect_err(|_| self.suspect = true)
    }

    fn count_hairpins(&mut self, before: &Fragment, after: &Fragment) {
        for address in after.hairpins.difference(&before.hairpins) {
            *self.hairpins.entry(*address).or_default() += 1;
        }
        for address in before.hairpins.difference(&after.hairpins) {
            if let Some(count) = self.hairpins.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    self.hairpins.remove(address);
                }
            }
        }
    }
}

/// What turns one Service's rules into others.
fn difference(before: &Fragment, after: &Fragment, nat: &mut Changes, filter: &mut Changes) {
    for (name, rules) in &after.chains {
        if before.chains.get(name) != Some(rules) {
            nat.write_chain(name, rules);
        }
    }
    nat.edit_set(SERVICES, &before.services, &after.services);
    nat.edit_set(NODE_PORTS, &before.node_ports, &after.node_ports);
    for name in before.chains.keys().filter(|name| !after.chains.contains_key(*name)) {
        nat.delete_chain(name);
    }
    filter.edit_set(REJECT, &before.rejects, &after.rejects);
}
