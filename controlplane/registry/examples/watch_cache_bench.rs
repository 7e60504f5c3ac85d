//! What the watch cache costs with many nodes: `cargo run --release -p coracle-registry --example
//! watch_cache_bench [PODS NODES EVENTS]`, 100,000, 5,000 and 20,000 unless it is told otherwise.
//!
//! One thread, whose processor time is told; a store in memory, the kinds as they are served.
//! Objects stand for nodes: a watch by `spec.nodeName` each, as kubelets have.

use std::{fs, sync::Arc, time::Duration};

use coracle_registry::{
    resource::Registry,
    watch_cache::{Entry, KeyScope, ListAt, ListRequest, ResourceCache, Selection, WatchCache},
};
use coracle_store::{Backend, Op, Revision, Txn, TxnOutcome, memory::MemoryBackend};
use nix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

const BATCH: usize = 100;
const LISTS: usize = 50;
/// Writes between one watch's bookmark and the next in a cluster of this size.
const AGO: u64 = 1000;

struct Scale {
    pods: usize,
    nodes: usize,
    events: usize,
}

struct Bench {
    scale: Scale,
    store: Arc<dyn Backend>,
    cache: Arc<WatchCache>,
    pods: Arc<ResourceCache>,
    revision: Revision,
}

fn main() {
    let mut given = std::env::args().skip(1).map_while(|word| word.parse().ok());
    let scale = Scale {
        pods: given.next().unwrap_or(100_000),
        nodes: given.next().unwrap_or(5_000),
        events: given.next().unwrap_or(20_000),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(scale)),
        Err(error) => say("no runtime", &error.to_string()),
    }
}

#[allow(clippy::print_stdout, reason = "its one output")]
fn say(what: &str, figure: &str) {
    println!("{what:<58}{figure:>14}");
}

/// What the processor has spent on this thread.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// What it has since then, by so many.
fn micros(since: Duration, count: usize) -> String {
    let time = spent().saturating_sub(since);
    format!("{:.1} µs", time.as_secs_f64() * 1e6 / count.max(1) as f64)
}

/// What the process has in memory.
fn resident_kb() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

async fn run(scale: Scale) {
    let store: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    for first in (0..scale.pods).step_by(BATCH) {
        let last = (first + BATCH).min(scale.pods);
        let ops = (first..last).map(|pod| put(pod, pod % scale.nodes, 0));
        write(&*store, ops.collect()).await;
    }
    // No past: what is measured is the present.
    let current = store.known_revision().unwrap_or_default();
    if store.compact(current).await.is_err() {
        return;
    }
    let (before, started) = (resident_kb(), spent());
    let start = Registry::start(&store, CancellationToken::new()).await;
    let Ok((registry, cache)) = start else { return };
    let Some(pods) = registry.core("pods") else {
        return;
    };
    say("load, an object", &micros(started, scale.pods));
    let bytes = (resident_kb() - before) * 1024 / scale.pods.max(1);
    say("memory, an object", &format!("{bytes} B"));
    let mut bench = Bench {
        store,
        revision: cache.revision(),
        cache,
        pods: Arc::clone(&pods.cache),
        scale,
    };
    bench.lists();
    bench.without_watchers().await;
    bench.narrow_watchers().await;
    bench.past();
    say("memory in the end", &format!("{} MB", resident_kb() / 1024));
}

impl Bench {
    /// Updates pods here and there, one at a time.
    async fn update(&mut self) {
        for event in 0..self.scale.events {
            // A prime: neighbours in time are none in the list.
            let pod = event * 7919 % self.scale.pods;
            let op = put(pod, pod % self.scale.nodes, event + 1);
            self.revision = write(&*self.store, vec![op]).await;
            if self.cache.wait_for(self.revision).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn without_watchers(&mut self) {
        let started = spent();
        self.update().await;
        say(
            "a write, nobody watches",
            &micros(started, self.scale.events),
        );
    }

    async fn narrow_watchers(&mut self) {
        let watching: Vec<_> = (0..self.scale.nodes)
            .map(|node| {
                let watcher = self.pods.watch(on_node(node), self.revision);
                coracle_telemetry::spawn("watch as a node does", async move {
                    let Ok(mut watcher) = watcher else { return 0 };
                    let mut lines = 0;
                    while watcher.next_lines().await.is_ok() {
                        lines += 1;
                    }
                    lines
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let started = spent();
        self.update().await;
        let what = format!("a write, {} watch a node each", self.scale.nodes);
        say(&what, &micros(started, self.scale.events));
        watching.iter().for_each(tokio::task::JoinHandle::abort);
        let ago = Revision(self.revision.0 - AGO.min(self.revision.0));
        let started = spent();
        let watchers = (0..self.scale.nodes).map(|node| {
            let mut watcher = self.pods.watch(on_node(node), ago).ok()?;
            watcher.progress().is_none().then(|| watcher.ready().ok())
        });
        let resumed = watchers.flatten().count();
        let what = format!("a watch resumed {AGO} events later ({resumed} had some)");
        say(&what, &micros(started, self.scale.nodes));
    }

    fn lists(&self) {
        let labelled = Selection::of(KeyScope::Resource).filter(Arc::new(|entry: &Entry| {
            entry.label("app") == Some("app-7")
        }));
        let in_namespace = Selection::of(KeyScope::Namespace("ns-7".to_owned()));
        for (what, selection) in [
            ("LIST of one node's", on_node(7)),
            ("LIST of one namespace's", in_namespace),
            ("LIST by label", labelled),
        ] {
            let started = spent();
            let found = (0..LISTS).filter_map(|_| {
                let list = self.pods.list(&ListRequest::all(selection.clone()));
                Some(list.ok()?.entries.len())
            });
            let found = found.fold(0, |_, found| found);
            let what = format!("{what} pods ({found})");
            say(&what, &micros(started, LISTS));
        }
    }

    fn past(&self) {
        let request = ListRequest {
            at: ListAt::Exact(Revision(self.revision.0 - AGO.min(self.revision.0))),
            ..ListRequest::all(on_node(7))
        };
        let started = spent();
        let found = (0..LISTS).filter(|_| self.pods.list(&request).is_ok());
        let what = format!(
            "LIST of one node's pods {AGO} events ago ({})",
            found.count()
        );
        say(&what, &micros(started, LISTS));
    }
}

fn on_node(node: usize) -> Selection {
    let name = format!("node-{node}");
    let wanted = name.clone();
    Selection::of(KeyScope::Resource)
        .filter(Arc::new(move |entry: &Entry| {
            entry.field("spec.nodeName") == Some(&wanted)
        }))
        .requires_field("spec.nodeName", name)
}

async fn write(store: &dyn Backend, ops: Vec<Op>) -> Revision {
    let txn = Txn {
        ops,
        ..Txn::default()
    };
    match store.txn(txn).await {
        Ok(TxnOutcome::Committed(revision)) => revision,
        _ => Revision(0),
    }
}

/// A pod of a middling size.
fn put(pod: usize, node: usize, version: usize) -> Op {
    let namespace = format!("ns-{}", pod % 200);
    let app = pod % 1000;
    let owned: String = (0..30)
        .map(|field| format!(r#""f:field-{field}":{{}},"#))
        .collect();
    let environment: String = (0..12)
        .map(|n| format!(r#"{{"name":"SETTING_{n}","value":"value-{n}"}},"#))
        .collect();
    let object = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"pod-{pod}","namespace":"{namespace}","uid":"00000000-0000-4000-8000-{pod:012}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"app-{app}","pod-template-hash":"5d4f8c7b9","tier":"front"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-{app}-5d4f8c7b9","uid":"00000000-0000-4000-8000-{app:012}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{{owned}"f:last":{{}}}}}}]}},"spec":{{"volumes":[{{"name":"data","emptyDir":{{}}}}],"containers":[{{"name":"app","image":"registry.example.org/team/app:1.27.3","env":[{environment}{{"name":"LAST","value":"x"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"data","mountPath":"/data"}}],"imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-{node}","schedulerName":"default-scheduler","enableServiceLinks":true}},"status":{{"observedGeneration":{version},"phase":"Running","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}],"hostIP":"10.0.0.1","podIP":"10.1.0.1","startTime":"2026-01-01T00:00:00Z","qosClass":"Burstable"}}}}"#
    );
    Op::Put {
        key: format!("/registry/pods/{namespace}/pod-{pod}").into(),
        value: object.into(),
    }
}
