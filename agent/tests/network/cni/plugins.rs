//! Plugins of others, as a distribution has them.

use std::{path::Path, time::Instant};

use coracle_agent::network::{
    NetworkError, PodNetwork as _,
    cni::{CniConfig, CniNetwork},
};

use super::{files, links, published};
use crate::harness::{Lab, Node, ask, lab, note, wait_for};

/// A network of Debian's plugins on `node`, if they are installed.
fn debian(lab: &Lab, node: &Node) -> Option<CniNetwork> {
    let plugins = Path::new("/usr/lib/cni");
    if !plugins.join("bridge").is_file() {
        assert!(
            std::env::var_os("REQUIRE_ROOT").is_none(),
            "install containernetworking-plugins"
        );
        note("skipped: needs the package containernetworking-plugins");
        return None;
    }
    let conf_dir = lab.dir.join("net.d");
    std::fs::create_dir_all(&conf_dir).unwrap();
    let conf = serde_json::json!({
        "cniVersion": "1.0.0", "name": "debian", "plugins": [
            {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
             "ipam": {"type": "host-local", "dataDir": lab.dir.join("host-local"),
                      "ranges": [[{"subnet": node.pod_cidr()}]], "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]
    });
    std::fs::write(conf_dir.join("10-debian.conflist"), conf.to_string()).unwrap();
    Some(CniNetwork::new(CniConfig {
        conf_dir: Some(conf_dir),
        chain_dir: None,
        plugin_dirs: vec![plugins.to_owned()],
        state_dir: lab.dir.join(&node.name),
        cluster_cidrs: Vec::new(),
        bridge: String::new(),
        mtu: None,
        rules: coracle_netfilter::ProxyMode::Iptables,
        node_ip: None,
    }))
}

#[test]
fn debians_bridge_host_local_and_portmap_work() {
    let Some(lab) = lab("debian") else { return };
    let (node, outside) = (lab.node(1), lab.node(2));
    let Some(network) = debian(&lab, &node) else {
        return;
    };
    network.ready().unwrap();
    let started = Instant::now();
    let a = node.pod(&network, "a", published(8081));
    note(&format!(
        "ADD of three executed plugins: {:?}",
        started.elapsed()
    ));
    let b = node.pod(&network, "b", Vec::new());
    let _server = a.serve("a");
    assert_eq!(
        ask(&b.ns, &format!("{}:8080", a.address)).unwrap(),
        ("a".into(), b.address)
    );
    assert_eq!(ask(&outside.ns, "198.18.0.1:8081").unwrap().0, "a");
    // Not the other one: portmap 1.1.1 looks for IPv6 rules that an IPv4 network does not have.
    node.block_on(network.check(&b.request)).unwrap();
    // The same sandbox again, as after an agent's restart, gets what it has.
    assert_eq!(
        node.block_on(network.setup(&a.request)).unwrap(),
        [std::net::IpAddr::from(a.address)]
    );
    node.block_on(network.teardown(&a.request)).unwrap();
    node.block_on(network.teardown(&a.request)).unwrap();
    coracle_netns::unpin(&b.request.netns).unwrap();
    drop(b.ns);
    node.block_on(network.gc(&[])).unwrap();
    wait_for("links are gone", || links(&node).is_empty());
    assert_eq!(files(&lab.dir.join("host-local/debian")), 0);
    assert!(!node.iptables_save().contains("8081"));
}

#[test]
fn a_plugins_error_is_told_and_undone() {
    let Some(lab) = lab("error") else { return };
    let node = lab.node(1);
    let Some(network) = debian(&lab, &node) else {
        return;
    };
    let full = lab.dir.join("net.d/10-debian.conflist");
    let text = std::fs::read_to_string(&full)
        .unwrap()
        .replace("10.244.1.0/24", "not-a-subnet");
    std::fs::write(&full, text).unwrap();
    let mut pod = node.pod(&node.ready_network(), "other", Vec::new()).request;
    pod.sandbox_id.0 = "f".repeat(64);
    let error = node.block_on(network.setup(&pod)).unwrap_err();
    assert!(
        matches!(&error, NetworkError::Plugin { plugin, command: "ADD", .. } if plugin == "bridge"),
        "{error}"
    );
    // Once the configuration is corrected, the sandbox can go.
    let corrected = std::fs::read_to_string(&full)
        .unwrap()
        .replace("not-a-subnet", "10.244.1.0/24");
    std::fs::write(&full, corrected).unwrap();
    node.block_on(network.teardown(&pod)).unwrap();
    assert_eq!(
        std::fs::read_dir(lab.dir.join("n1/results"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_missing_plugin_or_configuration_is_not_ready() {
    let Some(lab) = lab("notready") else { return };
    let node = lab.node(1);
    let Some(network) = debian(&lab, &node) else {
        return;
    };
    std::fs::write(
        lab.dir.join("net.d/01-x.conf"),
        r#"{"cniVersion":"1.0.0","name":"x","type":"no-such-plugin"}"#,
    )
    .unwrap();
    assert!(
        network
            .ready()
            .unwrap_err()
            .to_string()
            .contains("no-such-plugin")
    );
    std::fs::remove_dir_all(lab.dir.join("net.d")).unwrap();
    assert!(network.ready().unwrap_err().to_string().contains("net.d"));
}
