//! The scheduler: gives every pod without a node the best node that it fits on.
//!
//! One task owns the queue and the cache and decides; watches feed it, binding happens beside it. A
//! decision is assumed in the cache at once, so the next one sees it, and forgotten if the API
//! server refuses the binding.
//!
//! | module | does |
//! |---|---|
//! | `pod_info`, `node_info`, `resources` | what of a Pod and a Node matters for placing, compact |
//! | `cache`, `snapshot` | nodes with the pods on them, assumed ones included; what one attempt sees of it |
//! | `namespaces`, `images`, `selectors`, `label_counts`, `spread_counts`, `affinity_index`, `claim_uses`, `priorities`, `budgets` | what it sees beside nodes: labels, who has which image, who selects pods, on which nodes and in which places pods of the same labels are, whose affinity terms hold where, which claims are in use, whom to preempt and whom not |
//! | `storage` | claims, volumes and what CSI drivers say, and what of it is only assumed |
//! | `postings`, `bits` | many things by their labels, for who asks much |
//! | `config` | what the scheduler is told: profiles, extenders |
//! | `queue` | pods to place: gated, active, backing off, unschedulable |
//! | `framework` | the extension points, what plugins answer, and who asks them |
//! | `plugins` | upstream's plugins by name, put together for a profile |
//! | `profiles` | the plugins of each profile, by the `schedulerName` |
//! | `schedule_one` | pure: pod and nodes to node, or why there is none |
//! | `scheduler` | the task that owns all of it |
//! | `eviction` | ends the pods that make room for another |
//! | `metrics` | what `/metrics` tells |
//! | `extender` | speaks with a process beside the scheduler that has a say in where pods go |
//! | `fuzzing` | entries for the fuzz targets (feature `fuzzing`) |
//! | `unscheduled`, `condition` | why a pod has no node, and how that is written |
//! | `reports` | when that is worth a write, and what is worth an Event |
//! | `why` | the same about one pod, for people: what each plugin says about each node |
//! | `sync` | what the informers tell, for the task to take when it has time |
//!
//! Not here: resource claims. A pod that has one waits and is told so (`plugins/not_yet.rs`).
#![forbid(unsafe_code)]

mod affinity_index;
mod bits;
mod budgets;
mod cache;
mod claim_uses;
mod condition;
mod config;
mod eviction;
mod extender;
mod framework;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod images;
mod label_counts;
mod metrics;
mod namespaces;
mod node_info;
mod plugins;
mod pod_info;
mod postings;
mod priorities;
mod profiles;
mod queue;
mod reports;
mod resources;
mod schedule_one;
mod scheduler;
mod selectors;
mod snapshot;
mod spread_counts;
mod storage;
mod sync;
#[cfg(test)]
mod testing;
mod unscheduled;
mod why;

use std::time::Duration;

use coracle_client::event_recorder;
use coracle_telemetry::{TaskEnded, Tasks};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use config::{ConfigError, DEFAULT_SCHEDULER, ElectionConfig, SchedulerConfig};
pub use why::{Explanation, WhyError, why};

/// Why the scheduler gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// A task of it has panicked: its state cannot be trusted any more.
    #[error("a task of the scheduler has died")]
    TaskDied(#[source] tokio::task::JoinError),
    /// What feeds it, or writes its Events, has ended.
    #[error(transparent)]
    Fed(#[from] TaskEnded),
}

/// Places pods until `shutdown` fires.
///
/// # Errors
/// Only what cannot be retried; the caller starts it anew, it keeps no state of its own.
pub async fn run(
    client: Client,
    config: SchedulerConfig,
    shutdown: CancellationToken,
) -> Result<(), SchedulerError> {
    let (recorder, events) = event_recorder::channel(client.clone(), None, Duration::ZERO);
    // Ends with the tasks that it stops, and with `shutdown`.
    let mut tasks = Tasks::new(shutdown.child_token());
    let stop = tasks.stop();
    tasks.add("the scheduler's events", events.run(stop));
    scheduler::Scheduler::new(client, config, recorder, tasks.stop())
        .run(tasks)
        .await
}
