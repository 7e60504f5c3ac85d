//! The one task that owns queue and cache and decides.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_telemetry::Chain;
use kube::Client;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    SchedulerConfig, SchedulerError,
    bind::{self, BindError, Decision},
    cache::Cache,
    figures::Figures,
    pod_info::{PodInfo, PodUid},
    queue::SchedulingQueue,
    reports::Reports,
    schedule_one::Algorithm,
    sync::{self, SyncEvent},
};

/// Watch events on their way: a burst of 500 pods and their bindings.
const EVENTS_IN_FLIGHT: usize = 1024;
/// Bindings on their way; beyond, deciding waits.
const BINDINGS_IN_FLIGHT: usize = 256;
/// Events about placed pods on their way; beyond, they are dropped.
const EVENTS_OUT: usize = 1024;
/// How long the loop decides before it looks at what has happened meanwhile, and lets others use its thread: thousands of
/// pods that fit nowhere take seconds.
const SLICE: Duration = Duration::from_millis(5);
/// Without anything in back-off, how long the loop may sleep.
const IDLE: Duration = Duration::from_secs(3600);

type Binding = (Decision, Result<(), BindError>);

/// See the module.
pub(crate) struct Scheduler {
    client: Client,
    config: SchedulerConfig,
    queue: SchedulingQueue,
    cache: Cache,
    algorithm: Algorithm,
    figures: Figures,
    bindings: JoinSet<Binding>,
    reports: Reports,
    events_out: JoinSet<()>,
    /// Deciding on half a picture would crowd the nodes that were listed first.
    synced: Synced,
}

#[derive(Default)]
struct Synced {
    pods: bool,
    nodes: bool,
}

impl Scheduler {
    pub(crate) fn new(client: Client, config: SchedulerConfig) -> Self {
        Self {
            figures: Figures::new(&config.metrics, &config.name),
            client,
            config,
            queue: SchedulingQueue::default(),
            cache: Cache::default(),
            algorithm: Algorithm::new(),
            bindings: JoinSet::new(),
            reports: Reports::default(),
            events_out: JoinSet::new(),
            synced: Synced::default(),
        }
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> Result<(), SchedulerError> {
        let (sender, mut events) = mpsc::channel(EVENTS_IN_FLIGHT);
        let mut watches = JoinSet::new();
        watches.spawn(sync::follow_pods(self.client.clone(), sender.clone(), shutdown.clone()));
        watches.spawn(sync::follow_nodes(self.client.clone(), sender, shutdown.clone()));
        loop {
            self.queue.flush(Instant::now());
            let more = self.decide();
            self.reports.send(&self.client, &self.config.name, Instant::now());
            self.figures.queues(self.queue.lengths());
            self.figures.cache(self.cache.nodes().count(), self.cache.placed_count());
            let wake = self.queue.next_flush().unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                Some(event) = events.recv() => {
                    self.apply(event);
                    // All that wait: what is decided next should know of them.
                    while let Ok(event) = events.try_recv() {
                        self.apply(event);
                    }
                }
                Some(done) = self.bindings.join_next() => {
                    self.bound(done.map_err(SchedulerError::TaskDied)?);
                }
                Some(told) = self.reports.next() => told.map_err(SchedulerError::TaskDied)?,
                Some(_) = self.events_out.join_next() => {}
                Some(ended) = watches.join_next() => {
                    ended.map_err(SchedulerError::TaskDied)?;
                }
                () = pause(more, wake) => {}
            }
        }
    }

    /// Places the pods that are active now, for a moment. Says whether some are left that it could place.
    fn decide(&mut self) -> bool {
        if !self.synced.pods || !self.synced.nodes {
            return false;
        }
        let end = Instant::now() + SLICE;
        while self.bindings.len() < BINDINGS_IN_FLIGHT {
            if Instant::now() >= end {
                return true;
            }
            let Some(pod) = self.queue.pop() else { return false };
            let started = Instant::now();
            let decided = self.algorithm.schedule(&pod, &self.cache);
            self.figures.decided(started.elapsed(), decided.is_ok());
            match decided {
                Ok(node) => {
                    self.reports.forget(&pod.uid);
                    self.cache.assume(&pod, &node);
                    self.start_binding(Decision { pod, node, started });
                }
                Err(refused) => {
                    let now = Instant::now();
                    self.queue.park(&pod.uid, now);
                    self.reports.unschedulable(pod, refused.to_string(), now);
                }
            }
        }
        // The end of a binding goes on.
        false
    }

    fn start_binding(&mut self, decision: Decision) {
        let client = self.client.clone();
        self.bindings.spawn(async move {
            let result = bind::bind(&client, &decision.pod, &decision.node).await;
            (decision, result)
        });
    }

    fn bound(&mut self, (decision, result): Binding) {
        let Decision { pod, node, started } = decision;
        self.figures.bound(started.elapsed(), result.is_ok());
        match result {
            Ok(()) => {
                self.cache.bound(&pod.uid, Instant::now());
                self.queue.remove(&pod.uid);
                self.report_scheduled(pod, node);
            }
            Err(error) if error.is_settled() => {
                self.cache.forget(&pod.uid);
                self.queue.remove(&pod.uid);
            }
            Err(error) => {
                tracing::warn!(pod = pod.key(), node, error = %Chain(&error), "binding failed; the pod is tried again");
                self.cache.forget(&pod.uid);
                self.queue.retry(&pod.uid, Instant::now());
            }
        }
    }

    fn report_scheduled(&mut self, pod: Arc<PodInfo>, node: String) {
        if self.events_out.len() < EVENTS_OUT {
            let (client, source) = (self.client.clone(), self.config.name.clone());
            self.events_out.spawn(async move { bind::report_scheduled(&client, &source, &pod, &node).await });
        }
    }

    fn apply(&mut self, event: SyncEvent) {
        match event {
            SyncEvent::PodApplied(pod) => self.pod_applied(*pod),
            SyncEvent::PodDeleted(uid) => self.pod_gone(&uid),
            SyncEvent::PodsListed { existing, begun } => {
                self.synced.pods = true;
                self.remove_vanished_pods(&existing, begun);
            }
            SyncEvent::NodeApplied(node) => {
                if self.cache.set_node(&node) {
                    self.queue.move_all(Instant::now());
                }
            }
            SyncEvent::NodeDeleted(name) => self.cache.remove_node(&name),
            SyncEvent::NodesListed(existing) => {
                self.synced.nodes = true;
                for name in self.cache.node_names() {
                    if !existing.contains(&name) {
                        self.cache.remove_node(&name);
                    }
                }
            }
        }
    }

    fn pod_applied(&mut self, pod: PodInfo) {
        if pod.finished || pod.terminating && pod.node_name.is_none() {
            self.pod_gone(&pod.uid);
        } else if let Some(node) = &pod.node_name {
            self.queue.remove(&pod.uid);
            self.reports.forget(&pod.uid);
            self.cache.observe(&pod, node);
        } else if pod.scheduler_name == self.config.name && !pod.gated && !self.cache.is_placed(&pod.uid) {
            let pod = Arc::new(pod);
            self.reports.changed(&pod, Instant::now());
            self.queue.add(pod);
        }
    }

    fn pod_gone(&mut self, uid: &PodUid) {
        self.queue.remove(uid);
        self.reports.forget(uid);
        if self.cache.remove_pod(uid) {
            self.queue.move_all(Instant::now());
        }
    }

    fn remove_vanished_pods(&mut self, existing: &HashSet<PodUid>, listed: Instant) {
        let known = self.queue.uids().into_iter().chain(self.cache.placed_before(listed));
        for uid in known.collect::<Vec<_>>() {
            if !existing.contains(&uid) {
                self.pod_gone(&uid);
            }
        }
    }
}

/// Until `wake`; only long enough for others to get a turn while there is `more` to do.
async fn pause(more: bool, wake: Instant) {
    if more { tokio::task::yield_now().await } else { tokio::time::sleep_until(wake.into()).await }
}
