//! Coracle's controllers: the loops that make the cluster be what its objects say.

#![forbid(unsafe_code)]

mod cache;
mod config;
mod context;
mod controller;
mod deployment;
mod event_recorder;
mod expectations;
mod informer;
mod owner;
mod pod_state;
mod replicaset;
mod work_queue;

use kube::Client;
use tokio_util::sync::CancellationToken;

pub use config::ControllersConfig;

/// Why the controllers could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error("controllers configuration: {0}")]
    Config(String),
}

/// Runs every controller until `shutdown`.
pub async fn run(_client: Client, _config: ControllersConfig, shutdown: CancellationToken) -> Result<(), RunError> {
    shutdown.cancelled().await;
    Ok(())
}
