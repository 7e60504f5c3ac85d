//! Records Events about objects: queued, aggregated, and never in the way of who tells them.
//!
//! Repeated events become one object with a growing `count`; many alike with different messages are
//! combined; one object cannot flood the store (`correlator`). What does not fit the queue is
//! dropped and counted; nothing depends on it. What waits is written together: a repetition within
//! one round costs no write of its own.
//!
//! Source: `k8s.io/client-go/tools/record/event.go` at v1.37.

pub mod component;
mod correlator;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use coracle_telemetry::{ErrorChain, ExponentialBackoff};
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use self::correlator::{Correlator, Identity, cut};
use crate::errors::{is_already_exists, is_unreachable};

/// Events waiting to be written: a burst of 50 pods makes about 200, every pod of a full node may
/// tell eight at once.
const QUEUE_LENGTH: usize = 1024;
/// Written in one round, and of these at once.
const ROUND: usize = 64;
const IN_FLIGHT: usize = 16;
/// How long one write may take.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// How often an event is tried while the server cannot be reached, and the pauses between.
const TRIES: u32 = 12;
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// Longest message, in bytes.
///
/// Source: `NoteLengthLimit` in `pkg/apis/core/validation/events.go` at v1.37.
const MAX_MESSAGE: usize = 1024;

/// Whether an event tells of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// No trouble.
    Normal,
    /// Something does not go as it should.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub struct Note {
    /// Who says so, such as `replicaset-controller` or `kubelet`.
    pub component: Cow<'static, str>,
    /// About what.
    pub about: ObjectReference,
    /// Whether it is trouble.
    pub kind: EventType,
    /// For programs: one word in CamelCase.
    pub reason: Cow<'static, str>,
    /// For people. What is longer than 1,024 bytes is cut.
    pub message: String,
    /// How often it happened since it was told last; 1 in most cases.
    pub times: i32,
}

/// A note that waits.
#[derive(Debug)]
struct Queued {
    note: Note,
    at: Timestamp,
    due: Instant,
}

/// Accepts events; cheap to clone.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    notes: mpsc::Sender<Queued>,
    dropped: Arc<AtomicU64>,
    delay: Duration,
}

/// Writes what [`EventRecorder`]s accept.
pub struct EventWriter {
    client: Client,
    host: Option<String>,
    notes: mpsc::Receiver<Queued>,
    correlator: Correlator,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// A recorder and the writer behind it. `host` is the machine that the events come from, if that
/// matters; they wait for `delay`, where something else is more urgent.
#[must_use]
pub fn channel(
    client: Client,
    host: Option<String>,
    delay: Duration,
) -> (EventRecorder, EventWriter) {
    let (sender, notes) = mpsc::channel(QUEUE_LENGTH);
    let recorder = EventRecorder {
        notes: sender,
        dropped: Arc::default(),
        delay,
    };
    (
        recorder,
        EventWriter {
            client,
            host,
            notes,
            correlator: Correlator::default(),
        },
    )
}

impl EventRecorder {
    /// Queues an event about `object`. Never blocks.
    pub fn record<K: Resource<DynamicType = ()>>(
        &self,
        component: &'static str,
        object: &K,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.record_about(component, reference_to(object), kind, reason, message);
    }

    /// As [`EventRecorder::record`], about an object known only by reference.
    pub fn record_about(
        &self,
        component: &'static str,
        about: ObjectReference,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: String,
    ) {
        self.note(Note {
            component: component.into(),
            about,
            kind,
            reason: reason.into(),
            message,
            times: 1,
        });
    }

    /// As [`EventRecorder::record`], with everything said.
    pub fn note(&self, mut note: Note) {
        cut(&mut note.message, MAX_MESSAGE);
        let queued = Queued {
            note,
            at: Timestamp::now(),
            due: Instant::now() + self.delay,
        };
        if let Err(mpsc::error::TrySendError::Full(lost)) = self.notes.try_send(queued) {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                let note = &lost.note;
                tracing::warn!(
                    dropped,
                    reason = &*note.reason,
                    note.message,
                    "events are dropped, their queue is full"
                );
            }
        }
    }
}

/// A reference to `object` as Events carry it.
#[must_use]
pub fn reference_to<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

impl EventWriter {
    /// Writes events until `shutdown`. What is not written by then is lost, as events may be:
    /// nobody waits for a server that does not answer.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let _ = shutdown.run_until_cancelled(self.write_all()).await;
    }

    /// Round by round, until all recorders are gone.
    async fn write_all(&mut self) {
        let mut waiting = Vec::with_capacity(ROUND);
        while self.notes.recv_many(&mut waiting, ROUND).await > 0 {
            if let Some(last) = waiting.last() {
                tokio::time::sleep_until(last.due).await;
            }
            let writes = self.correlator.round(waiting.drain(..), Instant::now());
            let this = &*self;
            // Events of one object in their order: who watches them sees what happened first.
            let sending = by_object(writes).into_iter().map(|writes| async move {
                let mut failed = Vec::new();
                for write in writes {
                    failed.extend(this.send(write).await);
                }
                failed
            });
            let failed: Vec<Vec<Identity>> = futures::stream::iter(sending)
                .buffer_unordered(IN_FLIGHT)
                .collect()
                .await;
            failed
                .iter()
                .flatten()
                .for_each(|identity| self.correlator.forget(identity));
        }
    }

    /// Returns what was not written. A server that cannot be reached is asked again, for what
    /// happens just then is what people look for; one that refuses an event is not.
    async fn send(&self, write: Write) -> Option<Identity> {
        for failures in 0..TRIES {
            match tokio::time::timeout(WRITE_DEADLINE, self.write(&write)).await {
                Ok(Ok(())) => return None,
                // A try whose answer was lost has written it.
                Ok(Err(error)) if failures > 0 && is_already_exists(&error) => return None,
                Ok(Err(error)) if !is_unreachable(&error) => {
                    // A namespace that goes away is no news.
                    tracing::debug!(error = %ErrorChain(&error), "event not written");
                    return Some(write.identity);
                }
                Ok(Err(error)) => {
                    tracing::debug!(error = %ErrorChain(&error), "event not written, trying again");
                }
                Err(_) => tracing::debug!("writing an event took too long, trying again"),
            }
            tokio::time::sleep(RETRY.jittered_after(failures)).await;
        }
        tracing::warn!(
            reason = &*write.note.reason,
            message = write.note.message,
            "cannot write an event: the server cannot be reached"
        );
        Some(write.identity)
    }

    async fn write(&self, write: &Write) -> kube::Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &write.namespace);
        if !write.is_new {
            let patch = json!({"count": write.count, "lastTimestamp": Time(write.at), "message": write.note.message});
            match api
                .patch(&write.name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                // It has expired.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        api.create(&PostParams::default(), &write.event(self.host.as_deref()))
            .await
            .map(drop)
    }
}

/// What is about the same object together, in order.
fn by_object(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut objects: Vec<Vec<Write>> = Vec::new();
    for write in writes {
        let is_about = |other: &Write| {
            other.note.about.uid == write.note.about.uid
                && other.note.about.name == write.note.about.name
        };
        match objects
            .iter_mut()
            .find(|writes| writes.first().is_some_and(is_about))
        {
            Some(writes) => writes.push(write),
            None => objects.push(vec![write]),
        }
    }
    objects
}

/// An event to be created or, if it is there already, updated.
#[derive(Debug)]
struct Write {
    identity: Identity,
    namespace: String,
    name: String,
    first: Timestamp,
    at: Timestamp,
    count: i32,
    is_new: bool,
    note: Note,
}

impl Write {
    fn event(&self, host: Option<&str>) -> Event {
        let note = &self.note;
        Event {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: note.about.clone(),
            reason: Some(note.reason.clone().into_owned()),
            message: Some(note.message.clone()),
            source: Some(EventSource {
                component: Some(note.component.clone().into_owned()),
                host: host.map(str::to_owned),
            }),
            reporting_component: Some(note.component.clone().into_owned()),
            reporting_instance: Some(host.unwrap_or_default().to_owned()),
            first_timestamp: Some(Time(self.first)),
            last_timestamp: Some(Time(self.at)),
            count: Some(self.count),
            type_: Some(note.kind.as_str().into()),
            ..Event::default()
        }
    }
}
