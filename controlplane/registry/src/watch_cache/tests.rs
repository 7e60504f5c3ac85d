//! The cache against a real memory store: what readers and watchers are promised.

mod beginnings;
mod entries;
mod feeding;
mod forgotten;
mod indexes;
mod lists;
mod narrow;
mod registering;
mod rings;
mod shared;
mod watches;

use std::{sync::Arc, time::Duration};

use coracle_store::{Backend, Op, Revision, Txn, TxnOutcome, memory::MemoryBackend};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

const PODS: &str = "/registry/pods/";
const NODES: &str = "/registry/nodes/";

/// A store with a cache of pods and nodes.
struct Cluster {
    store: Arc<dyn Backend>,
    cache: Arc<WatchCache>,
    pods: Arc<ResourceCache>,
    shutdown: CancellationToken,
}

fn resources() -> Vec<ResourceConfig> {
    let values = |pod: &serde_json::Value| {
        vec![
            pod["spec"]["nodeName"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ]
    };
    let index = FieldIndex {
        names: Arc::new(["spec.nodeName".into()]),
        values: Arc::new(values),
        reads: FieldReads::TwoLevels,
        listed: vec!["spec.nodeName".into()],
    };
    vec![
        ResourceConfig {
            prefix: PODS.to_owned(),
            namespaced: true,
            index: Some(index),
            is_transient: false,
            convert: None,
        },
        ResourceConfig {
            prefix: NODES.to_owned(),
            namespaced: false,
            index: None,
            is_transient: false,
            convert: None,
        },
    ]
}

impl Cluster {
    async fn start() -> Self {
        Self::with(Arc::new(MemoryBackend::new()), WatchCacheLimits::default()).await
    }

    async fn with(store: Arc<dyn Backend>, limits: WatchCacheLimits) -> Self {
        let shutdown = CancellationToken::new();
        let cache = WatchCache::start(Arc::clone(&store), resources(), limits, shutdown.clone())
            .await
            .unwrap();
        let pods = cache.resource(PODS).unwrap();
        Self {
            store,
            cache,
            pods,
            shutdown,
        }
    }

    async fn write(&self, ops: Vec<Op>) -> Revision {
        let revision = write(&*self.store, ops).await;
        self.cache.wait_for(revision).await.unwrap();
        revision
    }

    /// Stores a pod with a label `app` and a node.
    async fn pod(&self, key: &str, app: &str, node: &str) -> Revision {
        self.write(vec![put_pod(key, app, node)]).await
    }

    async fn delete(&self, key: &str) -> Revision {
        self.write(vec![Op::Delete {
            key: pod_key(key).into(),
        }])
        .await
    }
}

async fn write(store: &dyn Backend, ops: Vec<Op>) -> Revision {
    match store
        .txn(Txn {
            compare: vec![],
            ops,
            ..Txn::default()
        })
        .await
        .unwrap()
    {
        TxnOutcome::Committed(revision) => revision,
        TxnOutcome::Conflict(_) => panic!("nothing was compared"),
    }
}

fn pod_key(key: &str) -> String {
    format!("{PODS}{key}")
}

fn put_pod(key: &str, app: &str, node: &str) -> Op {
    let (namespace, name) = key.split_once('/').unwrap();
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"u-{name}","labels":{{"app":"{app}"}}}},"apiVersion":"v1","kind":"Pod","spec":{{"nodeName":"{node}"}}}}"#
    );
    Op::Put {
        key: pod_key(key).into(),
        value: object.into(),
    }
}

fn namespace(name: &str) -> Selection {
    Selection::of(KeyScope::Namespace(name.to_owned()))
}

fn everything() -> Selection {
    Selection::of(KeyScope::Resource)
}

fn with_app(app: &'static str) -> Selection {
    everything().filter(Arc::new(move |entry| entry.label("app") == Some(app)))
}

/// Takes deliveries until there are `count`, as `TYPE name@revision`.
async fn take(watcher: &mut Watcher, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let next = tokio::time::timeout(Duration::from_secs(10), watcher.next())
            .await
            .expect("events come");
        taken.extend(next.unwrap().iter().map(shown));
    }
    taken
}

/// What the line of a delivery says.
fn shown(delivery: &Delivery) -> String {
    let line = delivery.line();
    assert_eq!(line.last(), Some(&b'\n'));
    let line: Value = serde_json::from_slice(&line).unwrap();
    let object = &line["object"]["metadata"];
    let revision = object["resourceVersion"].as_str().unwrap();
    assert_eq!(revision, delivery.revision().to_string());
    format!(
        "{} {}@{revision}",
        line["type"].as_str().unwrap(),
        object["name"].as_str().unwrap()
    )
}

fn names(entries: &[Arc<Entry>]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| entry.name().to_owned())
        .collect()
}

fn object(entry: &Entry) -> Value {
    serde_json::from_slice(&entry.json_bytes()).unwrap()
}

fn metadata(value: &Value) -> Value {
    json!({ "metadata": value })
}
