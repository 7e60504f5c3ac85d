//! Plugins of others after the own network's.

use std::{fs, path::Path};

use coracle_agent::network::{
    PodNetwork as _,
    cni::{CniConfig, CniNetwork},
};
use serde_json::{Value, json};

use super::{eventually, files, links};
use crate::harness::{Lab, Node, ask, lab, note};

/// The own network, written into a directory of the lab for others. `None`: not written.
fn network(lab: &Lab, node: &Node, chain_dir: Option<&Path>) -> CniNetwork {
    let network = CniNetwork::new(CniConfig {
        conf_dir: None,
        chain_dir: chain_dir.map(Path::to_owned),
        plugin_dirs: vec!["/usr/lib/cni".into()],
        state_dir: lab.dir.join(&node.name),
        cluster_cidrs: Vec::new(),
        bridge: "coracle0".into(),
        mtu: None,
        rules: coracle_netfilter::ProxyMode::Iptables,
        node_ip: Some(node.address.into()),
    });
    node.block_on(network.set_pod_cidr(node.pod_cidr().parse().unwrap()))
        .unwrap();
    network
}

/// Appends a plugin to the file, as an installer does.
fn append(file: &Path, plugin: Value) {
    let mut list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    list["plugins"].as_array_mut().unwrap().push(plugin);
    fs::write(file, list.to_string()).unwrap();
}

#[test]
fn plugins_of_others_follow_the_own_network() {
    let Some(lab) = lab("chain") else { return };
    if !Path::new("/usr/lib/cni/tuning").is_file() {
        assert!(
            std::env::var_os("REQUIRE_ROOT").is_none(),
            "install containernetworking-plugins"
        );
        note("skipped: needs the package containernetworking-plugins");
        return;
    }
    let node = lab.node(1);
    let dir = lab.dir.join("net.d");
    let file = dir.join("10-coracle.conflist");
    let chained = network(&lab, &node, Some(&dir));
    chained.ready().unwrap();
    let before = node.pod(&chained, "before", Vec::new());
    append(
        &file,
        json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "321"}}),
    );
    // In the network's folder, as version 1.1 of the specification has it.
    fs::create_dir_all(dir.join("coracle")).unwrap();
    let beside = json!({"type": "tuning", "sysctl": {"net.ipv4.tcp_syncookies": "0"}});
    fs::write(dir.join("coracle/9.conf"), beside.to_string()).unwrap();
    chained.ready().unwrap();
    let pod = node.pod(&chained, "a", Vec::new());
    let sysctl = |ns: &coracle_netns::NetNs, name: &str| {
        let file = format!("/proc/sys/{name}");
        let read = ns.run(move || fs::read_to_string(file).unwrap());
        read.unwrap().trim().to_owned()
    };
    let of = |ns| {
        let names = ["net/core/somaxconn", "net/ipv4/tcp_syncookies"];
        names.map(|name| sysctl(ns, name))
    };
    assert_eq!(of(&pod.ns), ["321", "0"]);
    assert_ne!(of(&before.ns)[0], "321");
    let _server = pod.serve("a");
    let answer = ask(&before.ns, &format!("{}:8080", pod.address)).unwrap();
    assert_eq!(answer, ("a".into(), before.address));
    // The next agent, which finds the file as others have left it.
    let next = network(&lab, &node, Some(&dir));
    node.block_on(next.check(&pod.request)).unwrap();
    node.block_on(next.check(&before.request)).unwrap();
    let again = node.block_on(next.setup(&pod.request)).unwrap();
    assert_eq!(again, [std::net::IpAddr::from(pod.address)]);
    let addresses = lab.dir.join("n1/networks/coracle");
    node.block_on(async {
        for gone in [pod, before] {
            next.teardown(&gone.request).await.unwrap();
            coracle_netns::unpin(&gone.request.netns).unwrap();
            drop(gone.ns);
        }
        eventually("links and addresses go", || {
            links(&node).is_empty() && files(&addresses) == 0
        })
        .await;
    });
    network(&lab, &node, None).ready().unwrap();
    assert!(!file.exists(), "nobody follows it any more");
}

#[test]
fn a_pod_that_a_later_plugin_refuses_leaves_nothing() {
    let Some(lab) = lab("chainfail") else { return };
    let node = lab.node(1);
    let dir = lab.dir.join("net.d");
    let file = dir.join("10-coracle.conflist");
    let chained = network(&lab, &node, Some(&dir));
    append(&file, json!({"type": "no-such-plugin"}));
    let why = chained.ready().unwrap_err().to_string();
    assert!(why.contains("no-such-plugin"), "{why}");
    let addresses = lab.dir.join("n1/networks/coracle");
    let (ns, request) = node.request("a");
    node.block_on(async {
        let why = chained.setup(&request).await.unwrap_err().to_string();
        assert!(why.contains("no-such-plugin"), "{why}");
        coracle_netns::unpin(&request.netns).unwrap();
        drop(ns);
        eventually("link and address go", || {
            links(&node).is_empty() && files(&addresses) == 0
        })
        .await;
    });
    // Broken by somebody, and told.
    fs::write(&file, "{").unwrap();
    let why = chained.ready().unwrap_err().to_string();
    assert!(why.contains("10-coracle.conflist"), "{why}");
}
