//! The owner of the kernel's Service rules: knows what was written, writes only differences.
//!
//! A change of some Services is one `iptables-restore` call made from what they were and what they
//! are, without reading the kernel's rules: all of the nat table's change or nothing of it, then
//! the same for the filter table. A comparison reads them: at the start (which takes a killed
//! predecessor's rules over as they are), after a failure, and to repair what others changed.
//! Services whose rules the kernel refuses are set aside (`trial`), so that the others get theirs.
//! Blocks; runs no command itself.

mod trial;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;

use super::{
    Iptables, IptablesError,
    plan::{self, Changes},
    rules::{
        BaseRules, EXTERNALS, HAIRPIN, NODE_PORTS, SERVICES, ServiceRules, UNSERVED, hairpin_rule,
    },
};
use crate::{
    engine::{EngineError, Refusal, ServiceEngine},
    flows::Targets,
    service::{ServiceKey, ServiceNetwork, ServiceView},
};

/// Services set aside are tried again this often: somebody may have loaded a module.
const RETRY_REFUSED: Duration = Duration::from_secs(300);
/// What all own chains start with, in every table, whoever in this agent wrote them.
const OWN_CHAINS: &str = "CORACLE-";

#[derive(Debug)]
struct Refused {
    service: ServiceRules,
    why: String,
}

/// What was written and how to write more.
#[derive(Debug)]
pub struct Writer {
    iptables: Iptables,
    base: BaseRules,
    written: HashMap<ServiceKey, ServiceRules>,
    uids: HashMap<ServiceKey, String>,
    /// Services without rules, because the kernel refuses them.
    refused: BTreeMap<ServiceKey, Refused>,
    refused_at: Option<Instant>,
    /// Refused since last asked.
    news: Vec<Refusal>,
    /// Local endpoint addresses and how many Services have them.
    hairpins: BTreeMap<IpAddr, usize>,
    /// The kernel's rules may differ from what was written.
    suspect: bool,
    /// The kernel's count of changes, if all of them since the rules were found to be right are our
    /// own.
    verified: Option<u32>,
    /// Takes away what an engine that is no iptables has left.
    other_engine: Option<Removal>,
    /// What others have left, variant or engine, is gone.
    alone: bool,
}

/// Removes all that an engine has written in the calling thread's namespace, if there is anything.
pub type Removal = fn() -> Result<(), EngineError>;

impl ServiceEngine for Writer {
    fn name(&self) -> &'static str {
        "iptables"
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
        let generation = self.iptables.generation();
        generation.is_some() && generation != self.verified
    }

    fn udp_targets(&self) -> Targets {
        let mut targets = Targets::default();
        self.written
            .values()
            .for_each(|service| targets.extend(&service.udp));
        targets
    }

    fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.news)
    }

    fn refused(&self) -> BTreeSet<ServiceKey> {
        self.refused.keys().cloned().collect()
    }
}

impl Writer {
    /// Knows nothing of the kernel's rules yet: the first [`ServiceEngine::apply`] reconciles.
    #[must_use]
    pub fn new(iptables: Iptables, network: ServiceNetwork) -> Self {
        Self {
            iptables,
            base: BaseRules::new(network),
            written: HashMap::new(),
            uids: HashMap::new(),
            refused: BTreeMap::new(),
            refused_at: None,
            news: Vec::new(),
            hairpins: BTreeMap::new(),
            suspect: true,
            verified: None,
            other_engine: None,
            alone: false,
        }
    }

    /// Has what another engine has left taken away, once these rules are written.
    #[must_use]
    pub fn instead_of(mut self, other_engine: Removal) -> Self {
        self.other_engine = Some(other_engine);
        self
    }

    fn write_changes(
        &mut self,
        changes: Vec<(ServiceKey, Option<ServiceView>)>,
    ) -> Result<bool, IptablesError> {
        let (mut nat, mut filter) = (Changes::default(), Changes::default());
        let hairpins_before: Vec<IpAddr> = self.hairpins.keys().copied().collect();
        let mut udp_changed = false;
        let mut changed = Vec::with_capacity(changes.len());
        for (key, view) in changes {
            let after = view
                .as_ref()
                .map(|view| self.base.service(&key, view))
                .unwrap_or_default();
            self.remember_uid(&key, view);
            // What it was refused for may be gone.
            self.refused.remove(&key);
            let before = self.written.remove(&key).unwrap_or_default();
            udp_changed |= before.udp != after.udp;
            difference(&before, &after, &mut nat, &mut filter);
            self.count_hairpins(&before, &after);
            if after != ServiceRules::default() {
                self.written.insert(key.clone(), after);
                changed.push(key);
            }
        }
        if self.suspect {
            return self.write_all().map(|_| true);
        }
        if !hairpins_before.iter().eq(self.hairpins.keys()) {
            let rules =
                |ips: &mut dyn Iterator<Item = IpAddr>| ips.map(hairpin_rule).collect::<Vec<_>>();
            let before = rules(&mut hairpins_before.into_iter());
            nat.edit_set(HAIRPIN, &before, &rules(&mut self.hairpins.keys().copied()));
        }
        match self
            .restore(&(plan::transaction("nat", &nat) + &plan::transaction("filter", &filter)))
        {
            Err(error) if error.is_refusal() => {
                self.go_on_without_culprits(changed, error).map(|()| true)
            }
            other => other.map(|()| udp_changed),
        }
    }

    fn write_all(&mut self) -> Result<bool, IptablesError> {
        self.retry_refused();
        let generation = self.iptables.generation();
        let known = generation.is_some() && generation == self.verified;
        if !self.suspect && self.alone && known {
            return Ok(false);
        }
        let changed = match self.write_difference() {
            Err(error) if error.is_refusal() => {
                let all = self.written.keys().cloned().collect();
                self.go_on_without_culprits(all, error).map(|()| true)
            }
            other => other,
        }?;
        self.remove_others();
        Ok(changed)
    }

    fn write_difference(&mut self) -> Result<bool, IptablesError> {
        self.suspect = true;
        let generation = self.iptables.generation();
        let nat = plan::parse(&self.iptables.save("nat")?);
        let filter = plan::parse(&self.iptables.save("filter")?);
        let text = plan::transaction(
            "nat",
            &plan::reconcile(&nat, &self.base.nat(self.written.values())),
        ) + &plan::transaction(
            "filter",
            &plan::reconcile(&filter, &self.base.filter(self.written.values())),
        );
        if text.is_empty() {
            // Read before the rules were: whatever came in between is looked at once more.
            self.verified = generation;
        } else {
            self.verified = None;
            self.restore(&text)?;
        }
        self.suspect = false;
        Ok(!text.is_empty())
    }

    fn remember_uid(&mut self, key: &ServiceKey, view: Option<ServiceView>) {
        match view.and_then(|view| view.uid) {
            Some(uid) => self.uids.insert(key.clone(), uid),
            None => self.uids.remove(key),
        };
    }

    fn restore(&mut self, text: &str) -> Result<(), IptablesError> {
        if text.is_empty() {
            return Ok(());
        }
        tracing::trace!(text, "write rules");
        let ours_alone = self
            .verified
            .filter(|verified| self.iptables.generation() == Some(*verified));
        self.verified = None;
        self.iptables
            .restore(text)
            .inspect_err(|_| self.suspect = true)?;
        // If somebody else writes meanwhile, the kernel counts more than this, and the rules are
        // compared again.
        let commits = text.lines().filter(|line| *line == "COMMIT").count();
        self.verified = ours_alone
            .map(|before| before.wrapping_add(u32::try_from(commits).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// After an administrator chose the other variant or this engine, the old one's rules would
    /// lead to endpoints of that day.
    fn remove_others(&mut self) {
        if self.alone {
            return;
        }
        self.alone = true;
        if let Some(Err(error)) = self.other_engine.map(|remove| remove()) {
            self.alone = false;
            tracing::warn!(error = %ErrorChain(&error), "cannot remove what another engine has left");
        }
        match self.iptables.clean_other_variant(&["nat"], OWN_CHAINS) {
            Ok(true) => tracing::info!(
                "removed own rules from the variant of iptables that is not used any more"
            ),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot look for own rules in the other variant of iptables");
            }
        }
    }

    fn count_hairpins(&mut self, before: &ServiceRules, after: &ServiceRules) {
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
fn difference(
    before: &ServiceRules,
    after: &ServiceRules,
    nat: &mut Changes,
    filter: &mut Changes,
) {
    for (name, rules) in &after.chains {
        if before.chains.get(name) != Some(rules) {
            nat.write_chain(name, rules);
        }
    }
    nat.edit_set(SERVICES, &before.services, &after.services);
    nat.edit_set(EXTERNALS, &before.externals, &after.externals);
    nat.edit_set(NODE_PORTS, &before.node_ports, &after.node_ports);
    for name in before
        .chains
        .keys()
        .filter(|name| !after.chains.contains_key(*name))
    {
        nat.delete_chain(name);
    }
    filter.edit_set(UNSERVED, &before.unserved, &after.unserved);
}
