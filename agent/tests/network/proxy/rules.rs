//! The rules themselves: whose they are, and that nobody else's are touched.

use std::{net::SocketAddr, time::Duration};

use coracle_netfilter::{
    engine::ServiceEngine as _,
    iptables::{Iptables, Writer},
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView},
};
use serde_json::{Value, json};

use super::{NEVER, OneNode, one_node};
use crate::{
    fake_api::{service, slice},
    harness::{CLUSTER_CIDR, Lab, Node, SERVICE_CIDR, ask, lab, output, wait_for},
};

/// A Service of two protocols with an endpoint at the address, and one without any. The first one's
/// ports, and its slice's.
fn put_services(lab: &Lab, address: &str) -> (Value, Value) {
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
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}, {"name": "u", "port": 8080, "protocol": "UDP"}]);
    lab.api.put(
        "endpointslices",
        slice(
            "web",
            &target,
            &[(address, "n1"), ("10.244.1.77", "n1"), ("10.244.2.1", "n2")],
        ),
    );
    (ports, target)
}

#[test]
fn rules_outlive_their_writer_and_the_next_takes_them_over_unchanged() {
    let Some(lab) = lab("takeover") else { return };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let address = pods[0].address.to_string();
    let (ports, target) = put_services(&lab, &address);
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

/// A Service with all that rules are made of. The address ends in `last`; `local` is of both
/// traffic policies.
fn view(affinity_secs: Option<u32>, last: u8, local: bool) -> ServiceView {
    let endpoint = |ip: [u8; 4], local| Endpoint {
        address: SocketAddr::new(ip.into(), 8080),
        local,
    };
    let endpoints = [
        endpoint([10, 244, 1, 2], true),
        endpoint([10, 244, 2, 2], false),
        endpoint([10, 244, 3, 3], false),
    ];
    let ports = |protocol, port, node_port: Option<u16>, endpoints: &[Endpoint]| PortView {
        port: Port {
            name: "p".into(),
            protocol,
            port,
            node_port: node_port.map(|first| first + u16::from(last)),
        },
        cluster: endpoints.to_vec(),
        local: endpoints.iter().filter(|e| e.local).copied().collect(),
        serving: Vec::new(),
    };
    ServiceView {
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
            ports(Protocol::Tcp, 80, Some(30000), &endpoints),
            ports(Protocol::Udp, 53, None, &endpoints[..1]),
            ports(Protocol::Sctp, 99, None, &endpoints),
            ports(Protocol::Tcp, 81, Some(31000), &[]),
            ports(Protocol::Udp, 82, None, &[]),
            // Under policy Local: dropped.
            ports(Protocol::Tcp, 83, Some(32000), &endpoints[1..]),
        ],
        ..ServiceView::default()
    }
}

#[test]
fn rules_read_back_as_they_were_written_in_both_variants() {
    let Some(lab) = lab("variants") else { return };
    let node = lab.node(1);
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
