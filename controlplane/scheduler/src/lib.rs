//! The scheduler: gives every pod without a node the best node that it fits on.
//!
//! One task owns the queue and the cache and decides; watches feed it, binding happens beside it. A decision is
//! assumed in the cache at once, so the next one sees it, and forgotten if the API server refuses the binding.
//!
//! | module | does |
//! |---|---|
//! | `pod_info`, `node_info` | what of a Pod and a Node matters for placing, compact |
//! | `cache` | nodes with the pods on them, assumed ones included |
//! | `queue` | pods to place: active, backing off, unschedulable |
//! | `framework`, `plugins` | Filter and Score, and upstream's plugins by name |
//! | `schedule_one` | pure: pod and cache to node, or why there is none |
//! | `figures` | what `/metrics` tells |
//! | `bind` | the writes: Binding, condition, Event |
//! | `reports` | which of these a pod that fits nowhere is worth |
//! | `sync` | the watches |
//!
//! Not here: preemption, extenders, other profiles. Nor required affinity between pods, hard topology spread, resource and
//! volume claims: a pod that asks for one of these waits and is told so (`pod_info`).
#![forbid(unsafe_code)]

mod bind;
mod cache;
mod figures;
mod framework;
mod node_info;
mod plugins;
mod pod_info;
mod queue;
mod reports;
mod schedule_one;
mod scheduler;
mod sync;

use coracle_api::exposition::Registry;
use kube::Client;
use tokio_util::sync::CancellationToken;

/// What the scheduler is told.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    /// Pods that name this scheduler in `spec.schedulerName` are placed.
    pub name: String,
    /// Where the scheduler counts what it does.
    pub metrics: Registry,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { name: "default-scheduler".to_owned(), metrics: Registry::default() }
    }
}

/// Why the scheduler gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// A task of it has panicked: its state cannot be trusted any more.
    #[error("a task of the scheduler has died")]
    TaskDied(#[source] tokio::task::JoinError),
}

/// Places pods until `shutdown` fires.
///
/// # Errors
/// Only what cannot be retried; the caller starts it anew, it keeps no state of its own.
pub async fn run(client: Client, config: SchedulerConfig, shutdown: CancellationToken) -> Result<(), SchedulerError> {
    scheduler::Scheduler::new(client, config).run(shutdown).await
}
