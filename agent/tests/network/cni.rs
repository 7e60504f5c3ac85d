//! Attaching pods through the agent's CniNetwork: its own network, and plugins of others.

mod bandwidth;
mod chain;
mod engines;
mod former;
mod host_ports;
mod plugins;

use std::{
    io::ErrorKind,
    path::Path,
    time::{Duration, Instant},
};

use coracle_agent::{
    network::{
        NetworkError, PodNetwork as _,
        cni::{CniConfig, CniNetwork},
    },
    runtime::types::PortMapping,
};
use coracle_cni::{netlink::Netlink, veth};
use coracle_netfilter::ProxyMode;

use crate::harness::{Node, ask, ask_udp, lab, lab_by, note, serve, wait_for};

for_each_engine!(
    teardown_leaves_no_link_address_or_rule,
    a_published_port_leads_to_the_pod_from_outside_and_from_itself,
    pods_are_masqueraded_to_strangers_only,
    the_next_agent_knows_the_network_and_collects_vanished_sandboxes,
    udp_clients_of_a_published_port_follow_it_to_the_next_pod,
    an_add_that_nobody_waits_for_any_more_leaves_nothing,
);

fn published(host_port: u16) -> Vec<PortMapping> {
    vec![PortMapping {
        host_port,
        container_port: 8080,
        protocol: "TCP".into(),
        host_ip: String::new(),
    }]
}

fn links(node: &Node) -> Vec<String> {
    let all = node
        .ns
        .run(|| Netlink::open().unwrap().links().unwrap())
        .unwrap();
    all.into_iter()
        .filter(|link| link.name.starts_with("veth"))
        .map(|link| link.name)
        .collect()
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| {
        entries
            .flatten()
            .filter(|e| {
                e.file_name()
                    .to_str()
                    .is_some_and(|n| n.parse::<std::net::IpAddr>().is_ok())
            })
            .count()
    })
}

/// As [`wait_for`], while what the node's runtime has to do goes on.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{what}: not within 30 s"
        );
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

fn teardown_leaves_no_link_address_or_rule(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "teardown") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    let clean = node.node_rules();
    let started = Instant::now();
    let pod = node.pod(&network, "a", published(8081));
    note(&format!(
        "setup with a published port: {:?}",
        started.elapsed()
    ));
    let started = Instant::now();
    let other = node.pod(&network, "b", Vec::new());
    note(&format!("namespace and setup: {:?}", started.elapsed()));
    assert_eq!(links(&node).len(), 2);
    assert_eq!(files(&lab.dir.join("n1/networks/coracle")), 2);
    node.block_on(network.check(&other.request)).unwrap();
    let addresses = lab.dir.join("n1/networks/coracle");
    for (pod, left) in [(pod, 1), (other, 0)] {
        let (ns, request) = (pod.ns, pod.request);
        node.block_on(async {
            let started = Instant::now();
            network.teardown(&request).await.unwrap();
            note(&format!("teardown: {:?}", started.elapsed()));
            // As the runtime does: the namespace takes its links with it.
            coracle_netns::unpin(&request.netns).unwrap();
            network.teardown(&request).await.unwrap();
            drop(ns);
            let link = veth::host_name(&request.sandbox_id.0, "eth0");
            eventually("its address follows its link", || {
                !links(&node).contains(&link) && files(&addresses) == left
            })
            .await;
        });
    }
    wait_for("links are gone", || links(&node).is_empty());
    wait_for("its rules are gone", || {
        node.node_rules().lines().count() == clean.lines().count()
    });
}

fn a_published_port_leads_to_the_pod_from_outside_and_from_itself(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "hostport") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8081));
    let client = node.pod(&network, "client", Vec::new());
    let _server = pod.serve("a");
    assert_eq!(
        ask(&outside.ns, "198.18.0.1:8081").unwrap(),
        ("a".into(), outside.address)
    );
    assert_eq!(
        ask(&client.ns, "198.18.0.1:8081").unwrap(),
        ("a".into(), client.address)
    );
    assert_eq!(ask(&pod.ns, "198.18.0.1:8081").unwrap().0, "a");
    assert_eq!(ask(&node.ns, "198.18.0.1:8081").unwrap().0, "a");
    // Known to the next agent, and written again when flushed.
    let next = node.network();
    node.flush_host_ports();
    assert_eq!(
        ask(&outside.ns, "198.18.0.1:8081").unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    node.block_on(next.repair()).unwrap();
    assert_eq!(ask(&outside.ns, "198.18.0.1:8081").unwrap().0, "a");
}

fn pods_are_masqueraded_to_strangers_only(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "strangers") else {
        return;
    };
    let (node, stranger, peer) = (lab.node(1), lab.node(2), lab.node(3));
    let network = node.ready_network();
    node.block_on(network.set_node_addresses(vec![node.address.into(), peer.address.into()]))
        .unwrap();
    peer.ns
        .run(|| crate::harness::ip(&["route", "add", "10.244.1.0/24", "via", "198.18.0.1"]))
        .unwrap();
    let pod = node.pod(&network, "a", Vec::new());
    let _servers = (serve(&stranger.ns, "stranger"), serve(&peer.ns, "peer"));
    assert_eq!(
        ask(&pod.ns, "198.18.0.2:8080").unwrap(),
        ("stranger".into(), node.address)
    );
    assert_eq!(
        ask(&pod.ns, "198.18.0.3:8080").unwrap(),
        ("peer".into(), pod.address)
    );
}

fn the_next_agent_knows_the_network_and_collects_vanished_sandboxes(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "again") else {
        return;
    };
    let node = lab.node(1);
    let network = node.network();
    assert!(matches!(
        network.ready(),
        Err(NetworkError::NotReady { .. })
    ));
    node.block_on(network.set_pod_cidr(node.pod_cidr().parse().unwrap()))
        .unwrap();
    let (kept, gone) = (
        node.pod(&network, "a", Vec::new()),
        node.pod(&network, "b", published(8082)),
    );
    drop(network);
    let next = node.network();
    next.ready().unwrap();
    assert_eq!(
        node.block_on(next.setup(&kept.request)).unwrap(),
        [std::net::IpAddr::from(kept.address)]
    );
    node.block_on(next.gc(std::slice::from_ref(&kept.request.sandbox_id)))
        .unwrap();
    assert_eq!(
        links(&node),
        [veth::host_name(&kept.request.sandbox_id.0, "eth0")]
    );
    assert_eq!(files(&lab.dir.join("n1/networks/coracle")), 1);
    assert!(!node.node_rules().contains("8082"));
    drop(gone);
}

fn udp_clients_of_a_published_port_follow_it_to_the_next_pod(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "hostudp") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let mut udp = published(8081);
    udp[0].protocol = "UDP".into();
    let ask = || {
        ask_udp(&outside.ns, "198.18.0.1:8081", 4444)
            .map(|(server, _)| server)
            .ok()
    };
    // From before there is a pod: nobody answers, and the kernel remembers where the packets went.
    assert_eq!(ask(), None);
    let first = node.pod(&network, "a", udp.clone());
    let serving = first.serve("a");
    wait_for("the first pod", || ask().as_deref() == Some("a"));
    node.block_on(network.teardown(&first.request)).unwrap();
    drop(serving);
    let second = node.pod(&network, "b", udp);
    let _serving = second.serve("b");
    // The same source port all the time: the client keeps its flow alive.
    wait_for("the second pod", || ask().as_deref() == Some("b"));
}

#[test]
fn an_address_is_given_to_nobody_while_its_link_is_there() {
    let Some(lab) = lab("reuse") else { return };
    let node = lab.node(1);
    let network = node.network();
    // Five addresses for pods.
    node.block_on(network.set_pod_cidr("10.244.1.0/29".parse().unwrap()))
        .unwrap();
    let pods: Vec<_> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| node.pod(&network, name, Vec::new()))
        .collect();
    let mut sixth = pods[0].request.clone();
    sixth.sandbox_id.0 = "6".repeat(64);
    sixth.netns = lab.dir.join("ns/n1-sixth");
    let _ns = coracle_netns::NetNs::create(&sixth.netns).unwrap();
    node.block_on(async {
        network.teardown(&pods[0].request).await.unwrap();
        // Its namespace is still there, and its link with it.
        assert!(
            network.setup(&sixth).await.is_err(),
            "the address was given away"
        );
        coracle_netns::unpin(&pods[0].request.netns).unwrap();
        for _ in 0..100 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            if network.setup(&sixth).await.is_ok() {
                break;
            }
        }
    });
    assert!(
        links(&node).contains(&veth::host_name(&sixth.sandbox_id.0, "eth0")),
        "the address is never free again"
    );
    assert_eq!(links(&node).len(), 5);
}

fn an_add_that_nobody_waits_for_any_more_leaves_nothing(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "late") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    let other = node.pod(&network, "a", Vec::new());
    let mut late = other.request.clone();
    late.sandbox_id.0 = "7".repeat(64);
    late.netns = lab.dir.join("ns/n1-late");
    late.port_mappings = published(8081);
    let _ns = coracle_netns::NetNs::create(&late.netns).unwrap();
    node.block_on(async {
        let mut setup = Box::pin(network.setup(&late));
        assert!(futures::poll!(&mut setup).is_pending());
        // As after a timeout: the blocking part goes on.
        drop(setup);
        network.teardown(&late).await.unwrap();
        let addresses = lab.dir.join("n1/networks/coracle");
        eventually("nothing is left of it", || {
            links(&node).len() == 1 && files(&addresses) == 1
        })
        .await;
    });
    // The runtime has waited for the blocking part, which undoes itself where it comes after the
    // teardown.
    assert_eq!(
        links(&node),
        [veth::host_name(&other.request.sandbox_id.0, "eth0")]
    );
    assert_eq!(files(&lab.dir.join("n1/networks/coracle")), 1);
    assert!(!node.node_rules().contains("8081"));
}

#[test]
fn pods_of_the_next_agent_get_the_mtu_of_todays_uplink() {
    let Some(lab) = lab("mtu") else { return };
    let node = lab.node(1);
    let network = || {
        CniNetwork::new(CniConfig {
            conf_dir: None,
            chain_dir: None,
            plugin_dirs: Vec::new(),
            state_dir: lab.dir.join(&node.name),
            cluster_cidrs: Vec::new(),
            bridge: "coracle0".into(),
            mtu: None,
            rules: ProxyMode::Iptables,
            node_ip: Some(node.address.into()),
        })
    };
    let mtu = |network: &CniNetwork, name: &str| {
        node.block_on(network.set_pod_cidr(node.pod_cidr().parse().unwrap()))
            .unwrap();
        let pod = node.pod(network, name, Vec::new());
        pod.ns
            .run(|| Netlink::open().unwrap().link("eth0").unwrap().unwrap().mtu)
            .unwrap()
    };
    assert_eq!(mtu(&network(), "a"), 1500);
    node.ns
        .run(|| crate::harness::ip(&["link", "set", "eth0", "mtu", "1400"]))
        .unwrap();
    assert_eq!(mtu(&network(), "b"), 1400);
    let overlaid = network();
    node.block_on(overlaid.set_overhead(50)).unwrap();
    assert_eq!(mtu(&overlaid, "c"), 1350);
}

#[test]
fn a_bridge_with_another_address_is_told_with_what_to_do() {
    let Some(lab) = lab("bridge") else { return };
    let node = lab.node(1);
    let _pod = node.pod(&node.ready_network(), "a", Vec::new());
    // As after the node's data was deleted while its pods ran.
    let anew = CniNetwork::new(CniConfig {
        conf_dir: None,
        chain_dir: None,
        plugin_dirs: Vec::new(),
        state_dir: lab.dir.join("anew"),
        cluster_cidrs: Vec::new(),
        bridge: "coracle0".into(),
        mtu: None,
        rules: ProxyMode::Iptables,
        node_ip: Some(node.address.into()),
    });
    node.block_on(anew.set_pod_cidr("10.244.9.0/24".parse().unwrap()))
        .unwrap_err();
    let why = anew.ready().unwrap_err().to_string();
    for part in ["already has address", "10.244.9.1", "coracle reset"] {
        assert!(why.contains(part), "{why}");
    }
}
