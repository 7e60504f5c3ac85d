//! Traffic policies, and who sees whom.

use std::{io::ErrorKind, time::Duration};

use coracle_netfilter::ProxyMode;
use serde_json::{Value, json};

use crate::{
    fake_api::{service, slice},
    harness::{Lab, Node, Pod, Running, ask, ask_udp, lab_by, wait_for},
};

for_each_engine!(
    external_policy_local_shows_the_client_and_drops_where_no_endpoint_is,
    internal_policy_local_leaves_the_node_port_alone,
    a_udp_flow_stays_with_a_pod_that_terminates_until_it_is_gone,
);

const NEVER: Duration = Duration::from_secs(3600);

/// Two nodes that know each other's pods, and somebody outside.
struct Pair {
    first: Node,
    second: Node,
    outside: Node,
    client: Pod,
    server: Pod,
    _running: Vec<Running>,
}

/// A client on the first node, a server on the second.
fn pair(lab: &Lab) -> Pair {
    let (first, second, outside) = (lab.node(1), lab.node(2), lab.node(3));
    let (network, other) = (first.ready_network(), second.ready_network());
    let client = first.pod(&network, "client", Vec::new());
    let server = second.pod(&other, "server", Vec::new());
    lab.register(&[&first, &second]);
    let running = vec![
        first.routes(Some(network)),
        second.routes(Some(other)),
        first.proxy(NEVER),
        second.proxy(NEVER),
    ];
    Pair {
        first,
        second,
        outside,
        client,
        server,
        _running: running,
    }
}

fn web(more: Value) -> Value {
    let mut web = service(
        "web",
        "10.96.0.10",
        &json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]),
        &more,
    );
    web["spec"]["type"] = "NodePort".into();
    web
}

fn external_policy_local_shows_the_client_and_drops_where_no_endpoint_is(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "etp") else {
        return;
    };
    let pair = pair(&lab);
    let _server = pair.server.serve("server");
    lab.api
        .put("services", web(json!({"externalTrafficPolicy": "Local"})));
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api.put(
        "endpointslices",
        slice("web", &target, &[(&pair.server.address.to_string(), "n2")]),
    );
    let outside = &pair.outside;
    wait_for("the node of the endpoint", || {
        ask(&outside.ns, "198.18.0.2:30080").is_ok()
    });
    assert_eq!(
        ask(&outside.ns, "198.18.0.2:30080").unwrap(),
        ("server".into(), outside.address)
    );
    wait_for("the first node's rules", || {
        pair.first.service_rules().contains("30080")
    });
    // Not refused: a balancer tries again elsewhere.
    assert_eq!(
        ask(&outside.ns, "198.18.0.1:30080").unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    // Pods of the node and the node itself get through wherever the endpoint is; pods keep their
    // address.
    assert_eq!(
        ask(&pair.client.ns, "198.18.0.1:30080").unwrap().1,
        pair.client.address
    );
    ask(&pair.first.ns, "198.18.0.1:30080").unwrap();
    assert_eq!(
        ask(&pair.client.ns, "10.96.0.10:80").unwrap().1,
        pair.client.address
    );
    // Without the policy every node answers, under its own address.
    lab.api.put("services", web(json!({})));
    wait_for("any node", || ask(&outside.ns, "198.18.0.1:30080").is_ok());
    assert_eq!(
        ask(&outside.ns, "198.18.0.1:30080").unwrap().1,
        pair.first.address
    );
}

fn internal_policy_local_leaves_the_node_port_alone(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "itp") else {
        return;
    };
    let pair = pair(&lab);
    let _server = pair.server.serve("server");
    lab.api
        .put("services", web(json!({"internalTrafficPolicy": "Local"})));
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api.put(
        "endpointslices",
        slice("web", &target, &[(&pair.server.address.to_string(), "n2")]),
    );
    wait_for("the node without endpoint", || {
        ask(&pair.outside.ns, "198.18.0.1:30080").is_ok()
    });
    assert_eq!(
        ask(&pair.client.ns, "10.96.0.10:80").unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    wait_for("the second node", || {
        ask(&pair.second.ns, "10.96.0.10:80").is_ok()
    });
}

fn a_udp_flow_stays_with_a_pod_that_terminates_until_it_is_gone(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "drain") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    let pods: Vec<Pod> = ["a", "b", "client"]
        .iter()
        .map(|name| node.pod(&network, name, Vec::new()))
        .collect();
    let _servers = (pods[0].serve("a"), pods[1].serve("b"));
    lab.api.put(
        "services",
        service(
            "dns",
            "10.96.0.53",
            &json!([{"port": 53, "protocol": "UDP"}]),
            &json!({}),
        ),
    );
    let put = |endpoints: Value| {
        let mut object = slice(
            "dns",
            &json!([{"name": "", "port": 8080, "protocol": "UDP"}]),
            &[],
        );
        object["endpoints"] = endpoints;
        lab.api.put("endpointslices", object);
    };
    let endpoint = |pod: &Pod, conditions: Value| json!({"addresses": [pod.address.to_string()], "nodeName": "n1", "conditions": conditions});
    put(json!([endpoint(&pods[0], json!({"ready": true}))]));
    let _proxy = node.proxy(NEVER);
    let answer = || {
        ask_udp(&pods[2].ns, "10.96.0.53:53", 4444)
            .map(|(server, _)| server)
            .ok()
    };
    wait_for("the first endpoint", || answer().as_deref() == Some("a"));
    put(json!([
        endpoint(
            &pods[0],
            json!({"ready": false, "serving": true, "terminating": true})
        ),
        endpoint(&pods[1], json!({"ready": true})),
    ]));
    // New flows go to the other one...
    wait_for("the second endpoint", || {
        ask_udp(&pods[2].ns, "10.96.0.53:53", 0).is_ok_and(|(server, _)| server == "b")
    });
    // ...and the old one, which was looked at since, is where it was.
    for _ in 0..5 {
        assert_eq!(answer().as_deref(), Some("a"));
    }
    put(json!([endpoint(&pods[1], json!({"ready": true}))]));
    wait_for("the old flow moves", || answer().as_deref() == Some("b"));
}
