//! The engine for a node's own rules over nftables: each published port, and each range that pods
//! are seen in under their own address, is an element; the rules are the same for all.
//!
//! ```text
//! prerouting, output -> to this machine: host-ports: address . protocol . port -> DNAT
//!                       the same, where the port is on all addresses but loopback's: address 0.0.0.0
//! postrouting -> a pod that reaches itself (hairpins): masquerade
//!                itself: source . destination: leave alone; outgoing: source . any: masquerade
//! prerouting (raw), input -> envelopes: source . port: to here: drop
//! forward -> the same: to no pod: drop
//! input, forward -> anybodys: any . port, translated to here or to no pod: drop
//! input -> anybodys: any . port, and not nodes: source . port: drop
//! ```
//! The last is a table of its own: it stays as it is until somebody tells whether there is an
//! overlay. Both tables are listed and compared with the plan whenever that changes: they have a
//! few hundred elements at most. IPv4 only, as the pods' network.

mod elements;
mod layout;
pub mod network;

use coracle_telemetry::ErrorChain;

use self::layout::{GUARD, TABLE};
use super::{
    beside::{Beside, Iptabled},
    kernel::{self, CommitError},
    table::Table,
    transition::{Wanted, transition},
    whole::{Whole, WholeError},
};
use crate::{
    engine::{EngineError, NodeEngine},
    generation::Generation,
    iptables::{
        Iptables, envelopes, host_ports, masquerade,
        plan::{Chains, Changes, reconcile},
    },
    node::{NodePlan, Overlay, Part},
};

/// Why a node's rules could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("keep the nftables table {table}: {why}")]
pub struct NodeError {
    table: String,
    why: String,
}

impl NodeError {
    fn of(table: &Table) -> impl Fn(WholeError) -> Self {
        let table = table.name.to_string();
        move |error| Self {
            table: table.clone(),
            why: ErrorChain(&error).to_string(),
        }
    }
}

/// Keeps the node's tables.
#[derive(Debug)]
pub struct Node {
    rules: Whole,
    guard: Whole,
    beside: Iptabled,
    suspect: bool,
    /// When the tables were found to be right.
    verified: Generation,
}

impl Node {
    /// Has written nothing yet. Without iptables nothing is looked for there.
    #[must_use]
    pub fn new(iptables: Option<Iptables>) -> Self {
        Self {
            rules: Whole::new(TABLE),
            guard: Whole::new(GUARD),
            beside: Iptabled::new(iptables),
            suspect: true,
            verified: Generation::default(),
        }
    }

    fn compare(&mut self, plan: &NodePlan) -> Result<bool, NodeError> {
        self.suspect = true;
        self.verified = Generation::now();
        let verified = &mut self.verified;
        let elements = elements::of(plan);
        let written = self.rules.ensure(&layout::rules(), &elements, verified);
        let guarded = match &plan.overlay {
            Overlay::Unknown => Ok(false),
            Overlay::None => self.guard.remove(verified),
            Overlay::Port(envelopes) => {
                let elements = elements::of_overlay(envelopes);
                self.guard.ensure(&layout::guard(), &elements, verified)
            }
        };
        let permitted = self.beside.ensure(&NodeBeside(plan));
        // What the kernel says of one table is no reason to leave the others.
        let written = written.map_err(NodeError::of(&TABLE))?;
        let guarded = guarded.map_err(NodeError::of(&GUARD))?;
        // Only once the own rules stand.
        let left = self.leave_program(plan)?;
        self.suspect = false;
        Ok(written | guarded | permitted | left)
    }
}

impl Node {
    /// The plugin as a program may have made the own network, while nobody else did: it does not
    /// know where pods are seen under their own address.
    fn leave_program(&mut self, plan: &NodePlan) -> Result<bool, NodeError> {
        let Some(own) = &plan.masquerade else {
            return Ok(false);
        };
        let verified = &mut self.verified;
        network::leave(&own.network, verified).map_err(|error| NodeError {
            table: error.table,
            why: error.why,
        })
    }
}

impl NodeEngine for Node {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn write(&mut self, plan: &NodePlan, part: Part) -> Result<(), EngineError> {
        if part == Part::Overlay {
            // What the other engine has of it may go now.
            self.beside.unsettle();
        }
        self.compare(plan).map(drop).map_err(EngineError::new)
    }

    fn reconcile(&mut self, plan: &NodePlan) -> Result<bool, EngineError> {
        if !self.suspect && self.verified.is_current() {
            return Ok(self.beside.ensure_uncounted(&NodeBeside(plan)));
        }
        self.compare(plan).map_err(EngineError::new)
    }

    fn is_disturbed(&self) -> bool {
        !self.suspect && self.verified.is_disturbed()
    }
}

/// Removes the tables; there need not be any.
///
/// # Errors
/// [`NodeError`].
pub fn remove() -> Result<(), NodeError> {
    [TABLE, GUARD].iter().try_for_each(remove_table)
}

/// The same of what another engine has written anew: not of what it does not know yet.
pub(crate) fn remove_known(overlay: &Overlay) -> Result<(), NodeError> {
    match overlay {
        Overlay::Unknown => remove_table(&TABLE),
        Overlay::None | Overlay::Port(_) => remove(),
    }
}

fn remove_table(table: &Table) -> Result<(), NodeError> {
    let removed = Whole::new(table.clone()).remove(&mut Generation::default());
    removed.map(drop).map_err(NodeError::of(table))
}

/// Whether an agent keeps its rules in this table here.
///
/// # Errors
/// The kernel does not list its tables.
pub fn is_there() -> std::io::Result<bool> {
    kernel::is_there(&TABLE)
}

/// Asks the kernel for tables like those, and to remove them, in one transaction: nobody sees them.
///
/// # Errors
/// What the kernel says.
pub fn probe() -> Result<(), NodeError> {
    for mut layout in [layout::rules(), layout::guard()] {
        layout.table.name = "coracle-probe".into();
        let (mut batch, _) = transition::<()>(&layout, None, &Wanted::new()).into_parts();
        batch.delete_table(&layout.table);
        let asked: Result<(), CommitError> = kernel::commit(batch);
        asked.map_err(|error| NodeError::of(&layout.table)(error.into()))?;
    }
    Ok(())
}

/// What is left to iptables' tables.
pub(crate) struct NodeBeside<'a>(pub(crate) &'a NodePlan);

impl Beside for NodeBeside<'_> {
    fn tables(&self) -> &'static [&'static str] {
        match self.0.overlay {
            Overlay::Unknown => &["nat"],
            Overlay::None | Overlay::Port(_) => &["nat", "raw", "mangle"],
        }
    }

    fn removal(&self, table: &str, actual: &Chains) -> Changes {
        if table != "nat" {
            return reconcile(actual, &envelopes::plan(None, &[]));
        }
        let published = reconcile(actual, &host_ports::plan(&[]));
        let masquerade = self.0.masquerade.as_ref();
        let masquerade = masquerade.map(|wanted| masquerade::plan_removal(wanted, actual));
        published.and(masquerade.unwrap_or_default())
    }

    fn permission(&self, actual: &Chains, is_needed: bool) -> Changes {
        match &self.0.masquerade {
            None => Changes::default(),
            Some(wanted) if is_needed => reconcile(actual, &masquerade::permission(wanted, actual)),
            Some(wanted) => masquerade::plan_removal(wanted, actual),
        }
    }
}

#[cfg(test)]
mod tests;
