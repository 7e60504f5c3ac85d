//! What the kernel shall do with packets, and how it is told.
//!
//! | module | does |
//! |---|---|
//! | [`service`] | the plan: a Service, its ports and the endpoints behind them |
//! | [`host_port`] | the plan for ports of pods that are published on the node |
//! | [`masquerade`] | the plan for what pods send out of the cluster |
//! | [`node`] | the plan for all that a node needs beside Services and policies |
//! | [`untracked`] | the plan for what is no connection to the kernel |
//! | [`policy`] | the plan for what pods may send and get, and what it does with a packet |
//! | [`engine`] | what keeps the kernel equal to the plan, whichever way it is told |
//! | [`nftables`] | the engine over nftables' netlink interface: elements of maps (pure), written by difference |
//! | [`iptables`] | the engine over `iptables-restore`: rules as text (pure), written by difference |
//! | [`flows`] | UDP flows that nobody answers any more |
//! | [`refused`] | connections that policies do not let through any more |
//! | [`conntrack`] | the kernel's table of connections: list, delete |
//! | `fuzzing` | entries for the fuzz targets (feature `fuzzing`) |
//!
//! The plan names addresses of either family; what makes it takes IPv4 only, and so does the engine
//! over iptables. Everything here works in the calling thread's network namespace, and what asks
//! the kernel blocks. Nothing here knows the API: who watches Services makes the plan.

#![forbid(unsafe_code)]

pub mod conntrack;
pub mod engine;
pub mod flows;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod generation;
#[cfg(test)]
mod ground;
pub mod host_port;
pub mod iptables;
pub mod masquerade;
mod netlink;
pub mod nftables;
pub mod node;
mod other_variant;
#[cfg(test)]
mod packets;
pub mod policy;
pub mod refused;
pub mod service;
pub mod untracked;

use coracle_telemetry::ErrorChain;

pub use self::netlink::Family;
use self::{
    engine::{EngineError, NodeEngine, ServiceEngine, UntrackedEngine},
    iptables::{Iptables, IptablesError, NodeRules, Writer},
    nftables::{Node, Services, node as nftables_node, services},
    node::Overlay,
    other_variant::{NodeVariants, ServiceVariants},
    service::ServiceNetwork,
};

/// What all chains in iptables' tables are called.
const OWN_CHAINS: &str = "CORACLE-";

/// Which engine keeps a node's rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// nftables where the kernel has what it takes, else iptables.
    #[default]
    Auto,
    /// Rules by `iptables-restore`.
    Iptables,
    /// Elements of nftables' maps.
    Nftables,
}

impl std::str::FromStr for ProxyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "iptables" => Ok(Self::Iptables),
            "nftables" => Ok(Self::Nftables),
            other => Err(format!("{other:?}: expected auto, iptables or nftables")),
        }
    }
}

/// What keeps Services on this machine: [`ProxyMode::Auto`] asks the kernel.
#[must_use]
pub fn chosen(mode: ProxyMode, network: &ServiceNetwork) -> ProxyMode {
    if mode != ProxyMode::Auto {
        return mode;
    }
    match services::probe(network) {
        Ok(()) => {
            tracing::info!("the kernel has what it takes: nftables keeps Services");
            ProxyMode::Nftables
        }
        Err(error) => {
            tracing::warn!(error = %ErrorChain(&error), "iptables keeps Services: the kernel does not take their nftables table");
            ProxyMode::Iptables
        }
    }
}

/// The engine for this machine. It has written nothing yet.
///
/// # Errors
/// What it needs is not installed.
pub fn service_engine(
    mode: ProxyMode,
    network: ServiceNetwork,
) -> Result<Box<dyn ServiceEngine>, EngineError> {
    let iptables = Iptables::find();
    Ok(match chosen(mode, &network) {
        ProxyMode::Nftables => Box::new(Services::new(iptables.ok(), network)),
        ProxyMode::Iptables | ProxyMode::Auto => {
            over_iptables(iptables.map_err(EngineError::new)?, network)
        }
    })
}

/// The engine for this machine's own rules: [`ProxyMode::Auto`] asks the kernel. It has written
/// nothing yet.
///
/// # Errors
/// What it needs is not installed.
pub fn node_engine(mode: ProxyMode) -> Result<Box<dyn NodeEngine>, EngineError> {
    let iptables = Iptables::find();
    let over_nftables = match mode {
        ProxyMode::Nftables => true,
        ProxyMode::Iptables => false,
        ProxyMode::Auto => nftables_node::probe()
            .inspect_err(|error| {
                tracing::warn!(error = %ErrorChain(error), "iptables keeps the node's rules: the kernel does not take their nftables table");
            })
            .is_ok(),
    };
    if over_nftables {
        return Ok(Box::new(Node::new(iptables.ok())));
    }
    let leave_nftables =
        |overlay: &Overlay| nftables_node::remove_known(overlay).map_err(EngineError::new);
    let iptables = iptables.map_err(EngineError::new)?;
    let engine = NodeRules::new(iptables.clone(), leave_nftables);
    Ok(Box::new(NodeVariants::new(engine, &iptables)))
}

/// The engine for what is no connection on this machine: [`ProxyMode::Auto`] asks the kernel. It
/// has written nothing yet.
///
/// # Errors
/// What it needs is not installed.
pub fn untracked_engine(mode: ProxyMode) -> Result<Box<dyn UntrackedEngine>, EngineError> {
    let iptables = Iptables::find();
    let over_nftables = match mode {
        ProxyMode::Nftables => true,
        ProxyMode::Iptables => false,
        ProxyMode::Auto => nftables::untracked::probe()
            .inspect_err(|error| {
                tracing::warn!(error = %ErrorChain(error), "iptables keeps the rules for names: the kernel does not take their nftables table");
            })
            .is_ok(),
    };
    if over_nftables {
        return Ok(Box::new(nftables::Untracked::new(iptables.ok())));
    }
    let leave_nftables = || nftables::untracked::remove().map_err(EngineError::new);
    let iptables = iptables.map_err(EngineError::new)?;
    Ok(Box::new(iptables::Untracked::new(iptables, leave_nftables)))
}

/// Has all tracked, whichever engine has written what.
///
/// # Errors
/// [`EngineError`]: rules may be left. Calling again is the way on.
pub fn remove_untracked() -> Result<(), EngineError> {
    let over_iptables = remove_untracked_over_iptables().map_err(EngineError::new);
    nftables::untracked::remove()
        .map_err(EngineError::new)
        .and(over_iptables)
}

fn remove_untracked_over_iptables() -> Result<(), IptablesError> {
    let iptables = match Iptables::find() {
        Ok(iptables) => iptables,
        // Where nftables keeps all rules it need not be installed.
        Err(_) if !nftables::has_chains(iptables::untracked::CHAIN).unwrap_or(true) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if !nftables::has_iptables_table(&iptables, iptables::untracked::TABLE) {
        return Ok(());
    }
    iptables::untracked::ensure(&iptables, None).map(drop)
}

/// Takes away what an engine has written of a node's own rules, whichever has: published ports and
/// what guards the overlay. A network's masquerade over iptables is the network's.
///
/// # Errors
/// [`EngineError`]: rules may be left. Calling again is the way on.
pub fn remove_node_rules() -> Result<(), EngineError> {
    let over_iptables = remove_node_rules_over_iptables().map_err(EngineError::new);
    nftables_node::remove()
        .map_err(EngineError::new)
        .and(over_iptables)
}

fn remove_node_rules_over_iptables() -> Result<(), IptablesError> {
    let iptables = match Iptables::find() {
        Ok(iptables) => iptables,
        // Where nftables keeps all rules it need not be installed.
        Err(_) if !has_rules_in_iptables() => return Ok(()),
        Err(error) => return Err(error),
    };
    let has = |table: &str| nftables::has_iptables_table(&iptables, table);
    if has("nat") {
        iptables::host_ports::ensure(&iptables, &[])?;
    }
    // Asking for a table makes it.
    for (table, hooks) in iptables::envelopes::TABLES {
        if has(table) {
            iptables.ensure(table, &iptables::envelopes::plan(None, hooks))?;
        }
    }
    Ok(())
}

/// Whether nftables can keep all rules of a node here, Services' and its own: asks the kernel for
/// tables like those, which are gone with the same transaction. The kernel may load modules.
///
/// # Errors
/// What it says.
pub fn probe_nftables() -> Result<(), EngineError> {
    services::probe(&ServiceNetwork::default()).map_err(EngineError::new)?;
    nftables_node::probe().map_err(EngineError::new)?;
    nftables::untracked::probe().map_err(EngineError::new)
}

/// Whether an engine over iptables has left rules there, as far as that is seen without the
/// program.
#[must_use]
pub fn has_rules_in_iptables() -> bool {
    nftables::has_chains(OWN_CHAINS).unwrap_or(false)
}

fn over_iptables(iptables: Iptables, network: ServiceNetwork) -> Box<dyn ServiceEngine> {
    let leave_nftables = || services::remove().map_err(EngineError::new);
    let writer = Writer::new(iptables.clone(), network.clone()).instead_of(leave_nftables);
    Box::new(ServiceVariants::new(writer, &iptables, network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_said_by_name() {
        for (name, mode) in [
            ("auto", ProxyMode::Auto),
            ("iptables", ProxyMode::Iptables),
            ("nftables", ProxyMode::Nftables),
        ] {
            assert_eq!(name.parse(), Ok(mode));
        }
        let said = "ipvs".parse::<ProxyMode>().unwrap_err();
        assert!(
            said.contains("expected auto, iptables or nftables"),
            "{said}"
        );
    }
}
