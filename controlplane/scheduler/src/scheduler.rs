//! The one task that owns queue and cache and decides.
//!
//! What the informers tell it changes them in `apply`; `attempt` is one pod's way to a decision.
//! Pods on their way to be bound have tasks of their own, and so have those that end to make room.

mod apply;
mod attempt;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_client::event_recorder::EventRecorder;
use coracle_telemetry::{ErrorChain, ExponentialBackoff, Tasks, span};
use kube::Client;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{JoinSet, block_in_place},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    SchedulerConfig, SchedulerError,
    cache::Cache,
    eviction::{Evicted, Evictions},
    framework::{ClusterEvent, CycleState, Permission, PluginSet, Status},
    metrics::Metrics,
    plugins::BindError,
    pod_info::PodInfo,
    profiles::Profiles,
    queue::SchedulingQueue,
    reports::Reports,
    schedule_one::Algorithm,
    storage::SharedStorage,
    sync::{self, HeldWhole, Inbox},
};

/// Bindings on their way; beyond, deciding waits.
const BINDINGS_IN_FLIGHT: usize = 256;
/// So many that what is told of pods that wait gives way to them.
const MANY_BINDINGS: usize = 32;
/// Pods for which others are being ended; beyond, deciding waits.
const EVICTIONS_IN_FLIGHT: usize = 64;
/// Pods that wait for their volumes before they are bound, or for an extender to bind them: for
/// minutes, and nobody is held up by them. Beyond, a pod is tried again later.
const WAITING_BINDINGS: usize = 4096;
/// How long the loop decides before it looks at what has happened meanwhile, and lets others use
/// its thread: thousands of pods that fit nowhere take seconds.
const SLICE: Duration = Duration::from_millis(5);
/// How long informers and the recorder of Events get to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Without anything in back-off, how long the loop may sleep.
const IDLE: Duration = Duration::from_secs(3600);

/// A pod with the node that was chosen for it, on its way to be bound.
struct Decision {
    pod: Arc<PodInfo>,
    node: String,
    /// When it was begun.
    started: Instant,
    cycle: CycleState,
}

/// Queue, cache and framework, and the bindings under way.
pub(crate) struct Scheduler {
    client: Client,
    config: SchedulerConfig,
    pub(crate) profiles: Profiles,
    queue: SchedulingQueue,
    pub(crate) cache: Cache,
    algorithm: Algorithm,
    metrics: Metrics,
    storage: Arc<SharedStorage>,
    bindings: JoinSet<(Decision, Status)>,
    /// Bindings that wait for something else first.
    waiting: JoinSet<(Decision, Status)>,
    reports: Reports,
    evictions: Evictions,
}

impl Scheduler {
    /// Whom it waits for in the middle of an attempt it waits for until `stop`.
    pub(crate) fn new(
        client: Client,
        config: SchedulerConfig,
        recorder: EventRecorder,
        stop: CancellationToken,
    ) -> Self {
        let storage = Arc::new(SharedStorage::default());
        let profiles = Profiles::new(&config, &client, &storage, stop);
        let waits = ExponentialBackoff::new(config.backoff_initial, config.backoff_max);
        Self {
            metrics: Metrics::new(&config.metrics, config.names()),
            queue: SchedulingQueue::new(profiles.clone(), waits, Instant::now()),
            cache: Cache::default(),
            algorithm: Algorithm::new(profiles.clone()),
            profiles,
            storage,
            bindings: JoinSet::new(),
            waiting: JoinSet::new(),
            evictions: Evictions::new(client.clone(), recorder.clone()),
            reports: Reports::new(client.clone(), recorder),
            client,
            config,
        }
    }

    pub(crate) async fn run(mut self, mut tasks: Tasks) -> Result<(), SchedulerError> {
        let inbox = Arc::new(Inbox::default());
        let names = self.config.names().map(str::to_owned).collect();
        let whole = HeldWhole::by(&self.config);
        let synced = sync::informers(&self.client, names, whole, &inbox).spawn(&mut tasks);
        let ended = tokio::select! {
            ended = tasks.watch() => ended.map_err(SchedulerError::Fed),
            // Deciding on half a picture would crowd the nodes that were listed first.
            ended = async {
                synced.await;
                self.decide_and_listen(&inbox).await
            } => ended,
        };
        tasks.finish(STOP_TIMEOUT).await;
        ended
    }

    async fn decide_and_listen(&mut self, inbox: &Inbox) -> Result<(), SchedulerError> {
        loop {
            // All that waits: what is decided next should know of it.
            for event in inbox.take() {
                self.apply(event);
            }
            self.queue.flush(Instant::now());
            let more = self.decide();
            let are_many_bound = self.bindings.len() >= MANY_BINDINGS;
            self.reports.send(Instant::now(), are_many_bound);
            self.metrics.queues(self.queue.lengths());
            self.metrics.cache(
                self.cache.snapshot().nodes().len(),
                self.cache.placed_count(),
            );
            let wake = self
                .queue
                .next_flush()
                .unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                () = inbox.arrived() => {}
                Some(done) = self.bindings.join_next() => {
                    let (decision, status) = done.map_err(SchedulerError::TaskDied)?;
                    self.bound(decision, &status);
                }
                Some(done) = self.waiting.join_next() => {
                    let (decision, status) = done.map_err(SchedulerError::TaskDied)?;
                    self.bound(decision, &status);
                }
                Some(done) = self.evictions.next() => {
                    self.evicted(&done.map_err(SchedulerError::TaskDied)?);
                }
                Some(told) = self.reports.next() => told.map_err(SchedulerError::TaskDied)?,
                () = pause(more, wake) => {}
            }
        }
    }

    /// Places the pods that are active now, for a moment. Says whether some are left that it could
    /// place.
    fn decide(&mut self) -> bool {
        if self.has_enough_to_do() {
            // The end of a binding or an eviction goes on.
            return false;
        }
        match self.queue.pop() {
            Some(first) => beside_others(|| self.decide_from(first)),
            None => false,
        }
    }

    fn decide_from(&mut self, first: Arc<PodInfo>) -> bool {
        let end = Instant::now() + SLICE;
        self.decide_one(first);
        while !self.has_enough_to_do() {
            if Instant::now() >= end {
                return true;
            }
            let Some(pod) = self.queue.pop() else {
                return false;
            };
            self.decide_one(pod);
        }
        false
    }

    fn has_enough_to_do(&self) -> bool {
        self.bindings.len() >= BINDINGS_IN_FLIGHT || self.evictions.len() >= EVICTIONS_IN_FLIGHT
    }

    fn give_up(&mut self, pod: Arc<PodInfo>, refused_by: PluginSet, message: String) {
        let now = Instant::now();
        if self.queue.add_unschedulable(&pod.uid, refused_by, now) {
            let uid = pod.uid.clone();
            self.reports.unschedulable(pod, message, now);
            let nomination = self.cache.nomination(&uid);
            self.reports.nominated(&uid, nomination, now);
        }
    }

    /// Room has been made for a pod, or could not be.
    fn evicted(&mut self, evicted: &Evicted) {
        for victim in &evicted.staying {
            self.cache.set_ending(victim, false);
        }
        self.queue.release(&evicted.preemptor);
        if !evicted.staying.is_empty() {
            self.queue.try_now(&evicted.preemptor);
        }
    }

    fn attempt_failed(&mut self, pod: Arc<PodInfo>, status: &Status) {
        let plugin = status.plugin().map(tracing::field::display);
        tracing::warn!(
            pod = pod.key(),
            plugin,
            error = status.message(),
            "a plugin has failed; the pod is tried again"
        );
        self.try_again(pod, status.message());
    }

    /// After a failure that is none of the pod's: it is told, and the pod tried soon.
    fn try_again(&mut self, pod: Arc<PodInfo>, message: String) {
        let now = Instant::now();
        if self.queue.retry(&pod.uid, now) {
            self.reports.failed(pod, message, now);
        }
    }

    fn start_binding(&mut self, mut decision: Decision) {
        let permission = match self.reserve(&mut decision) {
            Ok(permission) => permission,
            Err(status) => return self.bound(decision, &status),
        };
        let framework = self.profiles.of(&decision.pod).clone();
        let tasks = match framework.binds_slowly(&decision.cycle, &decision.pod) {
            true => &mut self.waiting,
            false => &mut self.bindings,
        };
        if tasks.len() >= WAITING_BINDINGS {
            let status = Status::error("too many pods wait for their volumes or for an extender");
            return self.bound(decision, &status);
        }
        let span = span!(
            "Binding",
            pod = decision.pod.key(),
            uid = &*decision.pod.uid.0,
            node = &*decision.node
        );
        let bind = async move {
            let Decision {
                pod, node, cycle, ..
            } = &decision;
            let status = framework.run_bind(cycle, pod, node, permission).await;
            (decision, status)
        };
        coracle_telemetry::spawn_in(tasks, "bind a pod", bind.instrument(span));
    }

    /// What the plugins take for the pod, and what its binding has to wait for.
    fn reserve(&self, decision: &mut Decision) -> Result<Option<Permission>, Status> {
        let Decision {
            pod, node, cycle, ..
        } = decision;
        let snapshot = self.cache.snapshot();
        let info = snapshot.node(node);
        let info = info.ok_or_else(|| Status::error("the node is gone"))?;
        let framework = self.profiles.of(pod);
        let status = framework.run_reserve(cycle, pod, info);
        match status.is_success() {
            true => framework.run_permit(cycle, pod, node),
            false => Err(status),
        }
    }

    fn bound(&mut self, decision: Decision, status: &Status) {
        let Decision {
            pod,
            node,
            started,
            mut cycle,
        } = decision;
        let (profile, took) = (&pod.scheduler_name, started.elapsed());
        self.metrics.bound(profile, took, status.is_success());
        if status.is_success() {
            self.queue.remove(&pod.uid);
            self.reports.scheduled(&pod, &node);
            return;
        }
        let framework = self.profiles.of(&pod);
        framework.run_unreserve(&mut cycle, &pod, &node);
        // Its room is free for others, who may have been refused meanwhile; and if it has gone by
        // itself, what its plugins had taken is free only now.
        self.cache.forget(&pod.uid);
        self.queue
            .move_to_active_or_backoff(&ClusterEvent::AssignedPodDeleted(&pod), Instant::now());
        let error = status
            .source()
            .and_then(|source| source.downcast_ref::<BindError>());
        if error.is_some_and(BindError::is_settled) {
            // The informer is about to say so. If it does not, the pod is tried again.
            self.queue.retry(&pod.uid, Instant::now());
        } else if status.is_refusal() {
            self.give_up(pod, status.plugin().into_iter().collect(), status.message());
        } else {
            let reason = status.message();
            let message = match error {
                Some(error) => format!("{reason}: {}", ErrorChain(error)),
                None => reason,
            };
            tracing::warn!(
                pod = pod.key(),
                node,
                error = message,
                "binding failed; the pod is tried again"
            );
            self.try_again(pod, message);
        }
    }
}

/// Does `work` while the runtime's other tasks go on. A slice ends between two attempts, and one
/// attempt takes as long as its pod makes it: hundreds of milliseconds for thousands of terms.
fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        // One thread alone, as in tests: there is nothing beside it.
        _ => work(),
    }
}

/// Until `wake`; only long enough for others to get a turn while there is `more` to do.
async fn pause(more: bool, wake: Instant) {
    if more {
        tokio::task::yield_now().await
    } else {
        tokio::time::sleep_until(wake.into()).await
    }
}

#[cfg(test)]
mod tests;
