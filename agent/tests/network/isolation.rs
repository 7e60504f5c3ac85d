//! What one Service, or somebody else on the node, cannot do to the rest.

use std::{net::SocketAddr, time::Duration};

use coracle_netfilter::{
    engine::ServiceEngine as _,
    iptables::{Iptables, Writer},
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView},
};
use serde_json::json;

use crate::{
    fake_api::{service, slice},
    harness::{CLUSTER_CIDR, SERVICE_CIDR, ask, lab, output, wait_for},
};

fn network() -> ServiceNetwork {
    ServiceNetwork::new(
        &[CLUSTER_CIDR.parse().unwrap()],
        &[SERVICE_CIDR.parse().unwrap()],
    )
}

fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

fn view(last: u8) -> ServiceView {
    let endpoint = Endpoint {
        address: SocketAddr::new([10, 244, 1, last].into(), 8080),
        local: true,
    };
    let port = Port {
        name: "p".into(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
    };
    ServiceView {
        cluster_ips: vec![[10, 96, 0, last].into()],
        ports: vec![PortView {
            port,
            cluster: vec![endpoint],
            local: vec![endpoint],
            serving: vec![],
        }],
        ..ServiceView::default()
    }
}

/// With an affinity that no API server lets through, because the match for it does not either.
fn refused(last: u8) -> ServiceView {
    ServiceView {
        affinity_secs: Some(0),
        ..view(last)
    }
}

fn saved(nft: bool) -> String {
    output(
        if nft {
            "iptables-nft-save"
        } else {
            "iptables-legacy-save"
        },
        &["-t", "nat"],
    )
}

#[test]
fn a_service_that_the_kernel_refuses_stops_no_other() {
    let Some(lab) = lab("isolate") else { return };
    let node = lab.node(1);
    for nft in [true, false] {
        node.ns
            .run(|| {
                // Among many at the start...
                let mut writer = Writer::new(Iptables::variant(nft).unwrap(), network());
                let mut all: Vec<_> = (1..20)
                    .map(|n| (key(&format!("s{n}")), Some(view(n))))
                    .collect();
                all.insert(7, (key("refused"), Some(refused(77))));
                writer.apply(all).unwrap();
                assert_eq!(
                    saved(nft).matches("\n-A CORACLE-SERVICES").count(),
                    19,
                    "nft {nft}"
                );
                let told = writer.take_refusals();
                assert_eq!(
                    told.iter()
                        .map(|refusal| &refusal.service)
                        .collect::<Vec<_>>(),
                    [&key("refused")]
                );
                assert!(!told[0].why.is_empty() && writer.refused().len() == 1);
                // ...and later, alone or with others.
                writer.apply(vec![(key("later"), Some(view(30)))]).unwrap();
                assert!(saved(nft).contains("10.96.0.30/32"), "nft {nft}");
                writer
                    .apply(vec![
                        (key("refused"), Some(refused(78))),
                        (key("last"), Some(view(31))),
                    ])
                    .unwrap();
                assert!(
                    saved(nft).contains("10.96.0.31/32") && !saved(nft).contains("CORACLE-TRIAL"),
                    "nft {nft}"
                );
                assert_eq!(writer.take_refusals().len(), 1);
                assert!(
                    !writer.reconcile().unwrap(),
                    "nft {nft}: what is refused is not missed"
                );
                // What becomes usable gets its rules.
                writer
                    .apply(vec![(key("refused"), Some(view(78)))])
                    .unwrap();
                assert!(
                    saved(nft).contains("10.96.0.78/32") && writer.refused().is_empty(),
                    "nft {nft}"
                );
                let mut last = Writer::new(Iptables::variant(nft).unwrap(), network());
                last.apply(vec![]).unwrap();
            })
            .unwrap();
    }
}

#[test]
fn rules_of_the_other_variant_are_removed() {
    let Some(lab) = lab("switch") else { return };
    let node = lab.node(1);
    node.ns
        .run(|| {
            for nft in [false, true, false] {
                let mut writer = Writer::new(Iptables::variant(nft).unwrap(), network());
                writer.apply(vec![(key("web"), Some(view(9)))]).unwrap();
                assert!(saved(nft).contains("10.96.0.9/32"), "nft {nft}");
                assert!(
                    !saved(!nft).contains("CORACLE-"),
                    "nft {nft}: {}",
                    saved(!nft)
                );
            }
        })
        .unwrap();
}

#[test]
fn own_changes_are_told_from_those_of_others() {
    let Some(lab) = lab("custody") else { return };
    let node = lab.node(1);
    node.ns
        .run(|| {
            let iptables = Iptables::variant(true).unwrap();
            let mut writer = Writer::new(iptables.clone(), network());
            writer.apply(vec![(key("a"), Some(view(1)))]).unwrap();
            assert!(!writer.reconcile().unwrap() && !writer.is_disturbed());
            // A change of both tables, and one of one table.
            let mut gone = view(2);
            gone.cluster_ips = vec![[172, 16, 0, 1].into()];
            gone.ports[0].cluster.clear();
            writer
                .apply(vec![(key("b"), Some(gone)), (key("c"), Some(view(3)))])
                .unwrap();
            assert!(!writer.is_disturbed(), "both tables");
            writer.apply(vec![(key("c"), Some(view(4)))]).unwrap();
            assert!(!writer.is_disturbed(), "one table");
            iptables
                .restore("*filter\n:SOMEBODY - [0:0]\nCOMMIT\n")
                .unwrap();
            assert!(writer.is_disturbed());
            assert!(
                !writer.reconcile().unwrap() && !writer.is_disturbed(),
                "it was not about our rules"
            );
            iptables
                .restore("*nat\n-F CORACLE-SERVICES\nCOMMIT\n")
                .unwrap();
            assert!(writer.is_disturbed() && writer.reconcile().unwrap());
        })
        .unwrap();
}

#[test]
fn flushed_rules_come_back_long_before_the_regular_comparison() {
    let Some(lab) = lab("flush") else { return };
    let node = lab.node(1);
    let network = node.ready_network();
    let (pod, client) = (
        node.pod(&network, "a", Vec::new()),
        node.pod(&network, "client", Vec::new()),
    );
    let _server = pod.serve("a");
    lab.api.put(
        "services",
        service(
            "web",
            "10.96.0.10",
            &json!([{"port": 80, "protocol": "TCP"}]),
            &json!({}),
        ),
    );
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api.put(
        "endpointslices",
        slice("web", &target, &[(&pod.address.to_string(), "n1")]),
    );
    let _proxy = node.proxy(Duration::from_secs(3600));
    wait_for("answered", || ask(&client.ns, "10.96.0.10:80").is_ok());
    for damage in [
        "*nat\n-F\nCOMMIT\n",
        "*nat\n-F CORACLE-SERVICES\nCOMMIT\n*filter\n-F CORACLE-REJECT\nCOMMIT\n",
    ] {
        node.ns
            .run(|| Iptables::find().unwrap().restore(damage).unwrap())
            .unwrap();
        wait_for("healed", || ask(&client.ns, "10.96.0.10:80").is_ok());
        wait_for("the refusal, too", || {
            ask(&client.ns, "10.96.0.77:80")
                .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
        });
    }
}
