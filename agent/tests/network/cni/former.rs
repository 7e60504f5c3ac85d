//! A node's network becomes another's, and the other way round.

use std::{fs, os::unix::fs::PermissionsExt as _};

use coracle_agent::network::{
    PodNetwork as _,
    cni::{CniConfig, CniNetwork},
};
use coracle_netfilter::{
    ProxyMode,
    node::{Envelopes, Overlay},
};
use serde_json::json;

use super::{eventually, files, links, published};
use crate::harness::{CLUSTER_CIDR, Lab, Node, ask, ip, lab, lab_by, output};

/// Of a plugin that gives every pod the same address, and writes down what it is asked for.
fn foreign(lab: &Lab, node: &Node) -> CniNetwork {
    let (nets, bin) = (lab.dir.join("net.d"), lab.dir.join("bin"));
    for dir in [&nets, &bin] {
        fs::create_dir_all(dir).unwrap();
    }
    let log = lab.dir.join("asked");
    let script = format!(
        r#"#!/bin/sh
cat >/dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID" >>{}
echo '{{"ips": [{{"address": "10.77.0.5/32"}}]}}'
"#,
        log.display()
    );
    fs::write(bin.join("other"), script).unwrap();
    fs::set_permissions(bin.join("other"), fs::Permissions::from_mode(0o755)).unwrap();
    let list = json!({"cniVersion": "1.0.0", "name": "other", "plugins": [{"type": "other"}]});
    fs::write(nets.join("1.conflist"), list.to_string()).unwrap();
    CniNetwork::new(CniConfig {
        conf_dir: Some(nets),
        chain_dir: None,
        plugin_dirs: vec![bin],
        state_dir: lab.dir.join(&node.name),
        cluster_cidrs: Vec::new(),
        bridge: "coracle0".into(),
        mtu: None,
        rules: node.mode,
        node_ip: None,
    })
}

fn bridges(node: &Node) -> String {
    node.ns
        .run(|| output("ip", &["-o", "link", "show", "type", "bridge"]))
        .unwrap()
}

#[test]
fn the_own_network_goes_with_its_last_pod_when_another_follows() {
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        goes_with_its_last_pod(mode);
    }
}

fn goes_with_its_last_pod(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "former") else {
        return;
    };
    let node = lab.node(1);
    let own = node.ready_network();
    let (stays, gone) = (
        node.pod(&own, "stays", published(8081)),
        node.pod(&own, "gone", published(8082)),
    );
    let overlay = Overlay::Port(Envelopes {
        pods: CLUSTER_CIDR.parse().unwrap(),
        port: 8472,
        nodes: Some([[198, 18, 1, 2].into()].into()),
    });
    node.ns.run(|| own.set_overlay(overlay).unwrap()).unwrap();
    drop(own);
    let other = foreign(&lab, &node);
    let server = stays.serve("stays");
    node.block_on(async {
        let why = other.ready().unwrap_err().to_string();
        assert!(why.contains("had a network of its own"), "{why}");
        // As an agent that starts: one of them is no more.
        other
            .gc(std::slice::from_ref(&stays.request.sandbox_id))
            .await
            .unwrap();
    });
    drop(gone);
    let why = other.ready().unwrap_err().to_string();
    for part in ["1 of its pods", "coracle0", "coracle reset"] {
        assert!(why.contains(part), "{why}");
    }
    let rules = node.node_rules();
    assert!(rules.contains("8081") && !rules.contains("8082"), "{rules}");
    assert_eq!(ask(&node.ns, "198.18.0.1:8081").unwrap().0, "stays");
    drop(server);
    node.block_on(async {
        other.teardown(&stays.request).await.unwrap();
        coracle_netns::unpin(&stays.request.netns).unwrap();
        drop(stays.ns);
        eventually("it is ready", || other.ready().is_ok()).await;
    });
    assert_eq!(bridges(&node), "");
    assert!(links(&node).is_empty());
    assert_eq!(files(&lab.dir.join("n1/networks/coracle")), 0);
    let rules = node.iptables_save();
    for left in ["CORACLE-", "8081", "8472", "10.244.1.0/24"] {
        assert!(!rules.contains(left), "{left}: {rules}");
    }
    let tables = node.nft(&["list", "tables"]).unwrap();
    assert!(!tables.contains("coracle"), "{tables}");
    // The next start knows nothing of it.
    foreign(&lab, &node).ready().unwrap();
}

#[test]
fn what_another_network_has_attached_is_detached_by_its_plugins() {
    let Some(lab) = lab("detach") else { return };
    let node = lab.node(1);
    let other = foreign(&lab, &node);
    let (_a, a) = node.request("a");
    let (_b, b) = node.request("b");
    node.block_on(async {
        for request in [&a, &b] {
            other.setup(request).await.unwrap();
        }
    });
    let asked = || fs::read_to_string(lab.dir.join("asked")).unwrap();
    let detached = |request: &coracle_agent::network::PodNetworkRequest| {
        asked().contains(&format!("DEL {}", request.sandbox_id))
    };
    // Told neither of its configuration nor of its plugins.
    let own = node.ready_network();
    node.block_on(async {
        own.gc(std::slice::from_ref(&b.sandbox_id)).await.unwrap();
        assert!(detached(&a) && !detached(&b), "{}", asked());
        own.teardown(&b).await.unwrap();
        assert!(detached(&b), "{}", asked());
    });
    assert_eq!(fs::read_dir(lab.dir.join("n1/results")).unwrap().count(), 0);
}

#[test]
fn an_address_that_anothers_link_has_is_told() {
    let Some(lab) = lab("overlap") else { return };
    let node = lab.node(1);
    node.ns
        .run(|| {
            ip(&["link", "add", "cni0", "up", "type", "bridge"]);
            ip(&["addr", "add", "10.244.1.1/24", "dev", "cni0"]);
        })
        .unwrap();
    let own = node.network();
    node.block_on(own.set_pod_cidr(node.pod_cidr().parse().unwrap()))
        .unwrap_err();
    let why = own.ready().unwrap_err().to_string();
    for part in ["cni0", "10.244.1.1/24", "ip link delete"] {
        assert!(why.contains(part), "{why}");
    }
    node.ns.run(|| ip(&["link", "delete", "cni0"])).unwrap();
    node.block_on(own.set_pod_cidr(node.pod_cidr().parse().unwrap()))
        .unwrap();
    own.ready().unwrap();
}
