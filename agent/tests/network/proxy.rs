//! Connections through Services.

use std::{
    collections::HashSet,
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use coracle_netfilter::{
    engine::ServiceEngine as _,
    iptables::{Iptables, Writer},
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView},
};
use serde_json::json;

use crate::{
    fake_api::{service, slice},
    harness::{
        CLUSTER_CIDR, Lab, Node, Pod, SERVICE_CIDR, ask, ask_udp, lab, note, output, serve,
        wait_for,
    },
};

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

#[test]
fn every_endpoint_gets_traffic_from_pods_and_from_the_node() {
    let Some(lab) = lab("spread") else { return };
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

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let Some(lab) = lab("hairpin") else { return };
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

#[test]
fn a_server_on_the_node_is_reached_through_a_service() {
    let Some(lab) = lab("host") else { return };
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

#[test]
fn nodes_and_pods_reach_endpoints_of_other_nodes() {
    let Some(lab) = lab("across") else { return };
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
    // Pods reach other nodes without NAT, too.
    let _host = serve(&second.ns, "host");
    assert_eq!(
        ask(&client.ns, "198.18.0.2:8080").unwrap(),
        ("host".into(), client.address)
    );
}

#[test]
fn a_service_without_endpoints_refuses_until_it_has_some() {
    let Some(lab) = lab("reject") else { return };
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

#[test]
fn client_ip_affinity_stays_with_one_endpoint() {
    let Some(lab) = lab("affinity") else { return };
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

#[test]
fn udp_flows_leave_removed_endpoints() {
    let Some(lab) = lab("udp") else { return };
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

#[test]
fn rules_outlive_their_writer_and_the_next_takes_them_over_unchanged() {
    let Some(lab) = lab("takeover") else { return };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 81, "name": "u", "protocol": "UDP"}]);
    lab.api.put(
        "services",
        service(
            "web",
            "10.96.0.10",
            &ports,
            &json!({"sessionAffinity": "ClientIP"}),
        ),
    );
    lab.api.put(
        "services",
        service(
            "empty",
            "172.16.0.1",
            &json!([{"port": 1, "nodePort": 31000}]),
            &json!({}),
        ),
    );
    let address = pods[0].address.to_string();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}, {"name": "u", "port": 8080, "protocol": "UDP"}]);
    lab.api.put(
        "endpointslices",
        slice(
            "web",
            &target,
            &[
                (&address, "n1"),
                ("10.244.1.77", "n1"),
                ("10.244.2.1", "n2"),
            ],
        ),
    );
    let handles = || {
        // Rule handles of the nft variant tell a rule that stayed from one that was written again.
        node.ns
            .run(|| output("iptables-save", &["-c"]))
            .unwrap()
            .lines()
            .filter(|l| l.starts_with('['))
            .count()
    };
    let proxy = node.proxy(NEVER);
    wait_for("written", || {
        node.iptables_save().contains("-A CORACLE-SERVICES")
    });
    drop(proxy);
    ask(&pods[1].ns, "10.96.0.10:80").ok();
    let before = (strip(&node.iptables_save()), handles());
    // Counters would be reset if a rule were written again.
    let counted = counters(&node);
    assert!(counted > 0, "no packet was counted");
    let proxy = node.proxy(Duration::from_millis(50));
    lab.api.put(
        "services",
        service("later", "10.96.0.11", &ports, &json!({})),
    );
    lab.api.put(
        "endpointslices",
        slice("later", &target, &[(&address, "n1")]),
    );
    wait_for("the next writer works", || {
        node.iptables_save().contains("10.96.0.11")
    });
    assert!(counters(&node) >= counted, "rules were written again");
    lab.api.delete("services", "default", "later");
    wait_for("deleted", || !node.iptables_save().contains("10.96.0.11"));
    assert_eq!((strip(&node.iptables_save()), handles()), before);
    drop(proxy);
}

#[test]
fn flushed_and_corrupted_rules_are_repaired_and_foreign_ones_stay() {
    let Some(lab) = lab("repair") else { return };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    lab.api
        .put("services", service("web", "10.96.0.10", &ports, &json!({})));
    let address = pods[0].address.to_string();
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api
        .put("endpointslices", slice("web", &target, &[(&address, "n1")]));
    let _proxy = node.proxy(Duration::from_millis(200));
    wait_for("answered", || ask(&pods[1].ns, "10.96.0.10:80").is_ok());
    let foreign = "*nat\n:FOREIGN - [0:0]\n-A FOREIGN -s 192.0.2.1/32 -j RETURN\n-A PREROUTING -j FOREIGN\nCOMMIT\n";
    let damages = [
        foreign,
        "*nat\n-F CORACLE-SERVICES\nCOMMIT\n",
        "*nat\n-D PREROUTING -j CORACLE-PROXY\nCOMMIT\n",
        "*nat\n-I CORACLE-SERVICES -j RETURN\nCOMMIT\n",
        "*nat\n-A OUTPUT -j CORACLE-PROXY\n-F CORACLE-POSTROUTING\nCOMMIT\n",
        "*filter\n-F CORACLE-REJECT\nCOMMIT\n",
    ];
    let mut good = None;
    for damage in damages {
        node.ns
            .run(|| Iptables::find().unwrap().restore(damage).unwrap())
            .unwrap();
        match &good {
            None => {
                let after = strip(&node.iptables_save());
                assert!(after.contains(&"-A PREROUTING -j FOREIGN".to_owned()));
                good = Some(after);
            }
            Some(good) => {
                wait_for("repaired", || {
                    // The order of jumps in others' chains is not ours to keep.
                    let mut now = strip(&node.iptables_save());
                    let mut good = good.clone();
                    now.sort();
                    good.sort();
                    now == good
                });
            }
        }
        ask(&pods[1].ns, "10.96.0.10:80").unwrap();
    }
}

#[test]
fn a_new_service_among_a_thousand_works_at_once() {
    let Some(lab) = lab("thousand") else { return };
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
    let took = wait_for("1000 services", || {
        node.iptables_save()
            .matches("\n-A CORACLE-SERVICES")
            .count()
            == 1000
    });
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

/// Rules without counters and comments.
fn strip(saved: &str) -> Vec<String> {
    saved
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            if line.starts_with(':') {
                line.split(" [").next().unwrap_or(line)
            } else {
                line
            }
            .to_owned()
        })
        .collect()
}

/// Packets that own rules have counted.
fn counters(node: &Node) -> u64 {
    let saved = node
        .ns
        .run(|| output("iptables-save", &["-c", "-t", "nat"]))
        .unwrap();
    saved
        .lines()
        .filter(|line| line.contains("-A CORACLE-SVC-"))
        .filter_map(|line| {
            line.strip_prefix('[')?
                .split(':')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .sum()
}

#[test]
fn rules_read_back_as_they_were_written_in_both_variants() {
    let Some(lab) = lab("variants") else { return };
    let node = lab.node(1);
    let endpoint = |ip: [u8; 4], local| Endpoint {
        address: SocketAddr::new(ip.into(), 8080),
        local,
    };
    let port = |protocol, port, node_port| Port {
        name: "p".into(),
        protocol,
        port,
        node_port,
    };
    let endpoints = vec![
        endpoint([10, 244, 1, 2], true),
        endpoint([10, 244, 2, 2], false),
        endpoint([10, 244, 3, 3], false),
    ];
    let ports = |port, endpoints: &[Endpoint]| PortView {
        port,
        cluster: endpoints.to_vec(),
        local: endpoints.iter().filter(|e| e.local).copied().collect(),
        serving: Vec::new(),
    };
    let view = |affinity_secs, last, local: bool| ServiceView {
        cluster_ips: vec![[10, 96, 0, last].into(), [172, 16, 0, last].into()],
        external_ips: vec![[203, 0, 113, last].into()],
        balancer_ips: vec![[203, 0, 114, last].into()],
        source_ranges: Some(vec![
            "192.0.2.0/24".parse().unwrap(),
            "198.18.0.1/32".parse().unwrap(),
        ]),
        affinity_secs,
        internal_local: local,
        external_local: local,
        ports: vec![
            ports(
                port(Protocol::Tcp, 80, Some(30000 + u16::from(last))),
                &endpoints,
            ),
            ports(port(Protocol::Udp, 53, None), &endpoints[..1]),
            ports(port(Protocol::Sctp, 99, None), &endpoints),
            ports(port(Protocol::Tcp, 81, Some(31000 + u16::from(last))), &[]),
            ports(port(Protocol::Udp, 82, None), &[]),
            // Under policy Local: dropped.
            ports(
                port(Protocol::Tcp, 83, Some(32000 + u16::from(last))),
                &endpoints[1..],
            ),
        ],
        ..ServiceView::default()
    };
    let key = |name: &str| ServiceKey {
        namespace: "default".into(),
        name: name.into(),
    };
    for nft in [true, false] {
        node.ns
            .run(|| {
                let network = ServiceNetwork::new(
                    &[CLUSTER_CIDR.parse().unwrap()],
                    &[SERVICE_CIDR.parse().unwrap()],
                )
                .with_pod_interface(Some("coracle0".into()))
                .with_node_ip(Some(node.address.into()));
                let mut writer = Writer::new(Iptables::variant(nft).unwrap(), network.clone());
                writer
                    .apply(vec![
                        (key("a"), Some(view(None, 1, true))),
                        (key("b"), Some(view(Some(600), 2, false))),
                    ])
                    .unwrap();
                assert!(!writer.reconcile().unwrap(), "nft {nft}: complete");
                writer
                    .apply(vec![
                        (key("c"), Some(view(Some(60), 3, true))),
                        (key("a"), None),
                    ])
                    .unwrap();
                assert!(!writer.reconcile().unwrap(), "nft {nft}: changed");
                let mut next = Writer::new(Iptables::variant(nft).unwrap(), network);
                next.apply(vec![(key("d"), None)]).unwrap();
                assert!(!next.reconcile().unwrap(), "nft {nft}: emptied");
            })
            .unwrap();
    }
}
