//! A scheduler that is a process of its own, beside that of the servers.

use std::sync::Arc;

use coracle_client::leader_election::{Election, Lost};
pub use coracle_scheduler::{
    ConfigError, ElectionConfig, Explanation, SchedulerConfig, WhyError, why,
};
use coracle_telemetry::Health;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::leading::{Part, lead, stand};

/// Places pods until `shutdown` fires; of several with one Lease only while it holds it.
///
/// # Errors
/// [`Lost`]: another has taken the Lease. It may be run again.
pub async fn run(
    client: Client,
    config: SchedulerConfig,
    host: &str,
    shutdown: CancellationToken,
) -> Result<(), Lost> {
    let (leases, election) = (client.clone(), config.election.clone());
    let names: Vec<&str> = config.names().collect();
    tracing::info!(
        schedulers = names.join(","),
        lease = election.elect.then_some(&*election.lease),
        "placing pods"
    );
    let config = Arc::new(config);
    let part = Part::new("scheduler", move |stop| {
        coracle_scheduler::run(client.clone(), SchedulerConfig::clone(&config), stop)
    });
    let (parts, health) = (vec![part], Health::default());
    if !election.elect {
        lead(&parts, &health, shutdown).await;
        return Ok(());
    }
    let standing = Election {
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
        ..Election::new(election.lease, format!("{host}_{}", Uuid::new_v4()))
    };
    let lock = Api::namespaced(leases, &election.namespace);
    stand(lock, standing, parts, health, shutdown).await
}
