//! Records Events about objects: queued, aggregated, and never in the way of a reconcile.
//!
//! Repeated events become one object with a growing `count`; many alike with different messages are combined; one
//! object cannot flood the store. What does not fit the queue is dropped and counted. Only this task writes Events.
//!
//! Source: `k8s.io/client-go/tools/record/events_cache.go` at v1.37.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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
use tracing::{debug, warn};

/// Events waiting to be written: a burst of 50 pods makes about 200.
const QUEUE_LENGTH: usize = 1024;
/// Remembered events, for counting repetitions.
const REMEMBERED: usize = 1024;
/// Different messages about one thing within [`SIMILAR_WINDOW`] before they are combined.
const SIMILAR_LIMIT: usize = 10;
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// Tokens a source may spend on one object, and how long one takes to come back.
const SPAM_BURST: f64 = 25.0;
const SPAM_REFILL: Duration = Duration::from_secs(300);
/// How long one write may take.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);

/// Whether an event tells of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EventType {
    Normal,
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
struct Note {
    component: &'static str,
    about: ObjectReference,
    kind: EventType,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// Accepts events; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct EventRecorder {
    notes: mpsc::Sender<Note>,
    dropped: Arc<AtomicU64>,
}

/// Writes what [`EventRecorder`]s accept.
pub(crate) struct EventWriter {
    client: Client,
    notes: mpsc::Receiver<Note>,
    correlator: Correlator,
}

/// A recorder and the writer behind it.
pub(crate) fn channel(client: Client) -> (EventRecorder, EventWriter) {
    let (sender, notes) = mpsc::channel(QUEUE_LENGTH);
    let recorder = EventRecorder { notes: sender, dropped: Arc::default() };
    (recorder, EventWriter { client, notes, correlator: Correlator::default() })
}

impl EventRecorder {
    /// Queues an event about `object`. Never blocks.
    pub(crate) fn record<K: Resource<DynamicType = ()>>(
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
    pub(crate) fn record_about(
        &self,
        component: &'static str,
        about: ObjectReference,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        let note = Note { component, about, kind, reason, message, at: Timestamp::now() };
        if self.notes.try_send(note).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                warn!(dropped, "events are dropped, their queue is full");
            }
        }
    }
}

/// A reference to `object` as Events carry it.
pub(crate) fn reference_to<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
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
    /// Writes events until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let note = tokio::select! {
                () = shutdown.cancelled() => return,
                note = self.notes.recv() => note,
            };
            let Some(note) = note else { return };
            let Some(write) = self.correlator.correlate(note, Instant::now()) else { continue };
            match tokio::time::timeout(WRITE_DEADLINE, self.write(&write)).await {
                Ok(Ok(())) => {}
                // No retry: the next repetition writes the right count. A namespace that goes away is no news.
                Ok(Err(error)) => {
                    debug!(error = &error as &dyn std::error::Error, "event not written");
                    self.correlator.forget(&write.identity);
                }
                Err(_elapsed) => warn!("writing an event took too long"),
            }
        }
    }

    async fn write(&self, write: &Write) -> kube::Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &write.namespace);
        if write.count > 1 {
            let patch =
                json!({"count": write.count, "lastTimestamp": Time(write.note.at), "message": write.note.message});
            match api.patch(&write.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        api.create(&PostParams::default(), &write.event()).await.map(drop)
    }
}

/// What makes two events the same.
type Identity = (&'static str, EventType, &'static str, ObjectKey, String);
/// What makes two events similar: all but the message.
type Similarity = (&'static str, EventType, &'static str, ObjectKey);
/// Kind, namespace, name and uid of the object.
type ObjectKey = (Option<String>, Option<String>, Option<String>, Option<String>);

/// An event to be created (`count == 1`) or updated.
#[derive(Debug)]
struct Write {
    identity: Identity,
    namespace: String,
    name: String,
    first: Timestamp,
    count: i32,
    note: Note,
}

impl Write {
    fn event(&self) -> Event {
        let note = &self.note;
        Event {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: note.about.clone(),
            reason: Some(note.reason.into()),
            message: Some(note.message.clone()),
            source: Some(EventSource { component: Some(note.component.into()), host: None }),
            reporting_component: Some(note.component.into()),
            reporting_instance: Some(String::new()),
            first_timestamp: Some(Time(self.first)),
            last_timestamp: Some(Time(note.at)),
            count: Some(self.count),
            type_: Some(note.kind.as_str().into()),
            ..Event::default()
        }
    }
}

struct Seen {
    name: String,
    first: Timestamp,
    count: i32,
    used: Instant,
}

struct Similar {
    messages: Vec<String>,
    since: Instant,
}

struct Budget {
    tokens: f64,
    at: Instant,
}

/// Decides whether an event is written, and as what. Pure apart from its memory.
#[derive(Default)]
struct Correlator {
    seen: HashMap<Identity, Seen>,
    similar: HashMap<Similarity, Similar>,
    budgets: HashMap<(&'static str, ObjectKey), Budget>,
}

impl Correlator {
    fn correlate(&mut self, mut note: Note, now: Instant) -> Option<Write> {
        self.make_room(now);
        let about = &note.about;
        let object = (about.kind.clone(), about.namespace.clone(), about.name.clone(), about.uid.clone());
        let mut key_message = note.message.clone();
        if self.too_many_alike((note.component, note.kind, note.reason, object.clone()), &note.message, now) {
            note.message = format!("(combined from similar events): {}", note.message);
            // All combined events are one, whatever their text.
            key_message = String::new();
        }
        if !self.within_budget((note.component, object.clone()), now) {
            return None;
        }
        let identity = (note.component, note.kind, note.reason, object, key_message);
        let name = || format!("{}.{:x}", about_name(&note.about), note.at.as_nanosecond());
        let seen = self.seen.entry(identity.clone()).or_insert_with(|| Seen {
            name: name(),
            first: note.at,
            count: 0,
            used: now,
        });
        seen.count += 1;
        seen.used = now;
        let namespace = note.about.namespace.clone().filter(|ns| !ns.is_empty()).unwrap_or_else(|| "default".into());
        Some(Write { identity, namespace, name: seen.name.clone(), first: seen.first, count: seen.count, note })
    }

    fn forget(&mut self, identity: &Identity) {
        self.seen.remove(identity);
    }

    fn too_many_alike(&mut self, key: Similarity, message: &str, now: Instant) -> bool {
        let similar = self.similar.entry(key).or_insert_with(|| Similar { messages: Vec::new(), since: now });
        if now.duration_since(similar.since) > SIMILAR_WINDOW {
            *similar = Similar { messages: Vec::new(), since: now };
        }
        if similar.messages.iter().any(|known| known == message) {
            return false;
        }
        if similar.messages.len() >= SIMILAR_LIMIT {
            return true;
        }
        similar.messages.push(message.to_owned());
        false
    }

    fn within_budget(&mut self, key: (&'static str, ObjectKey), now: Instant) -> bool {
        let budget = self.budgets.entry(key).or_insert(Budget { tokens: SPAM_BURST, at: now });
        let refill = now.duration_since(budget.at).as_secs_f64() / SPAM_REFILL.as_secs_f64();
        budget.tokens = (budget.tokens + refill).min(SPAM_BURST);
        budget.at = now;
        if budget.tokens < 1.0 {
            return false;
        }
        budget.tokens -= 1.0;
        true
    }

    /// Keeps the memory bounded: the half longest unused goes.
    fn make_room(&mut self, now: Instant) {
        if self.seen.len() >= REMEMBERED {
            let mut ages: Vec<Instant> = self.seen.values().map(|seen| seen.used).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            self.seen.retain(|_, seen| seen.used > middle);
        }
        if self.similar.len() >= REMEMBERED {
            self.similar.retain(|_, similar| now.duration_since(similar.since) <= SIMILAR_WINDOW);
            if self.similar.len() >= REMEMBERED {
                self.similar.clear();
            }
        }
        if self.budgets.len() >= REMEMBERED {
            self.budgets.retain(|_, budget| budget.tokens < SPAM_BURST - 2.0);
            if self.budgets.len() >= REMEMBERED {
                self.budgets.clear();
            }
        }
    }
}

/// The object's name, cut so that the event's name stays within 253 bytes.
fn about_name(about: &ObjectReference) -> &str {
    let name = about.name.as_deref().unwrap_or("unknown");
    name.get(..name.len().min(220)).unwrap_or(name)
}

#[cfg(test)]
mod tests;
