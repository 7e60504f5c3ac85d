//! The table of a network whose plugin is executed by somebody else: what its pods send out of the
//! cluster. An agent's own network is in the node's table: see [`super`].
//!
//! ```text
//! postrouting -> itself: source . destination: leave alone; outgoing: source . any: masquerade
//! ```
//! A table a network: two plugins that are executed at once write the same, and what one network
//! leaves is no other's. Nothing is remembered between two calls.

use std::{borrow::Cow, io};

use coracle_telemetry::ErrorChain;

use super::{
    super::{
        beside::{Beside, Iptabled},
        kernel,
        table::{Chain, Hook, Kind, Layout, Table},
        transition::Elements,
        whole::{Whole, WholeError},
    },
    elements, layout,
};
use crate::{
    generation::Generation,
    iptables::{
        Iptables, masquerade,
        plan::{Chains, Changes, reconcile},
    },
    masquerade::Masquerade,
    netlink::Family,
};

/// What these tables are called, before what tells networks apart.
const PREFIX: &str = "coracle-cni-";

/// Why a network's rules could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("keep the nftables table {table}: {why}")]
pub struct NetworkError {
    pub(super) table: String,
    pub(super) why: String,
}

impl NetworkError {
    fn of(table: &Table) -> impl Fn(WholeError) -> Self {
        let table = table.name.to_string();
        move |error| Self {
            table: table.clone(),
            why: ErrorChain(&error).to_string(),
        }
    }
}

/// Writes what is missing of a network's rules, and what lets its pods be forwarded where iptables
/// forbids it; without iptables nothing is looked for there. Idempotent. Returns whether there was
/// anything.
///
/// # Errors
/// [`NetworkError`].
pub fn ensure(iptables: Option<Iptables>, wanted: &Masquerade) -> Result<bool, NetworkError> {
    let table = table_of(&wanted.network);
    let mut elements = Elements::new();
    if wanted.translate {
        elements::add_masquerade(wanted, &mut elements);
    }
    let mut verified = Generation::default();
    let mut whole = Whole::new(table.clone());
    let written = match elements.is_empty() {
        true => whole.remove(&mut verified),
        false => whole.ensure(&layout_of(table.clone()), &elements, &mut verified),
    };
    let mut wrote = written.map_err(NetworkError::of(&table))?;
    wrote |= Iptabled::new(iptables).ensure(&NetworkBeside(wanted));
    Ok(wrote)
}

/// Removes a network's rules; there need not be any.
///
/// # Errors
/// [`NetworkError`].
pub fn remove(network: &str) -> Result<(), NetworkError> {
    leave(network, &mut Generation::default()).map(drop)
}

/// The same, as a change that `verified` counts. Returns whether there were any.
pub(super) fn leave(network: &str, verified: &mut Generation) -> Result<bool, NetworkError> {
    remove_table(&table_of(network), verified)
}

/// Removes those of all networks.
///
/// # Errors
/// The first [`NetworkError`]; the others' are removed.
pub fn remove_all() -> Result<(), NetworkError> {
    let failed = |source: io::Error| NetworkError {
        table: format!("{PREFIX}*"),
        why: source.to_string(),
    };
    let mut first = Ok(());
    for name in kernel::tables(Family::Ipv4, PREFIX).map_err(failed)? {
        let removed = remove_table(&named(name.into()), &mut Generation::default());
        first = first.and(removed.map(drop));
    }
    first
}

fn remove_table(table: &Table, verified: &mut Generation) -> Result<bool, NetworkError> {
    let removed = Whole::new(table.clone()).remove(verified);
    removed.map_err(NetworkError::of(table))
}

fn table_of(network: &str) -> Table {
    named(format!("{PREFIX}{}", masquerade::digest(network)).into())
}

fn named(name: Cow<'static, str>) -> Table {
    Table {
        family: Family::Ipv4,
        name,
    }
}

fn layout_of(table: Table) -> Layout {
    let hook = Chain {
        kind: Kind::Nat,
        hook: Hook::Postrouting,
        priority: layout::AFTER_ALL,
    };
    Layout {
        table,
        sets: layout::destinations(),
        chains: vec![("postrouting".to_owned(), Some(hook), layout::masquerade())],
    }
}

/// What is left to iptables' tables, or there from before.
struct NetworkBeside<'a>(&'a Masquerade);

impl Beside for NetworkBeside<'_> {
    fn tables(&self) -> &'static [&'static str] {
        &["nat"]
    }

    fn removal(&self, _: &str, actual: &Chains) -> Changes {
        masquerade::plan_removal(self.0, actual)
    }

    fn permission(&self, actual: &Chains, is_needed: bool) -> Changes {
        if is_needed {
            reconcile(actual, &masquerade::permission(self.0, actual))
        } else {
            masquerade::plan_removal(self.0, actual)
        }
    }
}

#[cfg(test)]
mod tests;
