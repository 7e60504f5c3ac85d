//! The engine for what is no connection to the kernel, over nftables: see [`crate::untracked`].
//!
//! ```text
//! prerouting, output (raw) -> to or from servers: address . protocol . port -> notrack
//! ```
//! A table of its own, beside whichever network the pods have.

use std::{borrow::Cow, net::IpAddr};

use super::{
    batch::{Data, Key},
    beside::has,
    expression::{Expression, Field, Meta},
    kernel,
    rule::Rule,
    table::{Chain, Hook, Kind, Layout, Set, Table, Values},
    transition::{Elements, Wanted, transition},
    vip::{DESTINATION, PORT, PROTOCOL, VIP, Vip, load_vip},
    whole::{Whole, WholeError},
};
use crate::{
    engine::{EngineError, UntrackedEngine},
    generation::Generation,
    iptables::{Iptables, untracked},
    netlink::Family,
    service::Protocol,
    untracked::PORT as NAMES,
};

const TABLE: Table = Table {
    family: Family::Ipv4,
    name: Cow::Borrowed("coracle-names"),
};
const SERVERS: &str = "servers";
/// `NF_IP_PRI_RAW`: before connections are looked up.
const RAW: i32 = -300;

/// Why the table could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("keep the nftables table {}", TABLE.name)]
pub struct UntrackedError(#[source] WholeError);

/// Keeps the table.
#[derive(Debug)]
pub struct Untracked {
    rules: Whole,
    /// Not installed: then it has left nothing that could be taken away.
    iptables: Option<Iptables>,
    /// When the table was found to be right.
    verified: Generation,
    /// Nothing of the other engine is left.
    alone: bool,
}

impl Untracked {
    /// Has written nothing yet. Without iptables nothing is looked for there.
    #[must_use]
    pub fn new(iptables: Option<Iptables>) -> Self {
        Self {
            rules: Whole::new(TABLE),
            iptables,
            verified: Generation::default(),
            alone: false,
        }
    }

    fn leave_iptables(&mut self) -> Result<bool, EngineError> {
        let Some(iptables) = self.iptables.as_ref().filter(|_| !self.alone) else {
            return Ok(false);
        };
        let removed = has(iptables, untracked::TABLE)
            .then(|| untracked::ensure(iptables, None))
            .transpose();
        let removed = removed.map_err(EngineError::new)?;
        self.alone = true;
        Ok(removed.unwrap_or(false))
    }
}

impl UntrackedEngine for Untracked {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn ensure(&mut self, address: IpAddr) -> Result<bool, EngineError> {
        let mut wrote = false;
        if !self.verified.is_current() {
            self.verified = Generation::now();
            let written = self
                .rules
                .ensure(&layout(), &elements(address), &mut self.verified);
            wrote = written.map_err(|error| {
                self.verified = Generation::default();
                EngineError::new(UntrackedError(error))
            })?;
        }
        Ok(wrote | self.leave_iptables()?)
    }

    fn is_disturbed(&self) -> bool {
        self.verified.is_disturbed()
    }
}

/// Removes the table; there need not be one.
///
/// # Errors
/// [`UntrackedError`].
pub fn remove() -> Result<(), UntrackedError> {
    let removed = Whole::new(TABLE).remove(&mut Generation::default());
    removed.map(drop).map_err(UntrackedError)
}

/// Asks the kernel for a table like that, and to remove it, in one transaction: nobody sees it.
///
/// # Errors
/// What the kernel says.
pub fn probe() -> Result<(), UntrackedError> {
    let mut layout = layout();
    layout.table.name = "coracle-probe".into();
    let (mut batch, _) = transition::<()>(&layout, None, &Wanted::new()).into_parts();
    batch.delete_table(&layout.table);
    kernel::commit(batch).map_err(|error| UntrackedError(error.into()))
}

fn layout() -> Layout {
    let chain = |name: &str, hook| {
        let hook = Chain {
            kind: Kind::Filter,
            hook,
            priority: RAW,
        };
        (name.to_owned(), Some(hook), rules())
    };
    Layout {
        table: TABLE,
        sets: vec![Set::exact(SERVERS, VIP, Values::None)],
        chains: vec![
            chain("prerouting", Hook::Prerouting),
            chain("output", Hook::Output),
        ],
    }
}

fn rules() -> Vec<Rule> {
    let is_one = || Expression::Contains {
        set: SERVERS.to_owned(),
        key: DESTINATION,
        inverted: false,
    };
    let from = vec![
        Expression::Payload(Field::Source4, DESTINATION),
        Expression::Meta(Meta::Transport, PROTOCOL),
        Expression::Payload(Field::SourcePort, PORT),
    ];
    let untrack = |mut ends: Rule| {
        ends.extend([is_one(), Expression::Untrack]);
        ends
    };
    vec![untrack(load_vip()), untrack(from)]
}

fn elements(address: IpAddr) -> Elements {
    let IpAddr::V4(address) = address else {
        return Elements::new();
    };
    let one = |protocol| {
        let server = Vip {
            address,
            protocol,
            port: NAMES,
        };
        (Key::one(server.key()), Data::None)
    };
    let servers = [Protocol::Udp, Protocol::Tcp].map(one);
    Elements::from([(SERVERS.to_owned(), servers.into())])
}

#[cfg(test)]
mod tests;
