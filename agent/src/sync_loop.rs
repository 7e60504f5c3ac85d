//! The heart of the agent: one closed set of events, one `select!`.
//!
//! ```text
//! API server --watch--> Feed ---------+
//! runtime --broadcast-> RuntimeEvent -+--> sync loop --Desired/wake--> pod workers
//! workers --mpsc------> done ---------+
//! eviction --mpsc-----> Eviction -----+
//! ```
//! Owns the desired pods and the workers. Waits for nothing but events (and, where a pod seems to
//! belong elsewhere, two seconds for the newest Node). On start it runs the pods it has copies of;
//! what the runtime has beyond the desired pods is removed once the API server has told them all.

mod admit;

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use coracle_client::{
    cache::{Cache, Key},
    feed::Feed,
    informer::Informer,
};
use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::Pod;
use tokio::{
    sync::{broadcast, mpsc},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::NodeContext,
    events::EventType,
    eviction::manager::Eviction,
    pod::PodExt,
    pod_manager::{
        PodManager,
        checkpoint::{self, Checkpoints},
    },
    pod_workers::{Desired, PodWorkers},
    runtime::{RuntimeEvent, types::PodUid},
};

/// After the runtime could not say what it has.
const ORPHANS_RETRY: Duration = Duration::from_secs(2);
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
    pods_dir: PathBuf,
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
        pods_dir: PathBuf,
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
            pods_dir,
            feed,
            bound: informer.cache(),
            runtime,
            evictions,
            done,
            shutdown,
            listed: false,
            orphans_due: None,
            admission: admit::Admission::new(client),
            finished: HashMap::new(),
        }
    }

    /// Runs until shutdown; returns when all workers have come to rest.
    pub(crate) async fn run(mut self) {
        self.remember_what_ran().await;
        for pod in admit::in_order(checkpoint::load(&self.pods_dir)) {
            self.apply(pod, false).await;
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
            if let Some(pod) = self.manager.remove(&uid) {
                self.stop_gone(pod);
            }
        }
        self.finished.retain(|uid, key| has(&self.bound, key, uid));
        let present = changed.iter().filter_map(|key| self.bound.get(key));
        for pod in admit::in_order(present.collect()) {
            self.apply(pod, true).await;
        }
        if !std::mem::replace(&mut self.listed, true) {
            self.adopt_orphans().await;
        }
        self.show();
    }

    /// `told`: by the API server, and not by a copy of what it told an earlier agent.
    async fn apply(&mut self, pod: Arc<Pod>, told: bool) {
        if pod.spec.is_none() || self.finished.contains_key(&pod.uid()) {
            return;
        }
        if told {
            self.checkpoints.save(&pod);
        }
        self.manager.apply(Arc::clone(&pod));
        match self.admit(&pod).await {
            Ok(()) => self.workers.update(Desired::new(pod, false, told)),
            // By a copy alone nobody is turned away: the others on this node may be gone by now.
            Err(_) if !told => {}
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
                self.workers.update(Desired::rejected(pod, told, why));
            }
        }
    }

    fn stop_gone(&mut self, pod: Arc<Pod>) {
        if self.workers.has(&pod.uid()) {
            self.workers.update(Desired::new(pod, true, true));
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
                tracing::warn!(error = %ErrorChain(&error), "look for pods that nobody wants; trying again");
                self.orphans_due = Some(Instant::now() + ORPHANS_RETRY);
            }
        }
        // An agent that was killed while it tidied up may have left files alone. Their names tell
        // no more than the UID.
        for uid in checkpoint::directories(&self.pods_dir) {
            let known = self.manager.has(&uid)
                || self.workers.has(&uid)
                || orphans.iter().any(|pod| pod.uid() == uid);
            if !known {
                orphans.push(Arc::new(bare_pod(String::new(), String::new(), uid)));
            }
        }
        let logs = self.ctx.config.agent_dir().join("logs");
        for (dir, uid) in checkpoint::log_directories(&logs) {
            let known = self.manager.has(&uid)
                || self.workers.has(&uid)
                || orphans.iter().any(|pod| pod.uid() == uid);
            if !known {
                crate::gc::remove_dirs([dir]).await;
            }
        }
        for pod in orphans {
            tracing::info!(pod = %pod.display(), "remove a pod that is no longer wanted");
            self.workers.update(Desired::new(pod, true, true));
        }
    }

    fn show(&self) {
        *self.ctx.pods.write() = self.manager.pods().cloned().collect();
        self.ctx.pods_changed.notify_one();
    }
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
