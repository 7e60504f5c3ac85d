//! The heart of the agent: one closed set of events, one `select!`.
//!
//! ```text
//! API server --watch--> Feed ---------+
//! runtime --broadcast-> RuntimeEvent -+--> sync loop --Desired/wake--> pod workers
//! workers --mpsc------> done ---------+
//! eviction --mpsc-----> Eviction -----+
//! ```
//! Owns the desired pods and the workers. Waits for nothing but events, with two exceptions: where
//! a pod seems to belong elsewhere, two seconds for the newest Node; as it looks for what nobody
//! wants, for the names in its own directories. On start it runs the pods it has copies of; what
//! the runtime has beyond the desired pods is removed once the API server has told them all, logs
//! of nobody's in a task beside.

mod admit;

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use coracle_client::{
    cache::{Cache, Key},
    feed::Feed,
    informer::Informer,
};
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff, spawn_in};
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{broadcast, mpsc},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    blocking::blocking,
    context::NodeContext,
    events::EventType,
    eviction::manager::Eviction,
    pod::PodExt,
    pod_manager::{
        PodManager,
        checkpoint::{self, Checkpoints},
    },
    pod_workers::{Desired, PodWorkers, Source},
    runtime::{RuntimeEvent, types::PodUid},
};

/// After the runtime could not say what it has.
const ORPHANS_RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// Workers that end at once: a namespace full of pods.
const DONE_QUEUE: usize = 128;

/// Everything that the loop reacts to.
enum SyncEvent {
    /// The API server has told of pods.
    Told,
    Runtime(RuntimeEvent),
    /// Runtime events were lost: look at everything.
    Lagged,
    Done(PodUid),
    /// The node is short of something.
    Evict(Eviction),
    /// Look for what nobody wants, again.
    Orphans,
    /// The agent stops.
    Stop,
}

/// The loop and what it owns.
pub(crate) struct SyncLoop {
    ctx: Arc<NodeContext>,
    manager: PodManager,
    workers: PodWorkers,
    checkpoints: Checkpoints,
    /// What the API server has told of pods and is not taken in yet.
    feed: Feed,
    bound: Arc<Cache<Pod>>,
    runtime: broadcast::Receiver<RuntimeEvent>,
    evictions: mpsc::Receiver<Eviction>,
    done: mpsc::Receiver<PodUid>,
    shutdown: CancellationToken,
    listed: bool,
    /// When what nobody wants is looked for.
    orphans_due: Option<Instant>,
    orphans_retry: Backoff,
    /// Removes the logs of pods that nobody knows: one task at a time.
    removals: JoinSet<()>,
    /// Admits pods.
    admission: admit::Admission,
    /// Pods that have ended but whose deletion the watch has not told yet: what it still tells of
    /// them is old.
    finished: HashMap<PodUid, Key>,
}

impl SyncLoop {
    pub(crate) fn new(
        ctx: Arc<NodeContext>,
        client: kube::Client,
        checkpoints: Checkpoints,
        (informer, evictions): (&mut Informer<Pod>, mpsc::Receiver<Eviction>),
        shutdown: CancellationToken,
    ) -> Self {
        let mut feed = Feed::default();
        feed.follow(informer, |change| [Key::of(change.latest().as_ref())]);
        let (sender, done) = mpsc::channel(DONE_QUEUE);
        // From now on: what changes while the checkpoints are read is not missed.
        let runtime = ctx.runtime.subscribe();
        let workers = PodWorkers::new(Arc::clone(&ctx), shutdown.clone(), sender);
        Self {
            ctx,
            manager: PodManager::default(),
            workers,
            checkpoints,
            feed,
            bound: informer.cache(),
            runtime,
            evictions,
            done,
            shutdown,
            listed: false,
            orphans_due: None,
            orphans_retry: Backoff::of(ORPHANS_RETRY),
            removals: JoinSet::new(),
            admission: admit::Admission::new(client),
            finished: HashMap::new(),
        }
    }

    /// Runs until shutdown; returns when all workers have come to rest.
    pub(crate) async fn run(mut self) {
        self.remember_what_ran().await;
        let config = &self.ctx.config;
        let (dir, pods_dir) = (config.checkpoints_dir(), config.pods_dir());
        let copies = blocking(move || checkpoint::load(&dir, &pods_dir)).await;
        for pod in admit::in_order(copies) {
            self.apply(pod, Source::Copy).await;
        }
        self.show();
        loop {
            let event = self.next().await;
            match event {
                SyncEvent::Told => self.told().await,
                SyncEvent::Runtime(event) => self.workers.wake(&event.pod_uid),
                SyncEvent::Lagged => self.workers.wake_all(),
                SyncEvent::Done(uid) => self.worker_done(&uid),
                SyncEvent::Evict(eviction) => self.workers.evict(eviction),
                SyncEvent::Orphans => self.adopt_orphans().await,
                SyncEvent::Stop => break,
            }
        }
        self.workers.stopped().await;
    }

    async fn next(&mut self) -> SyncEvent {
        tokio::select! {
            () = self.shutdown.cancelled() => SyncEvent::Stop,
            event = self.runtime.recv() => match event {
                Ok(event) => SyncEvent::Runtime(event),
                Err(broadcast::error::RecvError::Lagged(_)) => SyncEvent::Lagged,
                Err(broadcast::error::RecvError::Closed) => SyncEvent::Stop,
            },
            // Half of the first list must not pass for all pods.
            () = self.feed.listed(), if !self.listed => SyncEvent::Told,
            () = self.feed.changed(), if self.listed => SyncEvent::Told,
            Some(uid) = self.done.recv() => SyncEvent::Done(uid),
            Some(eviction) = self.evictions.recv() => SyncEvent::Evict(eviction),
            () = sleep_until(self.orphans_due.unwrap_or_else(Instant::now)), if self.orphans_due.is_some() => {
                SyncEvent::Orphans
            }
        }
    }

    /// Takes in what the API server tells; a pod counts once however often it has changed
    /// meanwhile.
    async fn told(&mut self) {
        let changed = self.feed.take();
        let has = |bound: &Cache<Pod>, key: &Key, uid: &PodUid| {
            bound.get(key).is_some_and(|pod| pod.uid() == *uid)
        };
        // A namesake is another pod.
        let gone = self
            .manager
            .pods()
            .filter(|pod| !has(&self.bound, &Key::of(pod.as_ref()), &pod.uid()));
        for uid in gone.map(|pod| pod.uid()).collect::<Vec<_>>() {
            self.admission.forget(&uid);
            // Before it has ended: what still runs of it then, the next agent finds by itself.
            self.checkpoints.forget(&uid);
            if let Some(pod) = self.manager.remove(&uid) {
                self.stop_gone(pod);
            }
        }
        self.finished.retain(|uid, key| has(&self.bound, key, uid));
        let present = changed.iter().filter_map(|key| self.bound.get(key));
        for pod in admit::in_order(present.collect()) {
            self.apply(pod, Source::Api).await;
        }
        if !std::mem::replace(&mut self.listed, true) {
            self.adopt_orphans().await;
        }
        self.show();
    }

    async fn apply(&mut self, pod: Arc<Pod>, source: Source) {
        if pod.spec.is_none() || self.finished.contains_key(&pod.uid()) {
            return;
        }
        if source == Source::Api {
            self.checkpoints.save(&pod);
        }
        self.manager.apply(Arc::clone(&pod));
        match self.admit(&pod).await {
            Ok(()) => self.workers.update(Desired::wanted(pod, source)),
            // By a copy alone nobody is turned away: the others on this node may be gone by now.
            Err(_) if source == Source::Copy => {}
            Err(why) => {
                tracing::info!(pod = %pod.display(), reason = why.reason, message = why.message, "refuse a pod");
                self.ctx.events.pod(
                    &pod,
                    None,
                    EventType::Warning,
                    why.reason.clone(),
                    why.message.clone(),
                );
                self.admission.refused(pod.uid());
                self.workers.update(Desired::rejected(pod, source, why));
            }
        }
    }

    fn stop_gone(&mut self, pod: Arc<Pod>) {
        if self.workers.has(&pod.uid()) {
            self.workers.update(Desired::gone(pod));
        }
    }

    /// The pod is gone here and in the API.
    fn worker_done(&mut self, uid: &PodUid) {
        self.workers.remove(uid);
        self.checkpoints.forget(uid);
        self.admission.forget(uid);
        if let Some(pod) = self.manager.remove(uid) {
            self.finished.insert(uid.clone(), Key::of(pod.as_ref()));
        }
        self.show();
    }

    /// What runs here, or left files here, without being wanted by anybody.
    async fn adopt_orphans(&mut self) {
        self.orphans_due = None;
        let mut orphans: Vec<Arc<Pod>> = Vec::new();
        match tokio::join!(
            self.ctx.runtime.list_pod_sandboxes(),
            self.ctx.runtime.list_containers()
        ) {
            (Ok(sandboxes), Ok(containers)) => {
                self.orphans_retry.reset();
                let pods = sandboxes
                    .into_iter()
                    .map(|s| s.pod)
                    .chain(containers.into_iter().map(|c| c.pod));
                for pod in
                    pods.filter(|pod| !self.manager.has(&pod.uid) && !self.workers.has(&pod.uid))
                {
                    if !orphans.iter().any(|known| known.uid() == pod.uid) {
                        orphans.push(Arc::new(bare_pod(pod.namespace, pod.name, pod.uid)));
                    }
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot look for pods that nobody wants; trying again");
                self.orphans_due = Some(Instant::now() + self.orphans_retry.pause());
            }
        }
        // An agent that was killed while it made a pod or tidied up may have left files alone.
        let config = &self.ctx.config;
        let (pods_dir, logs_dir) = (config.pods_dir(), config.logs_dir());
        let (directories, logs) = blocking(move || {
            (
                checkpoint::directories(&pods_dir),
                checkpoint::log_directories(&logs_dir),
            )
        })
        .await;
        for uid in directories {
            if !self.is_known(&uid, &orphans) {
                orphans.push(Arc::new(pod_of_files(uid, &logs)));
            }
        }
        let stale = logs
            .into_iter()
            .filter(|logs| !self.is_known(&logs.uid, &orphans))
            .map(|logs| logs.dir)
            .collect();
        self.remove_logs(stale);
        for pod in orphans {
            tracing::info!(pod = %pod.display(), "remove a pod that is no longer wanted");
            self.workers.update(Desired::gone(pod));
        }
    }

    fn is_known(&self, uid: &PodUid, orphans: &[Arc<Pod>]) -> bool {
        self.manager.has(uid)
            || self.workers.has(uid)
            || orphans.iter().any(|pod| pod.uid() == *uid)
    }

    /// Whole trees, and nobody waits for their end. What is left when the agent stops, the next one
    /// finds.
    fn remove_logs(&mut self, dirs: Vec<PathBuf>) {
        while self.removals.try_join_next().is_some() {}
        if !dirs.is_empty() && self.removals.is_empty() {
            let remove = crate::gc::remove_dirs(dirs);
            spawn_in(&mut self.removals, "remove logs of nobody's", remove);
        }
    }

    fn show(&self) {
        *self.ctx.pods.write() = self.manager.pods().cloned().collect();
        self.ctx.pods_changed.notify_one();
    }
}

/// As much of a pod as its files tell: the UID, and its names if it has logs.
fn pod_of_files(uid: PodUid, logs: &[checkpoint::LogDirectory]) -> Pod {
    let names = logs.iter().find(|logs| logs.uid == uid);
    let names = names.map(|logs| (logs.namespace.clone(), logs.name.clone()));
    let (namespace, name) = names.unwrap_or_default();
    bare_pod(namespace, name, uid)
}

/// As much of a pod as the runtime remembers.
fn bare_pod(namespace: String, name: String, uid: PodUid) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(namespace);
    pod.metadata.name = Some(name);
    pod.metadata.uid = Some(uid.0);
    pod.spec = Some(k8s_openapi::api::core::v1::PodSpec::default());
    pod
}
