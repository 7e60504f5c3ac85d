//! What only one of several servers does: the one list of it, and who does it.
//!
//! ```text
//! a store of this server's alone   it has the lock of its directory, so it does all of it, at once
//! a store that others share        a Lease for each group: who holds it does it, the others stand by
//! ```
//!
//! Why not always by Lease: `docs/adr/0017-one-server-leads-by-lease-where-several-can.md`. What
//! every server does for itself is started where it belongs (`server`, the API server's own
//! housekeeping).
//!
//! Source: `--leader-elect` of kube-controller-manager and kube-scheduler at v1.37.

use std::{error::Error, sync::Arc, time::Duration};

use coracle_apiserver::{ApiServer, UserInfo};
use coracle_client::leader_election::{self, Election, Lost};
use coracle_controllers::{Clients, ControllersConfig};
use coracle_scheduler::SchedulerConfig;
use coracle_store::{
    Backend,
    compaction::{self, CompactionPolicy},
};
use coracle_telemetry::{ExponentialBackoff, Health, Tasks};
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::{allocation_events, identity};

/// Where the Leases are.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Between the end of a part and its next start.
pub(crate) const RESTART: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// How long what is led gets to end: less than a Lease goes on after its last renewal, so that all
/// of it has ended when another may lead.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// One that must not run twice. It is started again whenever it ends.
#[derive(Clone)]
pub(crate) struct Part {
    name: &'static str,
    start: Arc<dyn Fn(CancellationToken) -> BoxFuture<'static, Result<(), Failed>> + Send + Sync>,
}

/// What goes by one Lease.
pub(crate) struct Group {
    /// The Lease's name, and that of the user who holds it without `system:`.
    name: &'static str,
    user: UserInfo,
    parts: Vec<Part>,
}

/// Why a part has ended.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Failed(Box<dyn Error + Send + Sync>);

/// How it is decided who does it.
pub(crate) enum Choice {
    /// Nobody else can have the store.
    Alone,
    /// By Lease, under this name.
    ByLease { identity: String },
}

/// Everything that only one of the servers of a cluster does.
pub(crate) fn groups(
    apiserver: &Arc<ApiServer>,
    backend: &Arc<dyn Backend>,
    scheduling: SchedulerConfig,
    controllers: (Clients, ControllersConfig),
) -> [Group; 2] {
    let scheduler = apiserver.client(UserInfo::new("system:kube-scheduler", &[]));
    let leases = Api::namespaced(apiserver.client(identity::user()), NAMESPACE);
    let (compacted, forgetting) = (Arc::clone(backend), Arc::clone(apiserver));
    let (repairing, defining) = (Arc::clone(apiserver), Arc::clone(apiserver));
    let (clients, settings) = controllers;
    [
        Group::new(
            "kube-scheduler",
            vec![Part::new("scheduler", move |stop| {
                coracle_scheduler::run(scheduler.clone(), scheduling.clone(), stop)
            })],
        ),
        Group::new(
            "kube-controller-manager",
            vec![
                Part::new("controllers", move |stop| {
                    coracle_controllers::run(clients.clone(), settings.clone(), stop)
                }),
                Part::endless("compaction", move |stop| {
                    compaction::run(Arc::clone(&compacted), CompactionPolicy::default(), stop)
                }),
                Part::endless("definitions-keeper", move |stop| {
                    Arc::clone(&defining).keep_definitions(stop)
                }),
                Part::endless("event-expiry", move |stop| {
                    Arc::clone(&forgetting).forget_old_events(stop)
                }),
                Part::endless("service-allocation-repair", move |stop| {
                    allocation_events::run(Arc::clone(&repairing), stop)
                }),
                Part::endless("identity-lease-gc", move |stop| {
                    identity::forget_old(leases.clone(), stop)
                }),
            ],
        ),
    ]
}

impl Part {
    pub(crate) fn new<F, E>(
        name: &'static str,
        start: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Error + Send + Sync + 'static,
    {
        let start = move |stop| {
            let run = start(stop);
            async move { run.await.map_err(|error| Failed(Box::new(error))) }.boxed()
        };
        Self {
            name,
            start: Arc::new(start),
        }
    }

    /// One that cannot fail.
    fn endless<F>(
        name: &'static str,
        start: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let start = move |stop| start(stop).map(Ok).boxed();
        Self {
            name,
            start: Arc::new(start),
        }
    }

    fn keep(&self, tasks: &mut Tasks, restart: ExponentialBackoff, health: &Health) {
        let start = Arc::clone(&self.start);
        tasks.keep(self.name, restart, health, move |stop| start(stop));
    }
}

impl Group {
    pub(crate) fn new(name: &'static str, parts: Vec<Part>) -> Self {
        Self {
            name,
            user: UserInfo::new(format!("system:{name}"), &[]),
            parts,
        }
    }

    /// Starts its parts, now or whenever this server leads.
    pub(crate) fn start(self, choice: &Choice, apiserver: &Arc<ApiServer>, tasks: &mut Tasks) {
        let health = apiserver.health();
        match choice {
            Choice::Alone => {
                for part in &self.parts {
                    part.keep(tasks, RESTART, health);
                }
            }
            Choice::ByLease { identity } => {
                let lock = Api::namespaced(apiserver.client(self.user), NAMESPACE);
                let election = Election::new(self.name, identity);
                let (parts, known) = (self.parts, health.clone());
                tasks.keep(self.name, RESTART, health, move |stop| {
                    stand(
                        lock.clone(),
                        election.clone(),
                        parts.clone(),
                        known.clone(),
                        stop,
                    )
                });
            }
        }
    }
}

/// Leads as soon as it may and for as long as it can.
///
/// # Errors
/// [`Lost`]: nothing runs any more; stand again.
pub(crate) async fn stand(
    lock: Api<Lease>,
    election: Election,
    parts: Vec<Part>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Lost> {
    let ended = leader_election::run(lock, election, stop, |leading| {
        lead(&parts, &health, leading)
    })
    .await;
    // Where nothing of it runs, nothing of it is unwell.
    for part in &parts {
        health.tell(part.name, true);
    }
    ended
}

/// Runs all parts until it is told to stop. Dropped, it ends them where they are.
pub(crate) async fn lead(parts: &[Part], health: &Health, leading: CancellationToken) {
    let mut tasks = Tasks::new(leading.clone());
    for part in parts {
        part.keep(&mut tasks, RESTART, health);
    }
    leading.cancelled().await;
    tasks.finish(STOP_TIMEOUT).await;
}

#[cfg(test)]
mod tests;
