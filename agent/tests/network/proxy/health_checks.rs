//! What load balancers are answered.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use coracle_netfilter::ProxyMode;
use coracle_netns::NetNs;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::NEVER;
use crate::{
    fake_api::{service, slice},
    harness::{Node, lab_by, wait_for},
};

for_each_engine!(
    a_balancer_learns_which_nodes_have_endpoints,
    a_port_that_was_taken_is_opened_once_it_is_free,
    a_node_that_is_about_to_go_says_so,
    a_services_port_is_answered_where_node_ports_are,
    a_service_without_rules_has_no_endpoints_to_tell_of,
);

/// Status, head and body of an answer, asked for in `from`.
fn get(from: &NetNs, address: SocketAddr, path: &str) -> std::io::Result<(u16, String, Value)> {
    let answer = from
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n")?;
            let mut answer = String::new();
            if stream.read_to_string(&mut answer)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok::<_, std::io::Error>(answer)
        })
        .unwrap()?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or_default();
    Ok((status, head.to_ascii_lowercase(), body))
}

fn status(node: &Node, port: u16, path: &str) -> Option<u16> {
    let address = (node.address, port).into();
    get(&node.ns, address, path).ok().map(|(status, ..)| status)
}

fn web(health_port: u16) -> Value {
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    let more = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": health_port});
    service("web", "10.96.0.10", &ports, &more)
}

fn endpoints(on: &[(&str, &str)]) -> Value {
    slice(
        "web",
        &json!([{"name": "", "port": 8080, "protocol": "TCP"}]),
        on,
    )
}

fn a_balancer_learns_which_nodes_have_endpoints(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "health") else {
        return;
    };
    let (first, second) = (lab.node(1), lab.node(2));
    lab.api.put("services", web(30_900));
    let on_first = [("10.244.1.7", "n1"), ("10.244.1.8", "n1")];
    lab.api.put("endpointslices", endpoints(&on_first));
    let _proxies = (first.proxy(NEVER), second.proxy(NEVER));
    wait_for("endpoints on the first node", || {
        status(&first, 30_900, "/") == Some(200)
    });
    wait_for("none on the second", || {
        status(&second, 30_900, "/any") == Some(503)
    });
    // As a balancer asks: from another machine.
    let address = (first.address, 30_900).into();
    let (_, head, body) = get(&second.ns, address, "/healthz").unwrap();
    assert!(
        head.contains("x-load-balancing-endpoint-weight: 2"),
        "{head}"
    );
    assert!(head.contains("content-type: application/json"), "{head}");
    let expect = json!({"service": {"namespace": "default", "name": "web"}, "localEndpoints": 2, "serviceProxyHealthy": true});
    assert_eq!(body, expect);
    // They move.
    lab.api
        .put("endpointslices", endpoints(&[("10.244.2.7", "n2")]));
    wait_for("the first node to have none", || {
        status(&first, 30_900, "/") == Some(503)
    });
    wait_for("the second node to have one", || {
        status(&second, 30_900, "/") == Some(200)
    });
    // Another port, and then none.
    lab.api.put("services", web(30_901));
    wait_for("the new port", || status(&second, 30_901, "/") == Some(200));
    assert_eq!(status(&second, 30_900, "/"), None);
    lab.api.delete("services", "default", "web");
    wait_for("no port", || status(&second, 30_901, "/").is_none());
}

fn a_port_that_was_taken_is_opened_once_it_is_free(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "health-taken") else {
        return;
    };
    let node = lab.node(1);
    let holder = node
        .ns
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 30_900)).unwrap())
        .unwrap();
    lab.api.put("services", web(30_900));
    lab.api
        .put("endpointslices", endpoints(&[("10.244.1.7", "n1")]));
    let _proxy = node.proxy(NEVER);
    wait_for("the proxy's own port", || {
        status(&node, 10_256, "/healthz") == Some(200)
    });
    drop(holder);
    wait_for("the Service's port", || {
        status(&node, 30_900, "/") == Some(200)
    });
}

fn a_node_that_is_about_to_go_says_so(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "health-node") else {
        return;
    };
    let node = lab.node(1);
    let with = |taints: Value| {
        let address = node.address.to_string();
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": taints},
            "status": {"addresses": addresses}})
    };
    lab.api.put("nodes", with(json!([])));
    let _proxy = node.proxy(NEVER);
    wait_for("a healthy node", || {
        status(&node, 10_256, "/healthz") == Some(200)
    });
    let going = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    lab.api.put("nodes", with(going));
    wait_for("a node that is going", || {
        status(&node, 10_256, "/healthz") == Some(503)
    });
    assert_eq!(status(&node, 10_256, "/livez"), Some(200));
    assert_eq!(status(&node, 10_256, "/else"), Some(404));
    let address = (node.address, 10_256).into();
    let (_, _, body) = get(&node.ns, address, "/healthz").unwrap();
    assert_eq!(body["nodeEligible"], false);
}

fn a_services_port_is_answered_where_node_ports_are(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "health-at") else {
        return;
    };
    let node = lab.node(1);
    lab.api.put("services", web(30_900));
    lab.api
        .put("endpointslices", endpoints(&[("10.244.1.7", "n1")]));
    let loopback = Ipv4Addr::LOCALHOST;
    let at = |address: Ipv4Addr, port: u16| get(&node.ns, (address, port).into(), "/healthz");
    let _proxy = node.proxy_with(NEVER, |config| {
        config.mode = mode;
        config.node_port_cidrs = vec![IpNet::from(IpAddr::from(node.address))];
    });
    wait_for("the chosen address", || {
        at(node.address, 30_900).is_ok_and(|(status, ..)| status == 200)
    });
    assert!(at(loopback, 30_900).is_err(), "another address");
    // The proxy's own is everywhere.
    assert_eq!(at(loopback, 10_256).unwrap().0, 200);
}

fn a_service_without_rules_has_no_endpoints_to_tell_of(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "health-large") else {
        return;
    };
    let node = lab.node(1);
    let mut large = web(30_900);
    let ports = (1..=5_001)
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"}));
    large["spec"]["ports"] = ports.collect();
    lab.api.put("services", large);
    lab.api
        .put("endpointslices", endpoints(&[("10.244.1.7", "n1")]));
    let _proxy = node.proxy(NEVER);
    wait_for("an answer", || status(&node, 30_900, "/").is_some());
    assert_eq!(status(&node, 30_900, "/"), Some(503));
    // Of fewer ports it has rules.
    lab.api.put("services", web(30_900));
    wait_for("endpoints", || status(&node, 30_900, "/") == Some(200));
}
