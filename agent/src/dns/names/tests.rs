use std::{collections::BTreeMap, convert::Infallible};

use coracle_client::pulse::Pulse;
use coracle_telemetry::Tasks;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::informers::Nodes;

type Objects = BTreeMap<&'static str, Value>;

/// Lists these objects by the ends of paths, once; else it says nothing ever.
fn client(objects: Objects) -> kube::Client {
    let objects = Mutex::new(objects);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path();
        let mut objects = objects.lock();
        let end = objects.keys().copied().find(|end| path.ends_with(end));
        let found = end.and_then(|end| objects.remove(end));
        let listed = found.map(|objects| {
            let line = |kind: &str, object: &Value| {
                json!({"type": kind, "object": object}).to_string() + "\n"
            };
            let all = objects.as_array().into_iter().flatten();
            let mut text: String = all.map(|one| line("ADDED", one)).collect();
            let metadata = json!({"resourceVersion": "5",
                "annotations": {"k8s.io/initial-events-end": "true"}});
            text += &line(
                "BOOKMARK",
                &json!({"kind": "x", "apiVersion": "v1", "metadata": metadata}),
            );
            Body::from(text.into_bytes())
        });
        async move {
            match listed {
                Some(body) => Ok::<_, Infallible>(http::Response::new(body)),
                None => std::future::pending().await,
            }
        }
    });
    kube::Client::new(service, "default")
}

/// An agent's names, and what has them go on.
fn begin(objects: Objects, path: &std::path::Path) -> (Names, Tasks) {
    let mut informers = Informers::new(&client(objects), "own", Nodes::Own, &Pulse::default());
    let names = Names::new(&mut informers);
    let mut tasks = Tasks::new(CancellationToken::new());
    let remember = names.clone().remember(path.to_owned(), tasks.stop());
    tasks.add("remember names", remember);
    informers.spawn(&mut tasks);
    (names, tasks)
}

fn web() -> Objects {
    let meta = json!({"namespace": "shop", "name": "web", "resourceVersion": "1"});
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": meta,
        "spec": {"clusterIP": "10.96.0.20", "ports": [{"name": "http", "port": 80}]}});
    let labels = json!({"kubernetes.io/service-name": "web"});
    let meta =
        json!({"namespace": "shop", "name": "web-1", "resourceVersion": "2", "labels": labels});
    let slice = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": meta,
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.244.0.7"], "conditions": {"ready": true}}]});
    let namespace = json!({"kind": "Namespace", "apiVersion": "v1",
        "metadata": {"name": "shop", "resourceVersion": "3"}});
    [
        ("/services", json!([service])),
        ("/endpointslices", json!([slice])),
        ("/namespaces", json!([namespace])),
    ]
    .into()
}

/// What is said of the Service, the way there and the ways back.
fn said(names: &Names) -> (bool, Option<Service>, usize, bool, usize) {
    let (at, behind) = ([10, 96, 0, 20].into(), [10, 244, 0, 7].into());
    (
        names.is_complete(),
        names.service("shop", "web"),
        names.endpoints("shop", "web").len(),
        names.service_at(at).is_some_and(|of| of.name == "web"),
        names.endpoints_at(behind).len(),
    )
}

#[tokio::test(start_paused = true)]
async fn services_that_were_known_last_have_names_while_no_server_answers() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("names.json");
    let (names, mut tasks) = begin(web(), &path);
    names.listed().await;
    let known = said(&names);
    assert!(known.0 && known.1.is_some() && known.3);
    assert_eq!((known.2, known.4), (1, 1));
    assert!(names.has_namespace("shop"));
    // Told to end, it writes what there is at once.
    tasks.finish(Duration::from_secs(1)).await;
    assert!(path.exists());

    let (names, mut tasks) = begin(Objects::new(), &path);
    sleep(PATIENCE / 2).await;
    assert_eq!(
        said(&names),
        (false, None, 0, false, 0),
        "one may answer yet"
    );
    sleep(PATIENCE).await;
    assert_eq!(said(&names), known);
    assert!(
        names.has_namespace("shop"),
        "nobody has said that it is not"
    );
    assert_eq!(names.service("shop", "absent"), None);
    tasks.finish(Duration::from_secs(1)).await;

    // A server that answers is right, and what it says is what is known last.
    let none = || {
        [
            ("/services", json!([])),
            ("/endpointslices", json!([])),
            ("/namespaces", json!([])),
        ]
    };
    let (names, mut tasks) = begin(none().into(), &path);
    names.listed().await;
    sleep(PATIENCE + WRITE_INTERVAL).await;
    assert_eq!(said(&names), (true, None, 0, false, 0));
    assert!(!names.has_namespace("shop"));
    tasks.finish(Duration::from_secs(1)).await;
}
