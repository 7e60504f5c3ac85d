//! When a key is parked, and that it does not stay so.

use std::convert::Infallible;

use coracle_telemetry::metrics::MetricsRegistry;
use k8s_openapi::{
    api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::{Client, api::ObjectMeta, client::Body};
use serde_json::{Value, json};

use super::*;
use crate::{cache::Writer, informer::Selection, reflector::Event};

/// Writes, and a cache that shows what a test tells it.
struct Lab {
    writes: OwnWrites<ConfigMap>,
    writer: Writer<ConfigMap>,
    queue: Arc<WorkQueue<Key>>,
    key: Key,
}

impl Lab {
    /// Where the server has `listed`.
    fn new(listed: &[Value]) -> Self {
        let metadata = json!({"resourceVersion": "1000"});
        let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": listed})
        .to_string();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            assert!(
                request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("metadata.namespace%3Dns"))
            );
            let response = http::Response::new(Body::from(list.clone().into_bytes()));
            async move { Ok::<_, Infallible>(response) }
        });
        let api = Api::all(Client::new(service, "default"));
        let queue = Arc::new(WorkQueue::named(&MetricsRegistry::default(), "test"));
        let mut informer = Informer::new(api, Selection::all(), |_| {});
        let writes = OwnWrites::new(&mut informer, Arc::clone(&queue));
        Self {
            writes,
            writer: Writer::new(),
            queue,
            key: Key::new("ns", "owner"),
        }
    }

    fn show(&mut self, event: Event<ConfigMap>) {
        self.writer.apply(&self.writes.cache, event, |_| {});
        self.writes.wake();
    }

    async fn settled(&self) -> bool {
        self.writes.settled(&self.key).await.unwrap()
    }

    async fn write(&self, answer: kube::Result<ConfigMap>) {
        let _ = self.writes.write(&self.key, async { answer }).await;
    }

    async fn delete(&self, object: &ConfigMap, answer: kube::Result<()>) {
        let _ = self
            .writes
            .delete(&self.key, object, async { answer })
            .await;
    }

    fn is_queued(&self) -> bool {
        let next = futures::FutureExt::now_or_never(self.queue.next()).flatten();
        next.inspect(|key| self.queue.done(key)).is_some()
    }
}

fn object(name: &str, revision: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("ns".to_owned()),
            uid: Some(format!("uid of {name}")),
            resource_version: Some(revision.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn going(name: &str, revision: u64) -> ConfigMap {
    let mut object = object(name, revision);
    object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object
}

fn refusal(code: u16) -> kube::Error {
    let mut status = kube::core::Status::failure("no", "Test");
    status.code = code;
    kube::Error::Api(Box::new(status))
}

fn metadata(name: &str, revision: u64) -> Value {
    let metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid of {name}"),
        "resourceVersion": revision.to_string()});
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

#[tokio::test]
async fn a_key_waits_until_its_newest_write_shows() {
    let mut lab = Lab::new(&[]);
    assert!(lab.settled().await, "nothing was written");
    lab.write(Ok(object("a", 7))).await;
    lab.write(Ok(object("b", 5))).await;
    assert!(!lab.settled().await);
    lab.show(Event::Apply(object("b", 5)));
    assert!(!lab.is_queued() && !lab.settled().await);
    lab.show(Event::Apply(object("a", 7)));
    assert!(lab.is_queued(), "it had waited");
    assert!(lab.settled().await);
    // Shown before the answer was there.
    lab.write(Ok(object("a", 7))).await;
    assert!(lab.settled().await);
}

#[tokio::test]
async fn what_was_written_and_never_shows_is_passed_by_a_list() {
    let mut lab = Lab::new(&[]);
    lab.write(Ok(object("a", 7))).await;
    assert!(!lab.settled().await);
    // It was deleted while the watch was broken.
    for event in [Event::Init, Event::InitDone, Event::Progress(9)] {
        lab.show(event);
    }
    assert!(lab.is_queued() && lab.settled().await);
}

#[tokio::test]
async fn a_deletion_shows_as_a_going_object_or_as_none() {
    for (answer, shown) in [
        (Ok(()), Event::Apply(going("a", 6))),
        (Ok(()), Event::Delete(object("a", 6))),
        (Err(refusal(404)), Event::Delete(object("a", 6))),
        (
            Err(refusal(409)),
            Event::Apply(ConfigMap {
                metadata: ObjectMeta {
                    uid: None,
                    ..object("a", 6).metadata
                },
                ..ConfigMap::default()
            }),
        ),
    ] {
        let mut lab = Lab::new(&[]);
        lab.show(Event::Apply(object("a", 3)));
        lab.delete(&object("a", 3), answer).await;
        assert!(!lab.settled().await, "{shown:?}");
        lab.show(Event::Apply(object("another", 5)));
        assert!(!lab.is_queued(), "{shown:?}");
        let text = format!("{shown:?}");
        lab.show(shown);
        assert!(lab.is_queued() && lab.settled().await, "{text}");
    }
}

#[tokio::test]
async fn a_refusal_is_waited_for_by_nobody() {
    let lab = Lab::new(&[]);
    lab.write(Err(refusal(403))).await;
    lab.delete(&object("a", 3), Err(refusal(429))).await;
    assert!(lab.settled().await);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_waited_out_by_the_newest_of_a_list() {
    let mut lab = Lab::new(&[metadata("a", 8), metadata("b", 4)]);
    lab.write(Err(refusal(504))).await;
    assert!(!lab.settled().await, "it was carried out");
    lab.show(Event::Apply(object("a", 8)));
    assert!(lab.is_queued() && lab.settled().await);
    // There is nothing newer: it was not carried out.
    lab.write(Err(refusal(504))).await;
    assert!(lab.settled().await);
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_lost() {
    let mut lab = Lab::new(&[metadata("stays", 3)]);
    lab.show(Event::Apply(object("stays", 3)));
    lab.show(Event::Apply(object("gone", 4)));
    for name in ["stays", "gone"] {
        let never = std::future::pending::<kube::Result<()>>();
        let object = object(name, 3);
        let call = lab.writes.delete(&lab.key, &object, never);
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(1), call)
                .await
                .is_err()
        );
    }
    assert!(!lab.settled().await, "one of them is gone");
    lab.show(Event::Delete(object("gone", 5)));
    assert!(lab.is_queued() && lab.settled().await);
}
