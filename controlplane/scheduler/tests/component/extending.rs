//! Extenders: what they are told of pods and nodes as the API has them, and that they bind.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use coracle_scheduler::SchedulerConfig;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Cluster, small, wait};

/// Takes node `b` and binds to it what it is asked to bind.
struct Extender {
    url: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    /// Binds once it is there.
    client: Arc<Mutex<Option<Client>>>,
    _stop: DropGuard,
}

impl Extender {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, client) = (Arc::default(), Arc::default());
        let stop = CancellationToken::new();
        let (end, to) = (stop.clone(), (Arc::clone(&asked), Arc::clone(&client)));
        coracle_telemetry::spawn("an extender of a test", async move {
            loop {
                let (stream, _) = tokio::select! {
                    () = end.cancelled() => return,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                let to = to.clone();
                let service = service_fn(move |request| answer(to.clone(), request));
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                coracle_telemetry::spawn("a connection of a test", connection);
            }
        });
        Self {
            url,
            asked,
            client,
            _stop: stop.drop_guard(),
        }
    }

    /// What it was asked about the pod of this name.
    fn asked(&self, verb: &str, name: &str) -> Option<Value> {
        let all = self.asked.lock().unwrap();
        let mut all = all.iter();
        let found = all.find(|(asked, args)| {
            let names = [&args["Pod"]["metadata"]["name"], &args["PodName"]];
            asked == verb && names.contains(&&json!(name))
        });
        found.map(|(_, args)| args.clone())
    }
}

type To = (Arc<Mutex<Vec<(String, Value)>>>, Arc<Mutex<Option<Client>>>);

async fn answer(
    (asked, client): To,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let verb = request.uri().path().trim_start_matches('/').to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let args: Value = serde_json::from_slice(&body).unwrap();
    asked.lock().unwrap().push((verb.clone(), args.clone()));
    let answer = match verb.as_str() {
        "filter" => {
            let mut items = args["Nodes"]["items"].as_array().unwrap().clone();
            items.retain(|node| node["metadata"]["name"] == "b");
            json!({"Nodes": {"items": items}, "FailedNodes": {"a": "not b"}})
        }
        "bind" => {
            let client = client.lock().unwrap().clone().unwrap();
            let pods: Api<k8s_openapi::api::core::v1::Pod> =
                Api::namespaced(client, args["PodNamespace"].as_str().unwrap());
            let name = args["PodName"].as_str().unwrap();
            let binding = json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": name, "uid": args["PodUID"]},
                "target": {"kind": "Node", "name": args["Node"]}});
            let params = PostParams::default();
            let bound = pods
                .create_subresource::<_, Value>("binding", name, &params, &binding)
                .await;
            json!({"Error": bound.err().map(|error| error.to_string()).unwrap_or_default()})
        }
        "prioritize" => json!([]),
        other => panic!("{other}"),
    };
    Ok(Response::new(Full::from(answer.to_string())))
}

fn config(extender: &Value) -> SchedulerConfig {
    let all = json!({"apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration", "extenders": [extender]});
    SchedulerConfig::parse(&all.to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_filters_and_binds_the_pods_that_it_manages() {
    let extender = Extender::start().await;
    let says = json!({"urlPrefix": extender.url, "filterVerb": "filter", "bindVerb": "bind",
        "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}]});
    let cluster = Cluster::start_with(config(&says)).await;
    *extender.client.lock().unwrap() = Some(cluster.client.clone());
    for name in ["a", "b"] {
        cluster.add_node(name, small()).await;
        let annotated = json!({"metadata": {"annotations": {"rack": "7"}}});
        cluster.patch_node(name, annotated).await;
    }
    let gpu = json!({"cpu": "100m", "example.com/gpu": "1"});
    cluster
        .add_pod("gpu", gpu.clone(), json!({"hostname": "h"}))
        .await;
    assert_eq!(cluster.placed("gpu").await, "b");
    let asked = extender.asked("filter", "gpu").unwrap();
    assert_eq!(asked["Pod"]["spec"]["hostname"], "h");
    assert_eq!(asked["Pod"]["metadata"].get("managedFields"), None);
    let nodes = asked["Nodes"]["items"].as_array().unwrap();
    assert_eq!(nodes.len(), 2);
    for node in nodes {
        assert_eq!(node["metadata"]["annotations"]["rack"], "7");
        assert_eq!(node["status"]["capacity"]["cpu"], "1");
    }
    assert_eq!(extender.asked("bind", "gpu").unwrap()["Node"], "b");
    cluster
        .add_pod("plain", json!({"cpu": "100m"}), json!({}))
        .await;
    cluster.placed("plain").await;
    assert_eq!(extender.asked("filter", "plain"), None);
    assert_eq!(extender.asked("bind", "plain"), None);
    // What it refuses is told, and tried again when anything changes.
    cluster
        .patch_node("b", json!({"spec": {"unschedulable": true}}))
        .await;
    wait("the node to be closed", || async {
        cluster
            .nodes()
            .get("b")
            .await
            .unwrap()
            .spec
            .unwrap()
            .unschedulable
            == Some(true)
    })
    .await;
    cluster.add_pod("late", gpu, json!({})).await;
    let why = cluster.refused("late").await;
    assert!(
        why.starts_with("0/2 nodes are available: 1 node(s) were unschedulable, 1 not b."),
        "{why}"
    );
    let client = cluster.client.clone();
    let explained = coracle_scheduler::why(client, config(&says), "default", "late").await;
    let explained = explained.unwrap().to_string();
    assert!(explained.contains("Extender: not b"), "{explained}");
    cluster
        .patch_node("b", json!({"spec": {"unschedulable": null}}))
        .await;
    assert_eq!(cluster.placed("late").await, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_an_extender_that_is_not_there_and_others_do_not() {
    let gone = Extender::start().await.url;
    let says = json!({"urlPrefix": gone, "filterVerb": "filter", "httpTimeout": "200ms",
        "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}]});
    let cluster = Cluster::start_with(config(&says)).await;
    cluster.add_node("b", small()).await;
    let gpu = json!({"cpu": "100m", "example.com/gpu": "1"});
    cluster.add_pod("gpu", gpu, json!({})).await;
    let why = cluster.not_scheduled("gpu", "SchedulerError").await;
    assert!(why.contains(&format!("extender {gone}/filter")), "{why}");
    cluster
        .add_pod("plain", json!({"cpu": "100m"}), json!({}))
        .await;
    assert_eq!(cluster.placed("plain").await, "b");
}
