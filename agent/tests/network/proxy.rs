//! Connections through Services.

mod balancers;
mod health_checks;
mod nftables;
mod rules;
mod service_ranges;
mod shared_port;

use std::{collections::HashSet, io::ErrorKind, net::Ipv4Addr, time::Duration};

use coracle_netfilter::ProxyMode;
use serde_json::json;

use crate::{
    fake_api::{service, slice},
    harness::{Lab, Node, Pod, ask, ask_udp, ip, lab_by, note, output, serve, wait_for},
};

for_each_engine!(
    every_endpoint_gets_traffic_from_pods_and_from_the_node,
    a_pod_reaches_itself_through_its_service,
    a_server_on_the_node_is_reached_through_a_service,
    nodes_and_pods_reach_endpoints_of_other_nodes,
    a_service_without_endpoints_refuses_until_it_has_some,
    client_ip_affinity_stays_with_one_endpoint,
    udp_flows_leave_removed_endpoints,
    a_new_service_among_a_thousand_works_at_once,
    services_work_where_forwarding_is_forbidden,
    a_node_port_is_on_all_addresses_of_the_node_but_loopback,
);

const NEVER: Duration = Duration::from_secs(3600);

struct OneNode {
    node: Node,
    pods: Vec<Pod>,
}

fn one_node(lab: &Lab, names: &[&str]) -> OneNode {
    let node = lab.node(1);
    let network = node.ready_network();
    let pods = names
        .iter()
        .map(|name| node.pod(&network, name, Vec::new()))
        .collect();
    OneNode { node, pods }
}

fn every_endpoint_gets_traffic_from_pods_and_from_the_node(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "spread") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "b", "c", "client"]);
    let servers: Vec<_> = ["a", "b", "c"]
        .iter()
        .zip(&pods)
        .map(|(name, pod)| pod.serve(name))
        .collect();
    let tcp = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}]);
    lab.api
        .put("services", service("web", "10.96.0.10", &tcp, &json!({})));
    let addresses: Vec<String> = pods.iter().map(|pod| pod.address.to_string()).collect();
    let endpoints: Vec<_> = addresses[..3]
        .iter()
        .map(|address| (address.as_str(), "n1"))
        .collect();
    lab.api.put(
        "endpointslices",
        slice(
            "web",
            &json!([{"name": "http", "port": 8080, "protocol": "TCP"}]),
            &endpoints,
        ),
    );
    let _proxy = node.proxy(NEVER);
    wait_for("the service answers", || {
        ask(&pods[3].ns, "10.96.0.10:80").is_ok()
    });
    for _ in 0..40 {
        // Pods are seen under their own address.
        assert_eq!(
            ask(&pods[3].ns, "10.96.0.10:80").unwrap().1,
            pods[3].address
        );
    }
    for _ in 0..20 {
        ask(&node.ns, "10.96.0.10:80").unwrap();
    }
    for server in &servers {
        assert!(server.served() > 3, "{} of 61", server.served());
    }
    // A port that the Service does not have is refused, not sent elsewhere.
    assert_eq!(
        ask(&pods[3].ns, "10.96.0.10:81").unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
}

fn a_pod_reaches_itself_through_its_service(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "hairpin") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a"]);
    let _server = pods[0].serve("a");
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    lab.api
        .put("services", service("web", "10.96.0.10", &ports, &json!({})));
    let address = pods[0].address.to_string();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api
        .put("endpointslices", slice("web", &target, &[(&address, "n1")]));
    let _proxy = node.proxy(NEVER);
    wait_for("the pod reaches itself", || {
        ask(&pods[0].ns, "10.96.0.10:80").is_ok()
    });
}

fn a_server_on_the_node_is_reached_through_a_service(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "host") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["client"]);
    let _server = serve(&node.ns, "api");
    let ports = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 8080}]);
    lab.api.put(
        "services",
        service("kubernetes", "10.96.0.1", &ports, &json!({})),
    );
    let target = json!([{"name": "https", "port": 8080, "protocol": "TCP"}]);
    lab.api.put(
        "endpointslices",
        slice("kubernetes", &target, &[("198.18.0.1", "n1")]),
    );
    let _proxy = node.proxy(NEVER);
    wait_for("from a pod", || ask(&pods[0].ns, "10.96.0.1:443").is_ok());
    assert_eq!(
        ask(&pods[0].ns, "10.96.0.1:443").unwrap().1,
        pods[0].address
    );
    ask(&node.ns, "10.96.0.1:443").unwrap();
}

fn nodes_and_pods_reach_endpoints_of_other_nodes(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "across") else {
        return;
    };
    let (first, second) = (lab.node(1), lab.node(2));
    let (network, other) = (first.ready_network(), second.ready_network());
    let client = first.pod(&network, "client", Vec::new());
    let server_pod = second.pod(&other, "server", Vec::new());
    let _server = server_pod.serve("server");
    lab.register(&[&first, &second]);
    let _routes = (first.routes(Some(network)), second.routes(Some(other)));
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let more = json!({"type": "NodePort"});
    let mut web = service("web", "10.96.0.10", &ports, &more);
    web["spec"]["ports"][0]["nodePort"] = 30080.into();
    lab.api.put("services", web);
    let address = server_pod.address.to_string();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api
        .put("endpointslices", slice("web", &target, &[(&address, "n2")]));
    let _proxies = (first.proxy(NEVER), second.proxy(NEVER));
    wait_for("pod to service", || {
        ask(&client.ns, "10.96.0.10:80").is_ok()
    });
    assert_eq!(ask(&client.ns, "10.96.0.10:80").unwrap().1, client.address);
    assert_eq!(
        ask(&client.ns, &format!("{}:8080", server_pod.address))
            .unwrap()
            .1,
        client.address
    );
    wait_for("node to service", || {
        ask(&first.ns, "10.96.0.10:80").is_ok()
    });
    wait_for("node of the endpoint to service", || {
        ask(&second.ns, "10.96.0.10:80").is_ok()
    });
    // Through the node port of a node that has no endpoint.
    wait_for("node port", || ask(&second.ns, "198.18.0.1:30080").is_ok());
    // Pods reach other nodes without NAT, too, once these are known to be nodes.
    let _host = serve(&second.ns, "host");
    wait_for("a node without NAT", || {
        let (server, seen) = ask(&client.ns, "198.18.0.2:8080").unwrap();
        server == "host" && seen == client.address
    });
}

fn a_service_without_endpoints_refuses_until_it_has_some(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "reject") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    lab.api
        .put("services", service("web", "10.96.0.10", &ports, &json!({})));
    let _proxy = node.proxy(NEVER);
    let refused = || {
        ask(&pods[1].ns, "10.96.0.10:80").is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };
    wait_for("refused", refused);
    let address = pods[0].address.to_string();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let mut slice = slice("web", &target, &[(&address, "n1")]);
    lab.api.put("endpointslices", slice.clone());
    let took = wait_for("answered", || ask(&pods[1].ns, "10.96.0.10:80").is_ok());
    note(&format!("endpoint known to first answer: {took:?}"));
    // Terminating, but nobody else is there and it still serves.
    slice["endpoints"][0]["conditions"] =
        json!({"ready": false, "serving": true, "terminating": true});
    lab.api.put("endpointslices", slice.clone());
    ask(&pods[1].ns, "10.96.0.10:80").unwrap();
    slice["endpoints"][0]["conditions"] =
        json!({"ready": false, "serving": false, "terminating": true});
    lab.api.put("endpointslices", slice);
    wait_for("refused again", refused);
}

fn client_ip_affinity_stays_with_one_endpoint(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "affinity") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "b", "c", "client"]);
    let _servers: Vec<_> = ["a", "b", "c"]
        .iter()
        .zip(&pods)
        .map(|(name, pod)| pod.serve(name))
        .collect();
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let affinity = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}});
    lab.api
        .put("services", service("web", "10.96.0.10", &ports, &affinity));
    let addresses: Vec<String> = pods.iter().map(|pod| pod.address.to_string()).collect();
    let endpoints: Vec<_> = addresses[..3]
        .iter()
        .map(|address| (address.as_str(), "n1"))
        .collect();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api
        .put("endpointslices", slice("web", &target, &endpoints));
    let _proxy = node.proxy(NEVER);
    wait_for("answered", || ask(&pods[3].ns, "10.96.0.10:80").is_ok());
    let seen: HashSet<String> = (0..15)
        .map(|_| ask(&pods[3].ns, "10.96.0.10:80").unwrap().0)
        .collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

fn udp_flows_leave_removed_endpoints(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "udp") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "b", "client"]);
    let _servers = (pods[0].serve("a"), pods[1].serve("b"));
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}]);
    lab.api
        .put("services", service("dns", "10.96.0.53", &ports, &json!({})));
    let target = json!([{"name": "dns", "port": 8080, "protocol": "UDP"}]);
    let to = |pod: &Pod| {
        lab.api.put(
            "endpointslices",
            slice("dns", &target, &[(&pod.address.to_string(), "n1")]),
        )
    };
    to(&pods[0]);
    let _proxy = node.proxy(NEVER);
    let answer = || {
        ask_udp(&pods[2].ns, "10.96.0.53:53", 4444)
            .map(|(server, _)| server)
            .ok()
    };
    wait_for("first endpoint", || answer().as_deref() == Some("a"));
    to(&pods[1]);
    // The same source port all the time: without cleaning, the flow would stay where it is.
    wait_for("second endpoint", || answer().as_deref() == Some("b"));
}

fn a_new_service_among_a_thousand_works_at_once(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "thousand") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    for n in 0..1000_u32 {
        let name = format!("s{n}");
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 1, 0)) + n).to_string();
        lab.api
            .put("services", service(&name, &ip, &ports, &json!({})));
        let endpoints = [
            ("10.244.1.201", "n1"),
            ("10.244.2.201", "n2"),
            ("10.244.3.201", "n3"),
        ];
        lab.api
            .put("endpointslices", slice(&name, &target, &endpoints));
    }
    let _proxy = node.proxy(NEVER);
    let took = wait_for("1000 services", || node.count_services() == 1000);
    note(&format!("1000 services from nothing: {took:?}"));
    let address = pods[0].address.to_string();
    for n in 0..5 {
        let (name, ip) = (format!("new{n}"), format!("10.96.0.{}", 10 + n));
        lab.api
            .put("services", service(&name, &ip, &ports, &json!({})));
        lab.api
            .put("endpointslices", slice(&name, &target, &[(&address, "n1")]));
        let took = wait_for("it answers", || {
            ask(&pods[1].ns, &format!("{ip}:80")).is_ok()
        });
        note(&format!("a new service beside 1000: {took:?}"));
    }
}

/// Another tool's firewall forbids what is not allowed: Services' packets are.
fn services_work_where_forwarding_is_forbidden(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "forbidden") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a"]);
    let outside = lab.node(2);
    let _server = pods[0].serve("a");
    let mut web = service(
        "web",
        "10.96.0.10",
        &json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]),
        &json!({}),
    );
    web["spec"]["type"] = "NodePort".into();
    lab.api.put("services", web);
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let address = pods[0].address.to_string();
    lab.api
        .put("endpointslices", slice("web", &target, &[(&address, "n1")]));
    node.ns
        .run(|| output("iptables", &["-P", "FORWARD", "DROP"]))
        .unwrap();
    let _proxy = node.proxy(NEVER);
    wait_for("a node port", || {
        ask(&outside.ns, "198.18.0.1:30080").is_ok()
    });
    // Whoever reloads his rules takes those away that are in his table.
    node.ns
        .run(|| output("iptables", &["-F", "FORWARD"]))
        .unwrap();
    wait_for("the permission is back", || {
        ask(&outside.ns, "198.18.0.1:30080").is_ok()
    });
}

fn a_node_port_is_on_all_addresses_of_the_node_but_loopback(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "addresses") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let outside = lab.node(2);
    let _server = pods[0].serve("a");
    let mut web = service(
        "web",
        "10.96.0.10",
        &json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]),
        &json!({}),
    );
    web["spec"]["type"] = "NodePort".into();
    lab.api.put("services", web);
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let address = pods[0].address.to_string();
    lab.api
        .put("endpointslices", slice("web", &target, &[(&address, "n1")]));
    let _proxy = node.proxy(NEVER);
    wait_for("the primary one", || {
        ask(&outside.ns, "198.18.0.1:30080").is_ok()
    });
    // One that comes later.
    node.ns
        .run(|| ip(&["addr", "add", "198.18.0.77/24", "dev", "eth0"]))
        .unwrap();
    ask(&outside.ns, "198.18.0.77:30080").unwrap();
    ask(&node.ns, "198.18.0.77:30080").unwrap();
    ask(&pods[1].ns, "198.18.0.77:30080").unwrap();
    let refused = ask(&node.ns, "127.0.0.1:30080").unwrap_err().kind();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    // A port of nobody, and one that nobody serves any more.
    lab.api.put("endpointslices", slice("web", &target, &[]));
    wait_for("refused", || {
        ask(&outside.ns, "198.18.0.77:30080")
            .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    });
}
