//! As much of an API server as watches need: list, watch, and a way to change objects.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Shared by all clients.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    revision: u64,
    /// Plural to `namespace/name` to object.
    objects: HashMap<String, BTreeMap<String, Value>>,
    /// Plural to all that happened there, by revision: what comes between a list and its watch is
    /// not lost.
    history: HashMap<String, Vec<(u64, Bytes)>>,
    watchers: HashMap<String, Vec<mpsc::UnboundedSender<Bytes>>>,
}

impl FakeApi {
    /// A client; belongs to the runtime that it is made in.
    pub(crate) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(&request)) }
        });
        kube::Client::new(service, "default")
    }

    /// Creates or replaces.
    pub(crate) fn put(&self, plural: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        let known = state
            .objects
            .entry(plural.into())
            .or_default()
            .insert(key(&object), object.clone());
        state.tell(
            plural,
            if known.is_some() { "MODIFIED" } else { "ADDED" },
            &object,
        );
    }

    /// Deletes, if it is there.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let mut state = self.0.lock().unwrap();
        state.revision += 1;
        let Some(mut object) = state
            .objects
            .entry(plural.into())
            .or_default()
            .remove(&format!("{namespace}/{name}"))
        else {
            return;
        };
        object["metadata"]["resourceVersion"] = state.revision.to_string().into();
        state.tell(plural, "DELETED", &object);
    }

    fn answer(&self, request: &Request<kube::client::Body>) -> Response<Body> {
        let plural = request
            .uri()
            .path()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let parameter = |name| {
            request
                .uri()
                .query()?
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        if parameter("sendInitialEvents") == Some("true") {
            let status = json!({"kind": "Status", "status": "Failure", "message": "lists come by pages", "code": 422});
            let body = Full::new(Bytes::from(status.to_string())).boxed_unsync();
            return Response::builder().status(422).body(body).unwrap();
        }
        let mut state = self.0.lock().unwrap();
        if parameter("watch") == Some("true") {
            let since: u64 = parameter("resourceVersion").unwrap().parse().unwrap();
            let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
            for (revision, line) in state.history.get(&plural).into_iter().flatten() {
                if *revision > since {
                    sender.send(line.clone()).unwrap();
                }
            }
            state.watchers.entry(plural).or_default().push(sender);
            let lines = tokio_util_stream(receiver).map(|line| Ok(http_body::Frame::data(line)));
            return Response::new(StreamBody::new(lines).boxed_unsync());
        }
        let items: Vec<Value> = state
            .objects
            .entry(plural)
            .or_default()
            .values()
            .cloned()
            .collect();
        let list = json!({
            "kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": state.revision.to_string()}, "items": items,
        });
        Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync())
    }
}

impl State {
    fn tell(&mut self, plural: &str, kind: &str, object: &Value) {
        let line = Bytes::from(json!({"type": kind, "object": object}).to_string() + "\n");
        self.history
            .entry(plural.into())
            .or_default()
            .push((self.revision, line.clone()));
        self.watchers
            .entry(plural.into())
            .or_default()
            .retain(|watcher| watcher.send(line.clone()).is_ok());
    }
}

fn key(object: &Value) -> String {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    format!("{}/{}", text("namespace"), text("name"))
}

fn tokio_util_stream(
    receiver: mpsc::UnboundedReceiver<Bytes>,
) -> impl futures::Stream<Item = Bytes> {
    futures::stream::unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    })
}

/// A Service of the default namespace.
pub(crate) fn service(name: &str, ip: &str, ports: &Value, more: &Value) -> Value {
    let mut spec =
        json!({"clusterIP": ip, "clusterIPs": [ip], "type": "ClusterIP", "ports": ports});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name}, "spec": spec})
}

/// The only slice of a Service: endpoints as `(address, node)`, all ready.
pub(crate) fn slice(service: &str, ports: &Value, endpoints: &[(&str, &str)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node)| json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": "default", "name": format!("{service}-abc"),
            "labels": {"kubernetes.io/service-name": service},
        },
        "ports": ports, "endpoints": endpoints,
    })
}
