//! The one task that owns queue and cache and decides.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

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
    schedule_one::Algorithm,
    sync::{self, SyncEvent},
};

/// Watch events on their way: a burst of 500 pods and their bindings.
const EVENTS_IN_FLIGHT: usize = 1024;
/// Bindings on their way; beyond, deciding waits.
const BINDINGS_IN_FLIGHT: usize = 256;
/// Reports (conditions, Events) on their way; beyond, Events are dropped.
const REPORTS_IN_FLIGHT: usize = 1024;
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
    reports: JoinSet<()>,
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
            reports: JoinSet::new(),
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
            self.decide();
            self.figures.queues(self.queue.lengths());
            self.figures.cache(self.cache.nodes().count(), self.cache.placed_count());
            let wake = self.queue.next_flush().unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                Some(event) = events.recv() => {
                    self.apply(event);
                    while let Ok(event) = events.try_recv() {
                        self.apply(event);
                    }
                }
                Some(done) = self.bindings.join_next() => {
                    self.bound(done.map_err(SchedulerError::TaskDied)?);
                }
                Some(_) = self.reports.join_next() => {}
                Some(ended) = watches.join_next() => {
                    ended.map_err(SchedulerError::TaskDied)?;
                }
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Places every pod that is active now.
    fn decide(&mut self) {
        if !self.synced.pods || !self.synced.nodes {
            return;
        }
        while self.bindings.len() < BINDINGS_IN_FLIGHT {
            let Some(pod) = self.queue.pop() else { return };
            let started = Instant::now();
            let decided = self.algorithm.schedule(&pod, &self.cache);
            self.figures.decided(started.elapsed(), decided.is_ok());
            match decided {
                Ok(node) => {
                    self.cache.assume(&pod, &node);
                    self.start_binding(Decision { pod, node, started });
                }
                Err(refused) => {
                    self.queue.park(&pod.uid, Instant::now());
                    self.report_unschedulable(pod, refused.to_string());
                }
            }
        }
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
                self.queue.remove(&pod.uid);
                self.report_scheduled(pod, node);
            }
            Err(error) if error.is_settled() => {
                self.cache.forget(&pod.uid);
                self.queue.remove(&pod.uid);
            }
            Err(error) => {
                tracing::warn!(pod = pod.key(), node, %error, "binding failed; the pod is tried again");
                self.cache.forget(&pod.uid);
                self.queue.retry(&pod.uid, Instant::now());
            }
        }
    }

    fn report_scheduled(&mut self, pod: Arc<PodInfo>, node: String) {
        if self.reports.len() < REPORTS_IN_FLIGHT {
            let (client, source) = (self.client.clone(), self.config.name.clone());
            self.reports.spawn(async move { bind::report_scheduled(&client, &source, &pod, &node).await });
        }
    }

    fn report_unschedulable(&mut self, pod: Arc<PodInfo>, message: String) {
        if self.reports.len() < REPORTS_IN_FLIGHT {
            let (client, source) = (self.client.clone(), self.config.name.clone());
            self.reports.spawn(async move { bind::report_unschedulable(&client, &source, &pod, message).await });
        }
    }

    fn apply(&mut self, event: SyncEvent) {
        match event {
            SyncEvent::PodApplied(pod) => self.pod_applied(*pod),
            SyncEvent::PodDeleted(uid) => self.pod_gone(&uid),
            SyncEvent::PodsListed(existing) => {
                self.synced.pods = true;
                self.remove_vanished_pods(&existing);
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
            self.cache.observe(&pod, node);
        } else if pod.scheduler_name == self.config.name && !pod.gated && !self.cache.is_placed(&pod.uid) {
            self.queue.add(pod);
        }
    }

    fn pod_gone(&mut self, uid: &PodUid) {
        self.queue.remove(uid);
        if self.cache.remove_pod(uid) {
            self.queue.move_all(Instant::now());
        }
    }

    fn remove_vanished_pods(&mut self, existing: &HashSet<PodUid>) {
        let known = self.queue.uids().into_iter().chain(self.cache.placed_pods());
        for uid in known.collect::<Vec<_>>() {
            if !existing.contains(&uid) {
                self.pod_gone(&uid);
            }
        }
    }
}
