//! A kernel that takes no rules: whom policies select does not start, others do.

use std::{convert::Infallible, sync::Arc};

use async_trait::async_trait;
use coracle_client::pulse::Pulse;
use coracle_netns::NetNs;
use coracle_telemetry::Tasks;
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    events::EventRecorder,
    informers::{Informers, Nodes},
    network::{NetworkError, PodNetwork, PodNetworkRequest},
};

type Texts = Arc<Mutex<Vec<String>>>;

/// A server with one policy, for pods of the label `shut`; and what it was sent.
fn server() -> (kube::Client, Texts) {
    let sent = Texts::default();
    let told = Arc::clone(&sent);
    let line =
        |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string() + "\n";
    let policy = line(
        "ADDED",
        &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": "ns", "name": "deny", "resourceVersion": "1"},
            "spec": {"podSelector": {"matchLabels": {"is": "shut"}}, "policyTypes": ["Ingress"]}}),
    );
    let metadata =
        json!({"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}});
    let mark = line(
        "BOOKMARK",
        &json!({"kind": "x", "apiVersion": "v1", "metadata": metadata}),
    );
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (told, mark) = (Arc::clone(&told), mark.clone());
        let first = request.uri().path().ends_with("networkpolicies");
        let body = if first { policy.clone() + &mark } else { mark };
        async move {
            let text = request.into_body().collect().await;
            let text = text.map(|text| String::from_utf8_lossy(&text.to_bytes()).into_owned());
            told.lock()
                .extend(text.ok().filter(|text| !text.is_empty()));
            Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes())))
        }
    });
    (kube::Client::new(service, "default"), sent)
}

/// Gives everybody the same address, and knows who was detached.
#[derive(Debug, Clone, Default)]
struct Network(Texts);

#[async_trait]
impl PodNetwork for Network {
    async fn setup(&self, _: &PodNetworkRequest) -> Result<Vec<std::net::IpAddr>, NetworkError> {
        Ok(vec![[10, 244, 1, 9].into()])
    }

    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.0.lock().push(request.pod.name.clone());
        Ok(())
    }

    async fn check(&self, _: &PodNetworkRequest) -> Result<(), NetworkError> {
        Ok(())
    }

    fn ready(&self) -> Result<(), NetworkError> {
        Ok(())
    }
}

fn request(name: &str) -> PodNetworkRequest {
    PodNetworkRequest {
        labels: [("is".to_owned(), name.to_owned())].into(),
        ..PodNetworkRequest::named(name)
    }
}

async fn pods_start_and_do_not() {
    let (client, sent) = server();
    let mut informers = Informers::new(&client, "own", Nodes::All, &Pulse::default());
    let sources = Sources::new(&mut informers);
    let (guard, heard) = Guard::new();
    let (events, writer) = EventRecorder::new(client, "own");
    let config = KeeperConfig {
        node_name: "own".to_owned(),
        dns_address: None,
        bridge: None,
        attached: Vec::new(),
        selected: "/nonexistent/policies.json".into(),
    };
    let keeper = Keeper::new(sources, heard, events, config);
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());
    informers.spawn(&mut tasks);
    tasks.add("keeper", keeper.run(stop.clone()));
    tasks.add("events", writer.run(stop.clone()));
    let bare = Network::default();
    let network = GuardedNetwork::new(bare.clone(), guard);

    network
        .setup(&request("open"))
        .await
        .expect("no policy selects it");
    network.teardown(&request("open")).await.expect("detached");
    let why = network.setup(&request("shut")).await;
    let why = why
        .expect_err("its policy is not in the kernel")
        .to_string();
    for part in [
        "NetworkPolicies cannot be enforced",
        "Operation not permitted",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(*bare.0.lock(), ["open", "shut"], "it is detached again");
    // And it is said where people look.
    let is_told = || {
        let sent = sent.lock();
        sent.iter().any(|text| {
            text.contains("NetworkPoliciesFailing") && text.contains("Operation not permitted")
        })
    };
    let told = tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while !is_told() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    told.await.expect("an event");
    // One that no policy selects still starts.
    network.setup(&request("open")).await.expect("as before");
}

/// Whom a predecessor's policies selected is shut off at once if the rules are gone, and a server
/// that tells nothing does not matter.
async fn who_was_selected_is_shut_off(selected: std::path::PathBuf) {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    let client = kube::Client::new(service, "default");
    let mut informers = Informers::new(&client, "own", Nodes::All, &Pulse::default());
    let sources = Sources::new(&mut informers);
    let (guard, heard) = Guard::new();
    let (events, _writer) = EventRecorder::new(client, "own");
    let [there, gone] = [9, 8].map(|last| std::net::IpAddr::from([10, 244, 1, last]));
    let named = json!({"to": [there, gone], "from": []}).to_string();
    std::fs::write(&selected, named).expect("written");
    let config = KeeperConfig {
        node_name: "own".to_owned(),
        dns_address: None,
        bridge: None,
        attached: vec![attachment(&request("shut"), &[there])],
        selected,
    };
    let stop = CancellationToken::new();
    let keeper = Keeper::new(sources, heard, events, config).run(stop.clone());
    let running = coracle_telemetry::spawn("keeper", keeper);
    let listed = || {
        let mut nft = std::process::Command::new("nft");
        let output = nft.args(["list", "ruleset"]).output().expect("nft");
        String::from_utf8(output.stdout).expect("text")
    };
    let shut = tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while !listed().contains("10.244.1.9 : jump c-shut-to") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    shut.await.expect("the pod is shut off");
    assert!(!listed().contains("10.244.1.8"), "it is not there any more");
    let mut soonest = std::time::Duration::MAX;
    for _ in 0..3 {
        // Who does it again and again waits for the next regular look, a second later.
        tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
        let mut nft = std::process::Command::new("nft");
        let removed = nft.args(["delete", "table", "ip", "coracle-policy"]);
        assert!(removed.status().expect("nft").success());
        let started = std::time::Instant::now();
        while !listed().contains("10.244.1.9 : jump c-shut-to") {
            assert!(started.elapsed() < std::time::Duration::from_secs(20));
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        soonest = soonest.min(started.elapsed());
    }
    let told = std::time::Duration::from_millis(500);
    assert!(soonest < told, "the kernel has told of it: {soonest:?}");
    stop.cancel();
    running.await.expect("ended");
    drop(guard);
}

/// Runs it in a namespace of its own, as root with some capabilities less.
fn in_a_namespace<F: Future<Output = ()>>(
    without: CapabilitySet,
    work: impl FnOnce(std::path::PathBuf) -> F + Send,
) {
    if !coracle_ground::is_root_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ns");
    let ns = NetNs::create(&path).expect("a namespace");
    // Open, it stays; and it is gone with this process, however that ends.
    coracle_netns::unpin(&path).expect("unpinned");
    let file = directory.path().join("policies.json");
    let outcome = ns.run(|| {
        // Of this thread, and of those that it makes.
        let mut own = capabilities(None).expect("own capabilities");
        own.effective.remove(without);
        own.permitted.remove(without);
        set_capabilities(None, own).expect("fewer capabilities");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(work(file));
    });
    outcome.expect("a run in the namespace");
}

#[test]
fn a_kernel_without_rules_starts_no_pod_that_a_policy_selects() {
    // The kernel refuses all of netfilter.
    in_a_namespace(CapabilitySet::NET_ADMIN, |_| pods_start_and_do_not());
}

#[test]
fn rules_that_went_while_no_agent_ran_are_missed_without_a_server() {
    in_a_namespace(CapabilitySet::empty(), who_was_selected_is_shut_off);
}
