//! One task a pod: makes what runs equal to what is wanted, then takes it down.
//!
//! ```text
//! Syncing --deleted, finished or failed--> Terminating --nothing runs--> Terminated --gone from the API--> (ends)
//! ```
//! The sync loop hands each worker the newest object through a `watch` channel and wakes it when
//! the runtime reports a change; the worker reads the state of its pod and decides anew each time
//! (level-triggered). One that panics is replaced ([`revival`]). Only the worker starts and stops
//! the containers of its pod.

mod actions;
mod collect;
mod crash_backoff;
mod hooks;
mod images;
mod kill;
mod observe;
mod publish;
mod remembered;
mod resize;
mod revival;
mod start;
mod sync;
mod terminate;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_telemetry::{Backoff, span};
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{
    allocation,
    backoff::RestartBackoff,
    context::NodeContext,
    eviction::manager::Eviction,
    objects::FRESH,
    pod::PodExt,
    pod_status,
    prober::{PodProbes, ProbingNode},
    runtime::types::{ContainerId, PodUid},
    status_reason::StatusReason,
};
use observe::RuntimeState;
use revival::Revived;

/// Pause after a sync that failed, doubled up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Who says what a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The API server itself has told this agent.
    Api,
    /// A copy on disk of what it told an earlier one: it may be older than what the API has.
    Copy,
}

/// What is wanted of a worker.
#[derive(Clone)]
pub(crate) struct Desired {
    /// The newest object.
    pub(crate) pod: Arc<Pod>,
    /// It no longer exists in the API: stop it and forget it.
    pub(crate) gone: bool,
    pub(crate) source: Source,
    /// It has to go for want of something: it fails with this.
    evicted: Option<StatusReason>,
    /// The node does not take it: it fails with this, and nothing of it is ever started.
    rejected: Option<StatusReason>,
}

impl Desired {
    /// A pod that is to run.
    pub(crate) fn wanted(pod: Arc<Pod>, source: Source) -> Self {
        Self {
            pod,
            gone: false,
            source,
            evicted: None,
            rejected: None,
        }
    }

    /// A pod that the API no longer has.
    pub(crate) fn gone(pod: Arc<Pod>) -> Self {
        Self {
            gone: true,
            ..Self::wanted(pod, Source::Api)
        }
    }

    /// A pod that the node does not take.
    pub(crate) fn rejected(pod: Arc<Pod>, source: Source, why: StatusReason) -> Self {
        let message = format!("{}{}", pod_status::REJECTED, why.message);
        let why = StatusReason::new(why.reason, message);
        Self {
            rejected: Some(why),
            ..Self::wanted(pod, source)
        }
    }

    fn must_stop(&self) -> bool {
        self.gone || self.evicted.is_some() || self.rejected.is_some() || self.pod.is_deleting()
    }
}

struct Handle {
    desired: watch::Sender<Desired>,
    wake: Arc<Notify>,
}

/// All workers, by UID. Owned by the sync loop.
pub(crate) struct PodWorkers {
    ctx: Arc<NodeContext>,
    workers: HashMap<PodUid, Handle>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    done: mpsc::Sender<PodUid>,
}

impl PodWorkers {
    /// `done` gets the UID of every pod that has ended for good.
    pub(crate) fn new(
        ctx: Arc<NodeContext>,
        shutdown: CancellationToken,
        done: mpsc::Sender<PodUid>,
    ) -> Self {
        Self {
            ctx,
            workers: HashMap::new(),
            tasks: TaskTracker::new(),
            shutdown,
            done,
        }
    }

    /// Hands over a new or changed pod.
    pub(crate) fn update(&mut self, desired: Desired) {
        let uid = desired.pod.uid();
        if let Some(handle) = self.workers.get(&uid) {
            // What the node has decided holds, whatever the API says of the pod since.
            handle.desired.send_modify(|now| {
                let (evicted, rejected) = (now.evicted.take(), now.rejected.take());
                *now = Desired {
                    evicted,
                    rejected,
                    ..desired
                };
            });
            return;
        }
        let wake = Arc::new(Notify::new());
        let (sender, receiver) = watch::channel(desired);
        let worker = Revived {
            ctx: Arc::clone(&self.ctx),
            uid: uid.clone(),
            desired: receiver,
            wake: Arc::clone(&wake),
            shutdown: self.shutdown.clone(),
        };
        let done = self.done.clone();
        self.workers.insert(
            uid.clone(),
            Handle {
                desired: sender,
                wake,
            },
        );
        coracle_telemetry::spawn_tracked(&self.tasks, "run a pod", async move {
            if worker.run().await {
                // The loop that receives this outlives its workers except at shutdown.
                let _ = done.send(uid).await;
            }
        });
    }

    /// The pod has to go, though the API wants it to run.
    pub(crate) fn evict(&self, eviction: Eviction) {
        if let Some(handle) = self.workers.get(&eviction.uid) {
            handle
                .desired
                .send_modify(|now| now.evicted = Some(eviction.why));
        }
    }

    /// Something about this pod changed in the runtime.
    pub(crate) fn wake(&self, uid: &PodUid) {
        if let Some(handle) = self.workers.get(uid) {
            handle.wake.notify_one();
        }
    }

    /// Look at all pods again.
    pub(crate) fn wake_all(&self) {
        for handle in self.workers.values() {
            handle.wake.notify_one();
        }
    }

    /// Drops the handle of a worker that has ended.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        self.workers.remove(uid);
    }

    /// Whether a worker cares for this pod.
    pub(crate) fn has(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid)
    }

    /// Waits until all workers have come to rest; they do soon after the shutdown token fires.
    pub(crate) async fn stopped(self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

struct PodWorker {
    ctx: Arc<NodeContext>,
    uid: PodUid,
    pod: Arc<Pod>,
    gone: bool,
    told: bool,
    desired: watch::Receiver<Desired>,
    wake: Arc<Notify>,
    shutdown: CancellationToken,
    probes: PodProbes,
    restarts: RestartBackoff,
    pulls: images::PullBackoff,
    waiting: BTreeMap<String, StatusReason>,
    termination_messages: HashMap<ContainerId, String>,
    failed: Option<StatusReason>,
    resize_pending: Option<StatusReason>,
    resize_error: Option<String>,
    hooks: hooks::Hooks,
    /// Running before this worker was; `None` until it has looked.
    inherited: Option<HashSet<ContainerId>>,
    /// When the end of a container was seen.
    ended: HashMap<ContainerId, Instant>,
    began: Instant,
    started_at: SystemTime,
    volumes_checked: Option<Instant>,
    retry: Backoff,
}

/// How a sync ended.
enum Progress {
    /// Nothing to do; look again after this long, if nothing happens.
    Settled(Option<Duration>),
    /// It did not work: look again after a pause.
    Failed,
    /// Everything that the pod wanted has been done.
    Finished,
}

impl PodWorker {
    /// How old an object may be that the pod starts with: no older than the pod, which may have
    /// been made because the object is another now.
    fn freshness(&self) -> Duration {
        FRESH.min(self.began.elapsed())
    }

    fn new(
        ctx: Arc<NodeContext>,
        uid: PodUid,
        mut desired: watch::Receiver<Desired>,
        wake: Arc<Notify>,
        shutdown: CancellationToken,
    ) -> Self {
        let first = desired.borrow_and_update().clone();
        let (runtime, events) = (Arc::clone(&ctx.runtime), ctx.events.clone());
        let probing = ProbingNode {
            runtime,
            events,
            address: ctx.config.node_ip,
        };
        Self {
            ctx,
            uid,
            pod: first.pod,
            gone: first.gone,
            told: first.source == Source::Api,
            desired,
            wake,
            shutdown,
            probes: PodProbes::new(probing),
            restarts: RestartBackoff::default(),
            pulls: images::PullBackoff::default(),
            waiting: BTreeMap::new(),
            termination_messages: HashMap::new(),
            failed: None,
            resize_pending: None,
            resize_error: None,
            hooks: hooks::Hooks::default(),
            inherited: None,
            ended: HashMap::new(),
            began: Instant::now(),
            started_at: SystemTime::now(),
            volumes_checked: None,
            retry: Backoff::new(RETRY_MIN, RETRY_MAX),
        }
    }

    /// Whether the pod has ended for good (and not just the agent).
    async fn run(mut self) -> bool {
        let finished = self.run_syncing().await;
        if !finished {
            return false;
        }
        self.run_terminating().await
    }

    /// Syncs until the pod must stop; `false` when the agent stops first.
    async fn run_syncing(&mut self) -> bool {
        loop {
            self.take_desired();
            if self.gone
                || self.failed.is_some()
                || self.pod.is_deleting()
                || self.pod.is_phase_final()
            {
                return true;
            }
            self.allocate();
            let resync = self.ctx.config.sync_interval;
            let span = span!("syncPod", pod = %self.pod.reference(), uid = %self.uid);
            let pause = match self.sync().instrument(span).await {
                Progress::Finished => return true,
                Progress::Settled(pause) => {
                    self.retry.reset();
                    let deferred = self
                        .resize_pending
                        .as_ref()
                        .is_some_and(|why| why.reason == allocation::DEFERRED);
                    pause
                        .unwrap_or(resync)
                        .min(if deferred { resize::ROOM_PAUSE } else { resync })
                }
                Progress::Failed => self.retry.pause(),
            };
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                // The sender is dropped only after this task has ended, or with the sync loop.
                changed = self.desired.changed() => if changed.is_err() { return false },
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn take_desired(&mut self) {
        let now = self.desired.borrow_and_update().clone();
        (self.pod, self.gone, self.told) = (
            now.pod,
            self.gone || now.gone,
            self.told || now.source == Source::Api,
        );
        self.failed = self.failed.take().or(now.rejected).or(now.evicted);
    }
}
