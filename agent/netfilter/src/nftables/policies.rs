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
mod names;
mod rules;

use std::{collections::BTreeMap, io, net::IpAddr};

use self::{aside::Aside, difference::Before, rules::Packets};
pub use self::{aside::RefusedPolicies, left::Left};
use super::{
    batch::Batch,
    kept::Kept,
    kernel::{self, CommitError},
    table::Layout,
    transition::{Elements, Held, batch_to, differs},
};
use crate::{
    generation::Generation,
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
    suspect: bool,
    /// When the tables were found to be right.
    verified: Generation,
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
            suspect: true,
            verified: Generation::default(),
        }
    }

    /// What the kernel shall hold. What it refuses lets nothing through in here.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Carries a change out: two transactions a family. After an error everything is compared.
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
        let is_back = self.aside.take_back(&mut self.plan);
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
                Err(PoliciesError::Write(_)) if self.aside.set_aside(&mut self.plan) => {
                    self.kept.clear();
                    differed = true;
                }
                Err(error) => return Err(error),
            }
        }
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
        for batch in difference::batches(family, change, before) {
            self.commit(batch)?;
        }
        if !change.chains_made.is_empty() || !change.chains_removed.is_empty() {
            let layout = layout::layout(family, &self.plan, &self.node);
            self.kept(family).learn(&layout);
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
        if let Some(present) = &held
            && let Some(chains) = chains_first(&layout, present, &elements)
        {
            self.commit(chains)?;
            held = self.kept(family).held(None).map_err(PoliciesError::List)?;
        }
        let batch = batch_to(&layout, held.as_ref(), &elements);
        let differs = !batch.is_empty();
        if differs {
            self.commit(batch)?;
            self.kept(family).learn(&layout);
        }
        Ok(differs)
    }
}

/// What makes the chains that a table lacks, before anything leads to them: see
/// [`difference::batches`]. `None`: it lacks none, or is made anew as a whole.
fn chains_first(layout: &Layout, held: &Held, elements: &Elements) -> Option<Batch> {
    let chains = layout.chains.iter();
    let lacking =
        chains.filter(|(name, hook, _)| hook.is_none() && !held.chains.contains_key(name));
    let chains: Vec<_> = lacking.cloned().collect();
    if chains.is_empty() || differs(layout, held) {
        return None;
    }
    let mut sets = layout.sets.clone();
    sets.retain(|set| !held.sets.contains_key(&set.name));
    let mut new = elements.clone();
    new.retain(|name, _| sets.iter().any(|set| set.name == *name));
    let part = Layout {
        table: layout.table.clone(),
        sets,
        chains,
    };
    Some(batch_to(&part, Some(&Held::default()), &new))
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
