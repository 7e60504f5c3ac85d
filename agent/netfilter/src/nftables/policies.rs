//! Policies over nftables: a table a family, whose rules are made once for each set of policies
//! that selects a pod, and never change.
//!
//! ```text
//! forward -> established, related: accept
//!            itself: address . address: accept
//!            from: address -> c-1:  in the middle of a connection: drop
//!                                   destination in g-2, protocol . port in n-1-0: return
//!                                   drop
//!            to:   address -> open: in the middle of a connection: drop
//! input   -> to an address that the node serves itself -> from, as above
//! ```
//! A packet costs two look-ups, however many policies and pods there are. A pod that comes or goes
//! is an element of some groups; only a policy that changes makes chains. Without a policy that
//! selects a pod of this node there is no table. Output is left alone: what the node itself sends
//! (probes) reaches its pods.

mod difference;
mod layout;
mod names;
mod rules;

use std::{collections::BTreeMap, io, net::IpAddr};

use self::{difference::Before, rules::Packets};
use super::{
    batch::Batch,
    kernel::{self, CommitError, Present},
    table::Layout,
    transition::{Elements, Held, Wanted, transition},
};
use crate::{
    generation,
    netlink::Family,
    policy::{Change, Plan},
};

const TABLE: &str = "coracle-policy";

/// Why policies could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoliciesError {
    /// It cannot be read.
    #[error("list the nftables table {TABLE}")]
    List(#[source] io::Error),
    /// The kernel did not take it.
    #[error("write the nftables table {TABLE}: {0}")]
    Write(String),
}

impl From<CommitError> for PoliciesError {
    fn from(error: CommitError) -> Self {
        Self::Write(coracle_telemetry::ErrorChain(&error).to_string())
    }
}

type Rules = BTreeMap<String, Vec<Vec<u8>>>;

/// Keeps the tables of policies.
#[derive(Debug)]
pub struct Policies {
    /// What the node serves itself at addresses of Services.
    own_service_ips: Vec<IpAddr>,
    plan: Plan,
    /// The rules as they were written, by family and chain.
    rules: BTreeMap<Family, Rules>,
    suspect: bool,
    verified: Option<u32>,
}

impl Policies {
    /// Knows nothing of the kernel's tables yet: the first [`Self::reconcile`] compares.
    #[must_use]
    pub fn new(own_service_ips: Vec<IpAddr>) -> Self {
        Self {
            own_service_ips,
            plan: Plan::default(),
            rules: BTreeMap::new(),
            suspect: true,
            verified: None,
        }
    }

    /// What the kernel shall hold.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries a change out: a transaction a family. After an error everything is compared.
    ///
    /// # Errors
    /// [`PoliciesError`]; the plan is the new one all the same.
    pub fn apply(&mut self, change: &Change) -> Result<(), PoliciesError> {
        if change.is_empty() && !self.suspect {
            return Ok(());
        }
        let before = Before::of(&self.plan, change);
        self.plan.apply(change);
        if self.suspect {
            return self.reconcile().map(|_| ());
        }
        for family in Family::ALL {
            let written = match (before.needed.contains(&family), self.is_needed(family)) {
                (false, false) => Ok(()),
                (true, true) => self.write_change(family, change, &before),
                (false, true) | (true, false) => self.compare(family).map(|_| ()),
            };
            if let Err(error) = written {
                tracing::debug!(%error, "compares policies with the kernel's after a refusal");
                self.suspect = true;
                return self.reconcile().map(|_| ());
            }
        }
        Ok(())
    }

    /// Compares the kernel's tables with the plan, unless nobody has written since, and writes the
    /// difference. Says whether there was one.
    ///
    /// # Errors
    /// [`PoliciesError`].
    pub fn reconcile(&mut self) -> Result<bool, PoliciesError> {
        if !self.suspect && !self.is_disturbed() {
            return Ok(false);
        }
        self.suspect = true;
        let mut differed = false;
        let before = generation::read().ok();
        for family in Family::ALL {
            differed |= self.compare(family)?;
        }
        // What was written is compared once more, so that nobody's change in between is missed.
        self.verified = before.filter(|_| !differed);
        self.suspect = false;
        Ok(differed)
    }

    /// Whether somebody has changed nftables since the tables were right.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        generation::read().is_ok_and(|now| Some(now) != self.verified)
    }

    fn is_needed(&self, family: Family) -> bool {
        layout::is_needed(family, &self.plan)
    }

    fn write_change(
        &mut self,
        family: Family,
        change: &Change,
        before: &Before,
    ) -> Result<(), PoliciesError> {
        let batch = difference::batch(family, change, before);
        let count = generation::read().ok();
        let ours_alone = self.verified.filter(|verified| count == Some(*verified));
        if !batch.is_empty() {
            self.verified = None;
            kernel::commit(batch)?;
            self.verified = ours_alone.map(|before| before.wrapping_add(1));
        }
        if !change.chains_made.is_empty() || !change.chains_removed.is_empty() {
            self.read_rules(family);
        }
        Ok(())
    }

    /// Compares one family's table, and writes what differs.
    fn compare(&mut self, family: Family) -> Result<bool, PoliciesError> {
        let table = Packets(family).table();
        let present = kernel::present(&table).map_err(PoliciesError::List)?;
        self.verified = None;
        if !self.is_needed(family) {
            let is_there = present.is_some();
            if is_there {
                let mut batch = Batch::new();
                batch.delete_table(&table);
                kernel::commit(batch)?;
            }
            self.rules.remove(&family);
            return Ok(is_there);
        }
        let held = present.map(|present| self.held(family, present));
        let held = held.transpose().map_err(PoliciesError::List)?;
        let layout = layout::layout(family, &self.plan, &self.own_service_ips);
        let elements = layout::elements(family, &self.plan);
        let differs = write_difference(&layout, held.as_ref(), &elements)?;
        if differs {
            self.read_rules(family);
        }
        Ok(differs)
    }

    fn held(&self, family: Family, present: Present) -> io::Result<Held> {
        let table = Packets(family).table();
        let known = self.rules.get(&family);
        let is_right =
            |chain: &String, rules| known.is_some_and(|known| known.get(chain) == Some(rules));
        let chains = present.chains.iter();
        let chains = chains.map(|(name, rules)| (name.clone(), is_right(name, rules)));
        let sets = present.sets.keys();
        let elements = sets.map(|set| Ok((set.clone(), kernel::elements(&table, set)?)));
        Ok(Held {
            chains: chains.collect(),
            hooks: present.hooks,
            elements: elements.collect::<io::Result<_>>()?,
            sets: present.sets,
        })
    }

    /// Remembers the rules as they were just written.
    fn read_rules(&mut self, family: Family) {
        let present = kernel::present(&Packets(family).table()).ok().flatten();
        match present {
            Some(present) => self.rules.insert(family, present.chains),
            None => self.rules.remove(&family),
        };
    }
}

fn write_difference(
    layout: &Layout,
    held: Option<&Held>,
    elements: &Elements,
) -> Result<bool, PoliciesError> {
    let wanted: Wanted<'_, ()> = elements
        .iter()
        .map(|(set, elements)| {
            let elements = elements.iter().map(|(key, data)| (key, (data, None)));
            (&**set, elements.collect())
        })
        .collect();
    let (batch, _) = transition(layout, held, &wanted).into_parts();
    let differs = !batch.is_empty();
    kernel::commit(batch)?;
    Ok(differs)
}

/// Removes the tables; there need not be any.
///
/// # Errors
/// [`PoliciesError`].
pub fn remove() -> Result<(), PoliciesError> {
    Policies::new(Vec::new()).reconcile().map(|_| ())
}
