//! What the kernel shall do with packets, and how it is told.
//!
//! | module | does |
//! |---|---|
//! | [`service`] | the plan: a Service, its ports and the endpoints behind them |
//! | [`host_port`] | the plan for ports of pods that are published on the node |
//! | [`masquerade`] | the plan for what pods send out of the cluster |
//! | [`engine`] | what keeps the kernel equal to the plan, whichever way it is told |
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
pub mod host_port;
pub mod iptables;
pub mod masquerade;
pub mod service;

use self::{
    engine::{EngineError, ServiceEngine},
    iptables::{Iptables, Writer},
    service::ServiceNetwork,
};

/// The engine for this machine. It has written nothing yet.
///
/// # Errors
/// What it needs is not installed.
pub fn service_engine(network: ServiceNetwork) -> Result<Box<dyn ServiceEngine>, EngineError> {
    let iptables = Iptables::find().map_err(EngineError::new)?;
    Ok(Box::new(Writer::new(iptables, network)))
}
