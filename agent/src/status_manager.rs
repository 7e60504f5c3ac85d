//! Writes pods' statuses to the API: the only writer of them on this node.
//!
//! Workers hand in the newest status of their pod ([`StatusManager::set`]); this task PATCHes what
//! differs from what the API is known to have, one request a pod at a time, several pods at once. A
//! change that somebody waits for (Ready, the phase, a failure) is written at once; anything else
//! waits [`LAZY`] for more, so that a pod that starts fast costs one write. When a worker is done
//! with a deleted pod ([`StatusManager::finish`]) the last status is written and the object removed
//! with grace period 0 and its UID as precondition.
//!
//! ```text
//! set/finish --mpsc--> pending[uid] --due--> PATCH in flight --ok--> written; --error--> due again after a back-off
//! ```

mod patch;
mod write;

use std::{collections::HashMap, sync::Arc, time::Duration};

use coracle_telemetry::Backoff;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    pod::PodExt,
    runtime::types::{PodRef, PodUid},
};
use write::{Outcome, Write};

/// How long an unimportant change waits for company.
const LAZY: Duration = Duration::from_millis(200);
/// Requests in flight at once.
const MAX_IN_FLIGHT: usize = 16;
const WRITE_LIMIT: Duration = Duration::from_secs(10);
const RETRY_MIN: Duration = Duration::from_millis(250);
/// Short: after a partition the control plane is to know soon what runs here.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// For what is pending at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Commands wait only while the task handles another one; two a pod suffice.
const QUEUE: usize = 256;

#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
enum Command {
    Set {
        pod: PodRef,
        known: Arc<Pod>,
        status: PodStatus,
    },
    Finish {
        pod: PodRef,
        done: oneshot::Sender<()>,
    },
    Forget(PodUid),
}

/// The workers' side. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StatusManager {
    commands: mpsc::Sender<Command>,
    /// The newest status of each pod, written or not.
    cache: Arc<Mutex<HashMap<PodUid, PodStatus>>>,
}

impl StatusManager {
    /// The handle and the task that must be run for it.
    pub(crate) fn new(client: kube::Client) -> (Self, StatusWriter) {
        let (commands, receiver) = mpsc::channel(QUEUE);
        let writer = StatusWriter {
            client,
            commands: receiver,
            pods: HashMap::new(),
            in_flight: FuturesUnordered::new(),
        };
        (
            Self {
                commands,
                cache: Arc::default(),
            },
            writer,
        )
    }

    /// The status last handed in.
    pub(crate) fn get(&self, uid: &PodUid) -> Option<PodStatus> {
        self.cache.lock().get(uid).cloned()
    }

    /// Hands in a status; `pod` is the object as last seen.
    pub(crate) async fn set(&self, pod: &Arc<Pod>, status: PodStatus) {
        let reference = pod.reference();
        {
            let mut cache = self.cache.lock();
            if cache.get(&reference.uid) == Some(&status)
                && !patch::was_changed_by_others(pod.status_or_default(), &status)
            {
                return;
            }
            cache.insert(reference.uid.clone(), status.clone());
        }
        // The receiver only goes away when the agent stops.
        let _ = self
            .commands
            .send(Command::Set {
                pod: reference,
                known: Arc::clone(pod),
                status,
            })
            .await;
    }

    /// Writes the last status and removes the object; returns once it is gone.
    pub(crate) async fn finish(&self, pod: &Pod) {
        let (done, finished) = oneshot::channel();
        if self
            .commands
            .send(Command::Finish {
                pod: pod.reference(),
                done,
            })
            .await
            .is_ok()
        {
            let _ = finished.await;
        }
    }

    /// The pod is gone from the API: nothing more to write.
    pub(crate) async fn forget(&self, uid: &PodUid) {
        self.cache.lock().remove(uid);
        let _ = self.commands.send(Command::Forget(uid.clone())).await;
    }
}

struct Entry {
    pod: PodRef,
    /// What the API is known to have...
    written: PodStatus,
    /// ...as of this resourceVersion.
    version: u64,
    wanted: PodStatus,
    due: Option<Instant>,
    in_flight: bool,
    retry: Backoff,
    finish: Vec<oneshot::Sender<()>>,
    finishing: bool,
}

impl Entry {
    /// Of a pod whose status in the API is known to be so.
    fn new(pod: PodRef, known: PodStatus, version: u64) -> Self {
        Self {
            pod,
            wanted: known.clone(),
            written: known,
            version,
            due: None,
            in_flight: false,
            retry: Backoff::new(RETRY_MIN, RETRY_MAX),
            finish: Vec::new(),
            finishing: false,
        }
    }

    /// After a write: what else has come meanwhile is due.
    fn go_on(&mut self) {
        self.retry.reset();
        if patch::diff(&self.pod, &self.written, &self.wanted).is_none() {
            self.due = self.finishing.then(Instant::now);
        } else if self.due.is_none() {
            self.due = Some(Instant::now());
        }
    }
}

/// The task.
pub(crate) struct StatusWriter {
    client: kube::Client,
    commands: mpsc::Receiver<Command>,
    pods: HashMap<PodUid, Entry>,
    in_flight: FuturesUnordered<BoxFuture<'static, (PodUid, Outcome)>>,
}

impl StatusWriter {
    /// Runs until `shutdown`, then writes what is still pending, if it goes fast.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            self.start_due();
            let next = self.next_due();
            tokio::select! {
                () = shutdown.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(command) => self.accept(command),
                    None => break,
                },
                Some((uid, outcome)) = self.in_flight.next(), if !self.in_flight.is_empty() => self.complete(&uid, outcome),
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
        let last = tokio::time::timeout(LAST_WRITES, self.write_last()).await;
        if last.is_err() {
            tracing::warn!("statuses of pods were not written before the end: it takes too long");
        }
    }

    /// Writes what is pending, each once: what fails now is for the next agent, which reads from
    /// the runtime how things are.
    async fn write_last(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.accept(command);
        }
        for entry in self.pods.values_mut().filter(|entry| entry.due.is_some()) {
            entry.due = Some(Instant::now());
        }
        loop {
            self.start_due();
            match self.in_flight.next().await {
                Some((uid, outcome)) => self.complete(&uid, outcome),
                None => return,
            }
        }
    }

    fn accept(&mut self, command: Command) {
        match command {
            Command::Set { pod, known, status } => {
                let entry = self.pods.entry(pod.uid.clone()).or_insert_with(|| {
                    Entry::new(pod, known.status_or_default().clone(), version(&known))
                });
                // An older copy would bring back what this task has overwritten.
                if version(&known) > entry.version {
                    entry.written.clone_from(known.status_or_default());
                    entry.version = version(&known);
                }
                let delay = if patch::is_urgent(&entry.written, &status) {
                    Duration::ZERO
                } else {
                    LAZY
                };
                entry.wanted = status;
                if patch::diff(&entry.pod, &entry.written, &entry.wanted).is_some() {
                    // One that can wait does not put off one that cannot.
                    let due = Instant::now() + delay;
                    entry.due = Some(entry.due.map_or(due, |earlier| earlier.min(due)));
                }
            }
            Command::Finish { pod, done } => {
                let entry = self
                    .pods
                    .entry(pod.uid.clone())
                    .or_insert_with(|| Entry::new(pod, PodStatus::default(), 0));
                entry.finish.push(done);
                entry.finishing = true;
                entry.due = Some(Instant::now());
            }
            Command::Forget(uid) => {
                self.pods.remove(&uid);
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        self.pods
            .values()
            .filter(|entry| !entry.in_flight)
            .filter_map(|entry| entry.due)
            .min()
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        for (uid, entry) in &mut self.pods {
            if self.in_flight.len() >= MAX_IN_FLIGHT {
                return;
            }
            if entry.in_flight || entry.due.is_none_or(|due| due > now) {
                continue;
            }
            entry.due = None;
            let body = patch::diff(&entry.pod, &entry.written, &entry.wanted);
            // What was wanted may have been undone meanwhile, but a pod that has ended is still to
            // be removed.
            if body.is_none() && !entry.finishing {
                continue;
            }
            entry.in_flight = true;
            let write = Write {
                api: Api::namespaced(self.client.clone(), &entry.pod.namespace),
                pod: entry.pod.clone(),
                body,
                status: entry.wanted.clone(),
                delete: entry.finishing,
            };
            let uid = uid.clone();
            self.in_flight.push(Box::pin(async move {
                let outcome = match tokio::time::timeout(WRITE_LIMIT, write.run()).await {
                    Ok(outcome) => outcome,
                    Err(_) => Outcome::Failed,
                };
                (uid, outcome)
            }));
        }
    }

    fn complete(&mut self, uid: &PodUid, outcome: Outcome) {
        let Some(entry) = self.pods.get_mut(uid) else {
            return;
        };
        entry.in_flight = false;
        match outcome {
            Outcome::Written(status, version) => {
                if version >= entry.version {
                    entry.written = *status;
                    entry.version = version;
                }
                entry.go_on();
            }
            // The version stays behind, so that what the watch tells of this write counts.
            Outcome::Mixed(status) => {
                entry.written = *status;
                entry.go_on();
            }
            Outcome::Deleted | Outcome::Gone => {
                // What is still due concerns an object that no longer exists.
                for done in entry.finish.drain(..) {
                    let _ = done.send(());
                }
                self.pods.remove(uid);
            }
            Outcome::Failed => {
                entry.due = Some(Instant::now() + entry.retry.pause());
            }
        }
    }
}

/// Versions of one server are numbers that grow; where they are not, the last write stands.
fn version(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
