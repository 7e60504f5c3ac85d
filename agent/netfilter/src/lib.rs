//! What the kernel shall do with packets, and how it is told.
//!
//! | module | does |
//! |---|---|
//! | [`service`] | the plan: a Service, its ports and the endpoints behind them |
//! | [`host_port`] | the plan for ports of pods that are published on the node |
//! | [`masquerade`] | the plan for what pods send out of the cluster |
//! | [`engine`] | what keeps the kernel equal to the plan, whichever way it is told |
//! | [`nftables`] | the engine over nftables' netlink interface: elements of maps (pure), written by difference |
//! | [`iptables`] | the engine over `iptables-restore`: rules as text (pure), written by difference |
//! | [`flows`] | UDP flows that nobody answers any more |
//! | [`conntrack`] | the kernel's table of connections: list, delete |
//!
//! The plan names addresses of either family; what makes it takes IPv4 only, and so does the engine
//! over iptables. Everything here works in the calling thread's network namespace, and what asks
//! the kernel blocks. Nothing here knows the API: who watches Services makes the plan.

#![forbid(unsafe_code)]

pub mod conntrack;
pub mod engine;
pub mod flows;
mod generation;
pub mod host_port;
pub mod iptables;
pub mod masquerade;
mod netlink;
pub mod nftables;
#[cfg(test)]
mod packets;
pub mod service;

use self::{
    engine::{EngineError, ServiceEngine},
    iptables::{Iptables, Writer},
    nftables::Services,
    service::ServiceNetwork,
};

/// Which engine keeps Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Rules by `iptables-restore`.
    #[default]
    Iptables,
    /// Elements of nftables' maps.
    Nftables,
}

impl std::str::FromStr for ProxyMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "iptables" => Ok(Self::Iptables),
            "nftables" => Ok(Self::Nftables),
            other => Err(format!("{other:?}: expected iptables or nftables")),
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
    let iptables = Iptables::find().map_err(EngineError::new)?;
    Ok(match mode {
        ProxyMode::Iptables => Box::new(Writer::new(iptables, network)),
        ProxyMode::Nftables => Box::new(Services::new(iptables, network)),
    })
}
