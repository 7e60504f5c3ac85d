//! Chains that the kernel refuses, so that they stop no other.
//!
//! A transaction is all or nothing: one chain that the kernel does not take would keep the policies
//! of everybody from being written. Which one it is, is found by trials: a table of another name
//! that is made and removed in one transaction, so that nobody sees it. What is found lets nothing
//! through until its policies change, or the kernel takes it after all.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;

use super::{
    super::{
        batch::{Batch, Data},
        kernel::{self, CommitError},
        table::Table,
    },
    layout, names,
    rules::Packets,
};
use crate::{
    netlink::Family,
    policy::{Chain, ChainId, Peer, Plan, PolicyKey, Ports},
};

const TRIAL: &str = "coracle-policy-trial";
/// The kernel may have been short of memory only.
const AGAIN: Duration = Duration::from_secs(60);

/// Policies of one chain that the kernel refuses: pods that they select are shut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPolicies {
    /// Those whose rules the chain has.
    pub policies: Vec<PolicyKey>,
    /// What the kernel says.
    pub why: String,
}

/// What is set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// As they should be.
    chains: BTreeMap<ChainId, Chain>,
    /// When they were last refused.
    since: Option<Instant>,
    news: Vec<RefusedPolicies>,
}

impl Aside {
    pub(super) fn take_news(&mut self) -> Vec<RefusedPolicies> {
        std::mem::take(&mut self.news)
    }

    /// Chains are gone.
    pub(super) fn forget(&mut self, gone: &BTreeSet<ChainId>) {
        self.chains.retain(|id, _| !gone.contains(id));
    }

    /// Has the plan want again, once in a while, what the kernel takes by now. Says what.
    pub(super) fn take_back(&mut self, plan: &mut Plan) -> Vec<ChainId> {
        if self.since.is_none_or(|since| since.elapsed() < AGAIN) {
            return Vec::new();
        }
        self.since = (!self.chains.is_empty()).then(Instant::now);
        let families = needed(plan);
        let wanted: Vec<(ChainId, Chain)> = self.chains.clone().into_iter().collect();
        let refused = refused(&families, &wanted);
        let mut taken = Vec::new();
        for (id, chain) in wanted {
            if !refused.contains_key(&id) {
                self.chains.remove(&id);
                plan.chains.insert(id.clone(), chain);
                taken.push(id);
            }
        }
        taken
    }

    /// Has what the kernel refuses let nothing through. Says whether there is anything.
    pub(super) fn set_aside(&mut self, plan: &mut Plan) -> bool {
        let families = needed(plan);
        // It refuses all of them: it is not one's fault.
        if trial(&families, &[]).is_err() {
            return false;
        }
        let chains = plan.chains.iter();
        let chains = chains.filter(|(id, _)| !self.chains.contains_key(id));
        let wanted: Vec<(ChainId, Chain)> = chains.map(|(id, c)| (id.clone(), c.clone())).collect();
        let refused = refused(&families, &wanted);
        let mut any = false;
        for (id, why) in refused {
            any |= self.shut(plan, &id, why);
        }
        any
    }

    /// The same with chains that the kernel takes one by one, but not with all that it has besides.
    /// Says whether there is anything.
    pub(super) fn set_these_aside(&mut self, plan: &mut Plan, ids: &[ChainId], why: &str) -> bool {
        if ids.is_empty() || trial(&needed(plan), &[]).is_err() {
            return false;
        }
        let mut any = false;
        for id in ids {
            any |= self.shut(plan, id, why.to_owned());
        }
        any
    }

    fn shut(&mut self, plan: &mut Plan, id: &ChainId, why: String) -> bool {
        if self.chains.contains_key(id) {
            return false;
        }
        let Some(chain) = plan.chains.get_mut(id) else {
            return false;
        };
        let shut = Chain {
            rules: Vec::new(),
            ..chain.clone()
        };
        let chain = std::mem::replace(chain, shut);
        let policies = chain.policies.clone();
        self.news.push(RefusedPolicies { policies, why });
        self.chains.insert(id.clone(), chain);
        self.since = Some(Instant::now());
        true
    }
}

fn needed(plan: &Plan) -> Vec<Family> {
    let families = Family::ALL.into_iter();
    families
        .filter(|family| layout::is_needed(*family, plan))
        .collect()
}

/// Which of these the kernel does not take, and why: by halves, since a transaction takes its time.
fn refused(families: &[Family], chains: &[(ChainId, Chain)]) -> BTreeMap<ChainId, String> {
    let mut refused = BTreeMap::new();
    let mut parts = vec![chains];
    while let Some(part) = parts.pop() {
        let Err(error) = trial(families, part) else {
            continue;
        };
        match part {
            [] => {}
            [(id, _)] => drop(refused.insert(id.clone(), ErrorChain(&error).to_string())),
            several => {
                let (first, second) = several.split_at(several.len() / 2);
                parts.extend([first, second]);
            }
        }
    }
    refused
}

/// Whether the kernel takes these. Nothing is left of it whatever happens.
fn trial(families: &[Family], chains: &[(ChainId, Chain)]) -> Result<(), CommitError> {
    for family in families {
        kernel::commit(batch(*family, chains))?;
    }
    Ok(())
}

fn batch(family: Family, chains: &[(ChainId, Chain)]) -> Batch {
    let packets = Packets(family);
    let table = Table {
        name: TRIAL.into(),
        ..packets.table()
    };
    let rules = || chains.iter().flat_map(|(_, chain)| &chain.rules);
    let groups = rules().filter_map(|rule| match &rule.peer {
        Peer::Group(group) => Some((names::group_name(group), packets.group(group))),
        Peer::Any | Peer::Blocks(_) => None,
    });
    let ports = rules().filter_map(|rule| match &rule.ports {
        Ports::Named(group) => Some((names::port_group_name(group), packets.port_group(group))),
        Ports::Any | Ports::Numbers(_) => None,
    });
    // Each once, however many rules name it.
    let sets: BTreeMap<String, _> = groups.chain(ports).collect();
    let mut batch = Batch::new();
    batch.add_table(&table);
    let mut ids = 1..;
    for (set, id) in sets.values().zip(&mut ids) {
        batch.add_set(&table, set, id);
    }
    for (chain, is) in chains {
        for ((set, keys), id) in packets.constants(chain, is).into_iter().zip(&mut ids) {
            batch.add_set(&table, &set, id);
            batch.add_elements(&table, &set.name, keys.iter().map(|key| (key, &Data::None)));
        }
        let name = names::chain_name(chain);
        batch.add_chain(&table, &name, None);
        for rule in packets.rules(chain, is) {
            batch.add_rule(&table, &name, &rule);
        }
    }
    batch.delete_table(&table);
    batch
}
