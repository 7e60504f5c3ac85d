//! Events: what people see in `kubectl describe`.
//!
//! [`EventRecorder::record`] never waits: events pass through a bounded queue to one writer that counts repetitions up
//! instead of writing them anew, and limits each object's rate as client-go's correlator does (25 at once, then one in
//! five minutes). Events lost to a full queue are counted in the log; nothing depends on them.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_telemetry::Chain;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, Node, ObjectReference, Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::pod::{PodExt, api_time};

/// Every pod of a full node may tell eight things at once.
const QUEUE: usize = 1024;
/// Events wait for what is more urgent: a pod's status goes first.
const DELAY: Duration = Duration::from_millis(150);
const WRITE_LIMIT: Duration = Duration::from_secs(10);
const BURST: f64 = 25.0;
const REFILL_PER_SEC: f64 = 1.0 / 300.0;
/// Repetitions of an event are counted this long.
const REMEMBER: Duration = Duration::from_secs(600);
const MAX_REMEMBERED: usize = 4096;
const MAX_MESSAGE: usize = 1024;

/// `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

struct Record {
    object: ObjectReference,
    severity: Severity,
    reason: Cow<'static, str>,
    message: String,
    at: SystemTime,
    due: Instant,
}

/// Accepts events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    queue: mpsc::Sender<Record>,
}

impl EventRecorder {
    /// A recorder and the writer that must be run for it.
    pub(crate) fn new(client: kube::Client, node_name: &str) -> (Self, EventWriter) {
        let (queue, records) = mpsc::channel(QUEUE);
        (
            Self { queue },
            EventWriter { client, node_name: node_name.into(), records, seen: HashMap::new(), buckets: HashMap::new() },
        )
    }

    /// About a pod, or one of its containers.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        container: Option<&str>,
        severity: Severity,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let field_path = container.map(|name| {
            let spec = pod.spec_or_default();
            let list = if pod.init_containers().iter().any(|one| one.name == name) {
                "initContainers"
            } else if spec.ephemeral_containers.iter().flatten().any(|one| one.name == name) {
                "ephemeralContainers"
            } else {
                "containers"
            };
            format!("spec.{list}{{{name}}}")
        });
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace().to_owned()),
            name: Some(pod.name().to_owned()),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
            field_path,
        };
        self.record(object, severity, reason.into(), message.into());
    }

    /// About the node.
    pub(crate) fn node(&self, node: &Node, severity: Severity, reason: &'static str, message: impl Into<String>) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: node.metadata.name.clone(),
            // As upstream: events of nodes are found by the node's name.
            uid: node.metadata.name.clone(),
            ..ObjectReference::default()
        };
        self.record(object, severity, reason.into(), message.into());
    }

    /// About a Service.
    pub(crate) fn service(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<String>,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid,
            ..ObjectReference::default()
        };
        self.record(object, severity, reason.into(), message.into());
    }

    fn record(&self, object: ObjectReference, severity: Severity, reason: Cow<'static, str>, mut message: String) {
        if message.len() > MAX_MESSAGE {
            let end = (0..=MAX_MESSAGE).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
            message.truncate(end);
        }
        let record = Record { object, severity, reason, message, at: SystemTime::now(), due: Instant::now() + DELAY };
        if let Err(mpsc::error::TrySendError::Full(record)) = self.queue.try_send(record) {
            tracing::warn!(reason = &*record.reason, message = record.message, "too many events: dropped one");
        }
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    uid: Option<String>,
    field_path: Option<String>,
    severity: Severity,
    reason: Cow<'static, str>,
    message: String,
}

struct Seen {
    name: String,
    count: i32,
    at: Instant,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Writes what recorders accept, one after the other.
pub(crate) struct EventWriter {
    client: kube::Client,
    node_name: Arc<str>,
    records: mpsc::Receiver<Record>,
    seen: HashMap<Key, Seen>,
    buckets: HashMap<Option<String>, Bucket>,
}

impl EventWriter {
    /// Runs until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let record = tokio::select! {
                () = shutdown.cancelled() => return,
                record = self.records.recv() => record,
            };
            let Some(record) = record else { return };
            tokio::time::sleep_until(record.due).await;
            match tokio::time::timeout(WRITE_LIMIT, self.write(record)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(error = %Chain(&error), "write an event"),
                Err(_) => tracing::debug!("write an event: the API server does not answer"),
            }
        }
    }

    async fn write(&mut self, record: Record) -> Result<(), kube::Error> {
        if !self.admit(&record) {
            return Ok(());
        }
        let namespace = record.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = Key {
            uid: record.object.uid.clone(),
            field_path: record.object.field_path.clone(),
            severity: record.severity,
            reason: record.reason.clone(),
            message: record.message.clone(),
        };
        if let Some(seen) = self.seen.get_mut(&key).filter(|seen| seen.at.elapsed() < REMEMBER) {
            seen.count += 1;
            seen.at = Instant::now();
            let patch = serde_json::json!({"count": seen.count, "lastTimestamp": api_time(record.at), "message": record.message});
            match events.patch(&seen.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                // Events expire: what was counted up has gone, and another one begins.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        let event = self.event(&record, &namespace);
        let name = event.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &event).await?;
        if self.seen.len() >= MAX_REMEMBERED {
            self.seen.retain(|_, seen| seen.at.elapsed() < REMEMBER / 4);
        }
        self.seen.insert(key, Seen { name, count: 1, at: Instant::now() });
        Ok(())
    }

    fn admit(&mut self, record: &Record) -> bool {
        if self.buckets.len() >= MAX_REMEMBERED {
            self.buckets.retain(|_, bucket| bucket.at.elapsed() < REMEMBER);
        }
        let bucket =
            self.buckets.entry(record.object.uid.clone()).or_insert(Bucket { tokens: BURST, at: Instant::now() });
        bucket.tokens = (bucket.tokens + bucket.at.elapsed().as_secs_f64() * REFILL_PER_SEC).min(BURST);
        bucket.at = Instant::now();
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    fn event(&self, record: &Record, namespace: &str) -> Event {
        let stamp = Timestamp::now().as_nanosecond();
        let at = api_time(record.at);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{stamp:x}", record.object.name.as_deref().unwrap_or_default())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: record.object.clone(),
            reason: Some(record.reason.clone().into_owned()),
            message: Some(record.message.clone()),
            type_: Some(if record.severity == Severity::Normal { "Normal" } else { "Warning" }.to_owned()),
            count: Some(1),
            first_timestamp: Some(at.clone()),
            last_timestamp: Some(at),
            source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(self.node_name.to_string()) }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: Some(self.node_name.to_string()),
            ..Event::default()
        }
    }
}
