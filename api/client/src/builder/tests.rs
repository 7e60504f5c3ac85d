//! Who shares what, who waits for what, and who is woken.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use coracle_telemetry::{TaskEnded, metrics::MetricsRegistry};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{controller::Outcome, informers::Informers};

/// Far more than anything here takes; the clock is paused.
const LONG: Duration = Duration::from_secs(60);
const CONFIG_MAPS: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";

type Words = Arc<Mutex<Vec<String>>>;

/// A server of ConfigMaps and Secrets, and what was listed of it. Secrets wait until the gate is
/// open.
struct Server {
    gate: watch::Sender<bool>,
    listed: Words,
}

impl Server {
    fn new(config_maps: fn() -> String) -> (Self, Client) {
        let this = Self {
            gate: watch::Sender::new(true),
            listed: Words::default(),
        };
        let (gate, listed) = (this.gate.subscribe(), Arc::clone(&this.listed));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (path, query) = (
                request.uri().path().to_owned(),
                request.uri().query().unwrap_or_default().to_owned(),
            );
            let (mut gate, listed) = (gate.clone(), Arc::clone(&listed));
            async move {
                if !query.contains("sendInitialEvents") {
                    // Nothing happens after what the list has brought.
                    std::future::pending::<()>().await;
                }
                let fields = query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix("fieldSelector="));
                listed
                    .lock()
                    .push(format!("{path} {}", fields.unwrap_or_default()));
                if path == SECRETS {
                    gate.wait_for(|is_open| *is_open)
                        .await
                        .expect("the server is there");
                }
                let lines = if path == CONFIG_MAPS {
                    config_maps()
                } else {
                    end_of_list()
                };
                Ok::<_, Infallible>(http::Response::new(Body::from(lines.into_bytes())))
            }
        });
        (this, Client::new(service, "default"))
    }

    fn listed(&self) -> Vec<String> {
        let mut listed = self.listed.lock().clone();
        listed.sort();
        listed
    }
}

fn line(kind: &str, name: &str, revision: &str, of: &str) -> String {
    let meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": revision, "labels": {"of": of}});
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"large": "text"}});
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn end_of_list() -> String {
    let mark: Value =
        json!({"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}});
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": mark});
    json!({"type": "BOOKMARK", "object": object}).to_string() + "\n"
}

fn one() -> String {
    line("ADDED", "a", "3", "x") + &end_of_list()
}

fn one_that_goes_over_to_another() -> String {
    one() + &line("MODIFIED", "a", "7", "y") + &line("DELETED", "a", "9", "y")
}

/// Writes down what it is asked for.
#[derive(Default)]
struct Clerk(Words);

impl Reconciler for Clerk {
    async fn reconcile(&self, key: Key) -> Outcome {
        self.0.lock().push(key.to_string());
        Ok(None)
    }
}

fn manager(client: Client, shutdown: &CancellationToken) -> Manager {
    Manager::new(Informers::new(client), MetricsRegistry::default(), shutdown)
}

/// Starts a manager; what it ends with.
fn start(manager: Manager) -> tokio::task::JoinHandle<Result<(), TaskEnded>> {
    coracle_telemetry::spawn("a manager", manager.run(LONG))
}

#[tokio::test(start_paused = true)]
async fn no_key_is_worked_on_before_all_that_is_named_is_listed() {
    let (server, client) = Server::new(one);
    server.gate.send_replace(false);
    let (shutdown, clerk) = (CancellationToken::new(), Arc::new(Clerk::default()));
    let mut manager = manager(client, &shutdown);
    let mut controller = Builder::managed_by(&mut manager, "test", "test");
    let config_maps = controller.for_kind::<ConfigMap>();
    let secrets = controller.reads::<Secret>();
    controller.complete(clerk.clone());
    let running = start(manager);
    sleep(LONG).await;
    assert_eq!(
        (
            config_maps.all().len(),
            secrets.all().len(),
            clerk.0.lock().len()
        ),
        (1, 0, 0)
    );
    server.gate.send_replace(true);
    sleep(LONG).await;
    assert_eq!(*clerk.0.lock(), ["ns/a"]);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_listed_once_a_selection_and_trimmed_in_each() {
    let (server, client) = Server::new(one);
    let shutdown = CancellationToken::new();
    let informers = Informers::new(client).trim(|object: &mut ConfigMap| object.data = None);
    let mut manager = Manager::new(informers, MetricsRegistry::default(), &shutdown);
    let mut caches = Vec::new();
    for source in [
        None,
        None,
        Some("metadata.name=a"),
        Some("metadata.name=a"),
        Some("metadata.name=b"),
    ] {
        let mut controller = Builder::managed_by(&mut manager, "test", "test");
        if let Some(fields) = source {
            controller.select(Source::<ConfigMap>::all().fields(fields));
        }
        caches.push(controller.reads::<ConfigMap>());
        controller.complete(Arc::new(Clerk::default()));
    }
    let whole: Vec<_> = manager
        .informers
        .whole()
        .map(|informer| informer.group_kind())
        .collect();
    assert_eq!(whole, [(String::new(), "ConfigMap".to_owned())]);
    assert!(Arc::ptr_eq(&caches[0], &caches[1]) && Arc::ptr_eq(&caches[2], &caches[3]));
    let running = start(manager);
    sleep(LONG).await;
    let select = |fields: &str| format!("{CONFIG_MAPS} {fields}");
    assert_eq!(
        server.listed(),
        [
            select(""),
            select("metadata.name%3Da"),
            select("metadata.name%3Db")
        ]
    );
    let held: Vec<_> = caches
        .iter()
        .flat_map(|cache| cache.all())
        .map(|object| object.data.clone())
        .collect();
    assert_eq!(held, [const { None }; 5]);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_wakes_what_the_object_points_to_and_what_it_pointed_to() {
    let (_server, client) = Server::new(one_that_goes_over_to_another);
    let (shutdown, clerk, metas) = (
        CancellationToken::new(),
        Arc::new(Clerk::default()),
        Words::default(),
    );
    let mut manager = manager(client, &shutdown);
    let mut controller = Builder::managed_by(&mut manager, "test", "test");
    let (queue, woken) = (controller.queue(), Words::default());
    let seen = woken.clone();
    controller.watches(move |object: &ConfigMap| {
        let of = object
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("of"))
            .cloned()
            .unwrap_or_default();
        seen.lock().push(of.clone());
        Some(Key::new("", of))
    });
    controller.complete(clerk.clone());
    let told = metas.clone();
    for mut informer in manager.informers.whole() {
        let told = told.clone();
        informer.on_change(move |meta, is_gone| {
            told.lock().push(format!(
                "{} {is_gone}",
                meta.resource_version.as_deref().unwrap_or_default()
            ));
        });
    }
    let running = start(manager);
    sleep(LONG).await;
    assert_eq!(
        *woken.lock(),
        ["x", "y", "x", "y"],
        "as it came, as it changed and was, as it went"
    );
    let mut keys = clerk.0.lock().clone();
    keys.sort();
    keys.dedup();
    assert_eq!(keys, ["x", "y"]);
    assert_eq!(*metas.lock(), ["3 false", "7 false", "9 true"]);
    shutdown.cancel();
    running.await.unwrap().unwrap();
    assert!(queue.next().await.is_none(), "closed");
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_dies_ends_all() {
    let (_server, client) = Server::new(one);
    let mut manager = manager(client, &CancellationToken::new());
    let this = Arc::new(());
    let mut controller = Builder::managed_by(&mut manager, "test", "test");
    controller.on_change(&this, |(), _: &Change<'_, ConfigMap>, _| {
        panic!("as a test wants it")
    });
    controller.complete(Arc::new(Clerk::default()));
    let ended = start(manager).await.unwrap().unwrap_err();
    assert!(ended.task().contains("ConfigMap"), "{ended}");
}

#[tokio::test(start_paused = true)]
async fn what_no_change_tells_is_looked_for_and_a_second_queue_is_worked_off() {
    let (_server, client) = Server::new(end_of_list);
    let (shutdown, clerk, second) = (
        CancellationToken::new(),
        Arc::new(Clerk::default()),
        Arc::new(Clerk::default()),
    );
    let mut manager = manager(client, &shutdown);
    let mut controller = Builder::managed_by(&mut manager, "test", "test");
    let beside = Arc::new(Queue::named(&MetricsRegistry::default(), "beside"));
    let (rounds, of_looks) = (Arc::new(AtomicUsize::new(0)), beside.clone());
    controller.every(LONG, &rounds, move |rounds, queue| {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        queue.add(Key::new("", round.to_string()));
        of_looks.add(Key::new("beside", round.to_string()));
    });
    controller.also("test-beside", beside, second.clone());
    controller.complete(clerk.clone());
    let running = start(manager);
    sleep(LONG * 5 / 2).await;
    assert_eq!((*clerk.0.lock()).clone(), ["0", "1", "2"]);
    assert_eq!(
        (*second.0.lock()).clone(),
        ["beside/0", "beside/1", "beside/2"]
    );
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_rests_until_what_was_written_for_it_shows() {
    let shown_at = |config_maps: fn() -> String| async move {
        let (_server, client) = Server::new(config_maps);
        let (shutdown, clerk) = (CancellationToken::new(), Arc::new(Clerk::default()));
        let mut manager = manager(client, &shutdown);
        let mut controller = Builder::managed_by(&mut manager, "test", "test");
        let (writes, queue) = (controller.own_writes::<ConfigMap>(), controller.queue());
        controller.complete(clerk.clone());
        let answer = line("ADDED", "a", "9", "x");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let answer: ConfigMap = serde_json::from_value(answer["object"].clone()).unwrap();
        let key = Key::new("", "writer");
        writes.write(&key, async { Ok(answer) }).await.unwrap();
        let running = start(manager);
        queue.add(key);
        queue.add(Key::new("", "other"));
        sleep(LONG).await;
        shutdown.cancel();
        running.await.unwrap().unwrap();
        let mut keys = clerk.0.lock().clone();
        keys.sort();
        keys
    };
    assert_eq!(shown_at(one).await, ["other"]);
    let until_9 = shown_at(one_that_goes_over_to_another);
    assert_eq!(until_9.await, ["other", "writer"]);
}
