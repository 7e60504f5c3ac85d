//! Policies over nftables: a table a family, whose rules are made once for each set of policies
//! that selects a pod, and never change.
//!
//! ```text
//! forward -> established, errors of those: accept
//!            to everybody (broadcast, multicast): drop
//!            itself, through a Service: address . address: accept
//!            from: address -> c-1:  in the middle of a connection: drop
//!                                   destination in g-2, protocol . port in n-1-0: return
//!                                   drop
//!            to:   address -> open: in the middle of a connection: drop
//! input   -> to an address that the node serves itself -> from, as above
//! ```
//! A packet costs two look-ups, however many policies and pods there are. A pod that comes or goes
//! is an element of some groups; only a policy that changes makes chains. Without a policy that
//! selects a pod of this node there is no table. Output is left alone: what the node itself sends
//! (probes) reaches its pods. A chain that the kernel refuses stops no other (`aside`).

mod aside;
mod difference;
mod layout;
mod left;
mod made;
mod names;
mod rules;

use std::{collections::BTreeMap, io, net::IpAddr};

use self::{
    aside::Aside,
    difference::Before,
    made::{First, Part},
    names::name,
    rules::Packets,
};
pub use self::{aside::RefusedPolicies, left::Left};
use super::{
    batch::Batch,
    kept::Kept,
    kernel::{self, CommitError},
    transition::{Held, batch_to, differs},
};
use crate::{
    generation::Generation,
    netlink::Family,
    policy::{ChainId, Change, Plan},
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

/// What the rules have to know of the node.
#[derive(Debug, Clone, Default)]
pub struct NodeNetwork {
    /// What the node serves itself at addresses of Services.
    pub own_service_ips: Vec<IpAddr>,
    /// The one bridge that has all pods. `None`: they may be anywhere.
    pub bridge: Option<String>,
}

/// Keeps the tables of policies.
#[derive(Debug)]
pub struct Policies {
    node: NodeNetwork,
    plan: Plan,
    kept: BTreeMap<Family, Kept>,
    /// Chains that the kernel refuses; in the plan they let nothing through.
    aside: Aside,
    /// What a transaction was to make that was refused.
    blamed: Vec<ChainId>,
    suspect: bool,
    /// When the tables were found to be right.
    verified: Generation,
    /// Bytes after which a transaction of new chains ends.
    most: usize,
    /// What a kernel takes of these at once.
    #[cfg(test)]
    room: usize,
}

impl Policies {
    /// Knows nothing of the kernel's tables yet: the first [`Self::reconcile`] compares.
    #[must_use]
    pub fn new(node: NodeNetwork) -> Self {
        Self {
            node,
            plan: Plan::default(),
            kept: BTreeMap::new(),
            aside: Aside::default(),
            blamed: Vec::new(),
            suspect: true,
            verified: Generation::default(),
            most: made::MOST_BYTES,
            #[cfg(test)]
            room: usize::MAX,
        }
    }

    /// What the kernel shall hold. What it refuses lets nothing through in here.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries a change out: two transactions a family, or more where much is new. After an error
    /// everything is compared.
    ///
    /// # Errors
    /// [`PoliciesError`]; the plan is the new one all the same.
    pub fn apply(&mut self, change: &Change) -> Result<(), PoliciesError> {
        if change.is_empty() && !self.suspect {
            return Ok(());
        }
        let before = Before::of(&self.plan, change);
        self.plan.apply(change);
        self.aside.forget(&change.chains_removed);
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
        let mut back = self.aside.take_back(&mut self.plan);
        let is_back = !back.is_empty();
        if !is_back && !self.suspect && self.verified.is_current() {
            return Ok(false);
        }
        if is_back {
            // A chain of the same name says something else now.
            self.kept.clear();
        }
        self.suspect = true;
        self.verified = Generation::now();
        let mut differed = false;
        loop {
            match self.compare_all() {
                Ok(differs) => {
                    self.suspect = false;
                    return Ok(differed | differs);
                }
                // Each time it is fewer.
                Err(PoliciesError::Write(why)) if self.wants_less(&mut back, &why) => {
                    self.kept.clear();
                    differed = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sets aside what the kernel refuses by itself; else what was too much with all the rest. Says
    /// whether there is anything.
    fn wants_less(&mut self, back: &mut Vec<ChainId>, why: &str) -> bool {
        let (aside, plan) = (&mut self.aside, &mut self.plan);
        let blamed = std::mem::take(&mut self.blamed);
        aside.set_aside(plan)
            || aside.set_these_aside(plan, &blamed, why)
            || aside.set_these_aside(plan, &std::mem::take(back), why)
    }

    /// Whose chains the kernel has refused since the last call.
    pub fn take_refused(&mut self) -> Vec<RefusedPolicies> {
        self.aside.take_news()
    }

    /// Whether the kernel refused what was written last, or nothing was yet.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Whether somebody has changed nftables since the tables were right.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.verified.is_disturbed()
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
        self.make(made::parts(family, change, First::Nothing, self.most))?;
        self.commit(difference::led(family, change, before))?;
        if !change.chains_made.is_empty() || !change.chains_removed.is_empty() {
            let layout = layout::layout(family, &self.plan, &self.node);
            self.kept(family).learn(&layout);
        }
        Ok(())
    }

    /// Makes what nothing leads to yet.
    fn make(&mut self, parts: Vec<Part>) -> Result<(), CommitError> {
        for part in parts {
            #[cfg(test)]
            if part.batch.len() > self.room {
                self.blamed = part.chains;
                return Err(CommitError::Io(io::ErrorKind::OutOfMemory.into()));
            }
            self.commit(part.batch)
                .inspect_err(|_| self.blamed = part.chains)?;
        }
        Ok(())
    }

    fn commit(&mut self, batch: Batch) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.verified.change(|| kernel::commit(batch))
    }

    fn kept(&mut self, family: Family) -> &mut Kept {
        let new = || Kept::new(Packets(family).table());
        self.kept.entry(family).or_insert_with(new)
    }

    fn compare_all(&mut self) -> Result<bool, PoliciesError> {
        let mut differed = false;
        for family in Family::ALL {
            differed |= self.compare(family)?;
        }
        Ok(differed)
    }

    /// Compares one family's table, and writes what differs.
    fn compare(&mut self, family: Family) -> Result<bool, PoliciesError> {
        if !self.is_needed(family) {
            self.kept.remove(&family);
            let removal = kernel::removal(&Packets(family).table());
            let removal = removal.map_err(PoliciesError::List)?;
            let was_there = !removal.is_empty();
            self.commit(removal)?;
            return Ok(was_there);
        }
        let mut held = self.kept(family).held(None).map_err(PoliciesError::List)?;
        let layout = layout::layout(family, &self.plan, &self.node);
        let elements = layout::elements(family, &self.plan);
        // What is made anew as a whole is so in one transaction.
        let mut wrote = false;
        if held.as_ref().is_none_or(|held| !differs(&layout, held)) {
            (held, wrote) = self.make_lacking(family, held)?;
        }
        let batch = batch_to(&layout, held.as_ref(), &elements);
        wrote |= !batch.is_empty();
        if wrote {
            self.commit(batch)?;
            self.kept(family).learn(&layout);
        }
        Ok(wrote)
    }

    /// Makes the sets and chains that a table lacks, before anything leads to them. Returns what
    /// the table is then, and whether it lacked any.
    fn make_lacking(
        &mut self,
        family: Family,
        held: Option<Held>,
    ) -> Result<(Option<Held>, bool), PoliciesError> {
        let first = match &held {
            None => First::Table,
            Some(held) if held.chains.contains_key(name::OPEN) => First::Nothing,
            Some(_) => First::Open,
        };
        let nothing = Held::default();
        let present = held.as_ref().unwrap_or(&nothing);
        let has_set = |set: &str| present.sets.contains_key(set);
        let has_chain = |chain: &str| present.chains.contains_key(chain);
        let lacking = made::lacking(&self.plan, has_set, has_chain);
        let parts = made::parts(family, &lacking, first, self.most);
        if parts.is_empty() {
            return Ok((held, false));
        }
        self.make(parts)?;
        let mut held = self.kept(family).held(None).map_err(PoliciesError::List)?;
        // Unless somebody else was there, too, they are as they were just written.
        if let Some(held) = held.as_mut().filter(|_| self.verified.is_current()) {
            let made = lacking.chains_made.keys().map(names::chain_name);
            for chain in made.chain((first != First::Nothing).then(|| name::OPEN.to_owned())) {
                held.chains.insert(chain, true);
            }
        }
        Ok((held, true))
    }
}

/// Removes the tables; there need not be any.
///
/// # Errors
/// [`PoliciesError`].
pub fn remove() -> Result<(), PoliciesError> {
    Policies::new(NodeNetwork::default())
        .reconcile()
        .map(|_| ())
}

#[cfg(test)]
mod tests;
