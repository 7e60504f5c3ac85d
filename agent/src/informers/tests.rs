//! Once a kind, and no more than is read.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

fn node(name: &str) -> Value {
    json!({"kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "resourceVersion": "1", "annotations": {"coracle.dev/pod-network": "told"}},
        "spec": {"podCIDR": "10.244.7.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "198.18.0.7"}]}})
}

/// A server with two nodes and nothing else, and what it was asked.
fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (path, query) = (
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        let selector = query
            .split('&')
            .find(|pair| pair.contains("Selector="))
            .unwrap_or_default();
        seen.lock().push(format!("{path} {selector}"));
        let line =
            |kind: &str, object: &Value| json!({"type": kind, "object": object}).to_string() + "\n";
        let nodes = ["own", "other"]
            .map(|name| line("ADDED", &node(name)))
            .concat();
        let metadata =
            json!({"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}});
        let mark = line(
            "BOOKMARK",
            &json!({"kind": "x", "apiVersion": "v1", "metadata": metadata}),
        );
        let body = if path.ends_with("nodes") {
            nodes + &mark
        } else {
            mark
        };
        async move { Ok::<_, Infallible>(http::Response::new(Body::from(body.into_bytes()))) }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn each_kind_is_followed_once_and_of_other_nodes_only_the_network_is_kept() {
    let (client, asked) = server();
    let informers = Informers::new(&client, "own", Nodes::All, &Pulse::default());
    let synced = [
        informers.pods.synced(),
        informers.services.synced(),
        informers.slices.synced(),
        informers.nodes.synced(),
        informers.service_cidrs.synced(),
        informers.volumes.synced(),
        informers.policies.synced(),
        informers.namespaces.synced(),
    ];
    let (nodes, wanted) = (informers.nodes.cache(), informers.peers_wanted.clone());
    let mut later = informers.peers.synced();
    let mut tasks = Tasks::new(CancellationToken::new());
    informers.spawn(&mut tasks);
    for mut synced in synced {
        synced.wait_for(|done| *done).await.expect("it runs");
    }
    let first: BTreeSet<String> = asked.lock().iter().cloned().collect();
    let expected = [
        "/api/v1/namespaces ",
        "/api/v1/nodes ",
        "/api/v1/persistentvolumes labelSelector=local-path.coracle.dev%2Fnode%3Down",
        "/api/v1/pods fieldSelector=spec.nodeName%3Down",
        "/api/v1/services ",
        "/apis/discovery.k8s.io/v1/endpointslices ",
        "/apis/networking.k8s.io/v1/networkpolicies ",
        "/apis/networking.k8s.io/v1/servicecidrs ",
    ];
    assert_eq!(first, expected.map(str::to_owned).into());
    // Other nodes' pods only once there is a policy.
    wanted.send_replace(true);
    later.wait_for(|done| *done).await.expect("it runs");
    let then: BTreeSet<String> = asked.lock().iter().cloned().collect();
    let more: BTreeSet<&str> = then.difference(&first).map(String::as_str).collect();
    let expected = ["/apis/net.coracle.dev/v1/podpeers "];
    assert_eq!(more, expected.into());
    let [other, own] = &nodes.all()[..] else {
        panic!("two nodes")
    };
    assert_eq!(
        own.part
            .own
            .as_ref()
            .and_then(|node| node.metadata.name.as_deref()),
        Some("own")
    );
    assert_eq!(own.part.network.told.as_deref(), Some("told"));
    assert!(other.part.own.is_none() && other.part.network.told.is_none());
    assert_eq!(other.part.network.address, "198.18.0.7".parse().ok());
    assert_eq!(other.part.network.pod_cidrs, own.part.network.pod_cidrs);
}

#[test]
fn a_balancers_address_is_given_for_the_ports_that_are_listed() {
    let check = |ingress: Value, expect: &[&str]| {
        let ports = json!([{"port": 80}, {"port": 53, "protocol": "UDP"}]);
        let object = json!({"metadata": {}, "spec": {"clusterIP": "10.96.0.1", "ports": ports,
            "externalIPs": ["198.51.100.9"]}, "status": {"loadBalancer": {"ingress": ingress}}});
        let service: Service = serde_json::from_value(object).unwrap();
        let part = parts::ServicePart::from(service);
        let not_given = part.rules.as_ref().unwrap().not_given.iter();
        let said: Vec<String> = not_given
            .map(|(ip, protocol, port)| format!("{ip}:{port}/{}", protocol.as_str()))
            .collect();
        assert_eq!(said, expect, "{ingress}");
    };
    let (http, dns) = (
        json!({"port": 80, "protocol": "TCP"}),
        json!({"port": 53, "protocol": "UDP"}),
    );
    let one = |ports: Value| json!({"ip": "192.0.2.1", "ports": ports});
    check(json!([{"ip": "192.0.2.1"}]), &[]);
    check(json!([one(json!([]))]), &[]);
    check(json!([one(json!([http, dns]))]), &[]);
    check(json!([one(json!([http]))]), &["192.0.2.1:53/udp"]);
    let other = json!([{"port": 53, "protocol": "TCP"}]);
    check(
        json!([one(other)]),
        &["192.0.2.1:80/tcp", "192.0.2.1:53/udp"],
    );
    // Listed apart, of a name, for another to send on, and an address that its owner chose.
    check(json!([one(json!([http])), one(json!([dns]))]), &[]);
    check(json!([{"hostname": "lb", "ports": [http]}]), &[]);
    check(
        json!([{"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [http]}]),
        &[],
    );
    check(json!([{"ip": "198.51.100.9", "ports": [http]}]), &[]);
}
