//! Networks of others on two nodes, in the shape of flannel and of Calico: what they make is left
//! alone, and the cluster works on it.

#[path = "foreign_networks/ground.rs"]
mod ground;
#[path = "foreign_networks/pods.rs"]
mod pods;

use std::{fs, time::Duration};

use coracle_tests::{cluster::Cluster, is_root_or_skip, kubectl::PATIENCE, wait};

use self::{
    ground::{Ground, bird, flanneld, made_by},
    pods::Pods,
};

/// A node says how its network is within this: its agent asks each 5 s, and tells each 10.
const TOLD: Duration = Duration::from_secs(40);

#[test]
fn a_network_in_the_shape_of_flannel_works() {
    if !is_root_or_skip() {
        return;
    }
    let ground = Ground::new("flannel");
    let mut cluster = ground.cluster(&[]);
    let kubectl = cluster.kubectl();
    // As the daemon reads it from the API.
    let subnets = ["n1", "n2"].map(|node| {
        wait::until("the node's range", PATIENCE, || {
            let cidr = kubectl.run(&format!("get node {node} -o jsonpath={{.spec.podCIDR}}"));
            Some(cidr.stdout)
                .filter(|cidr| !cidr.is_empty())
                .ok_or(cidr.stderr)
        })
    });
    for node in ["n1", "n2"] {
        ground.not_ready(&kubectl, node, "no usable CNI configuration");
        let env = ground.state(&cluster, node).join("subnet.env");
        let flannel = serde_json::json!({
            "type": "flannel", "subnetFile": env,
            "dataDir": ground.state(&cluster, node).join("flannel"),
            "ipamDir": ground.state(&cluster, node).join("ipam"),
            "delegate": {"bridge": "cni0", "hairpinMode": true, "isDefaultGateway": true},
        });
        ground.configure(&cluster, node, "cbr0", &[flannel]);
        // Its daemon has not come yet.
        ground.not_ready(&kubectl, node, "subnet.env");
    }
    let runs = |cluster: &Cluster, mode: &str| {
        for (at, node) in ["n1", "n2"].iter().enumerate() {
            let mtu = if mode == "vxlan" { 1450 } else { 1500 };
            let env = format!(
                "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET={}\nFLANNEL_MTU={mtu}\nFLANNEL_IPMASQ=true\n",
                subnets[at]
            );
            fs::write(ground.state(cluster, node).join("subnet.env"), env).expect("subnet.env");
            let there = [&*cluster.nodes[1 - at].address, &*subnets[1 - at]];
            flanneld(cluster, node, mode, there);
        }
    };
    runs(&cluster, "host-gw");
    wait::until("the nodes are ready", TOLD, || {
        let ready = cluster.ready_nodes(&kubectl);
        (ready.len() == 2).then_some(()).ok_or(ready)
    });
    let made = |cluster: &Cluster| made_by(cluster, &["FLANNEL", "flannel", "proto static"]);
    let before = made(&cluster);
    let pods = Pods::start(&kubectl);
    for (pod, subnet) in [("web-n1", &subnets[0]), ("web-n2", &subnets[1])] {
        pods.is_in(pod, subnet);
    }
    pods.reach_each_other(&cluster);
    pods.are_held_to_policies(&cluster);
    ground.agents_come_and_go(&mut cluster, &pods);
    pods.reach_each_other(&cluster);
    assert_eq!(made(&cluster), before, "what others made is as it was");
    ground.nothing_own(&cluster);
    // The daemon takes another way between the nodes.
    runs(&cluster, "vxlan");
    let before = made(&cluster);
    pods.reach_each_other(&cluster);
    ground.a_network_that_fails_is_told(&cluster, &kubectl, "subnet.env");
    let reserved = |node| ground.state(&cluster, node).join("ipam/cbr0");
    pods.end(&cluster, ["n1", "n2"].map(reserved));
    assert_eq!(made(&cluster), before);
    ground.leaves_nothing_own(&mut cluster);
}

#[test]
fn a_network_in_the_shape_of_calico_works() {
    if !is_root_or_skip() {
        return;
    }
    // Blocks that are not what the nodes' `podCIDR` says.
    const BLOCKS: [&str; 2] = ["10.99.200.64/26", "10.99.200.128/26"];
    let ground = Ground::new("calico");
    let mut cluster = ground.cluster(&["--cluster-cidr", "10.99.0.0/16"]);
    let kubectl = cluster.kubectl();
    for (at, node) in ["n1", "n2"].into_iter().enumerate() {
        let calico = serde_json::json!({
            "type": "calico", "block": BLOCKS[at],
            "datastore": ground.state(&cluster, node).join("datastore"),
            "dataDir": ground.state(&cluster, node).join("ipam"),
        });
        ground.configure(&cluster, node, "k8s-pod-network", &[calico]);
        ground.not_ready(&kubectl, node, "error getting ClusterInformation");
        fs::write(ground.state(&cluster, node).join("datastore"), "").expect("datastore");
        let there = [&*cluster.nodes[1 - at].address, BLOCKS[1 - at]];
        bird(&cluster, node, BLOCKS[at], there);
    }
    wait::until("the nodes are ready", TOLD, || {
        let ready = cluster.ready_nodes(&kubectl);
        (ready.len() == 2).then_some(()).ok_or(ready)
    });
    let made = |cluster: &Cluster| made_by(cluster, &["cali-", "proto bird"]);
    let before = made(&cluster);
    let pods = Pods::start(&kubectl);
    for (pod, block) in [("web-n1", BLOCKS[0]), ("web-n2", BLOCKS[1])] {
        pods.is_in(pod, block);
    }
    pods.reach_each_other(&cluster);
    pods.are_held_to_policies(&cluster);
    ground.agents_come_and_go(&mut cluster, &pods);
    pods.reach_each_other(&cluster);
    ground.a_network_that_fails_is_told(&cluster, &kubectl, "datastore");
    assert_eq!(made(&cluster), before, "what others made is as it was");
    ground.nothing_own(&cluster);
    let reserved = |node| ground.state(&cluster, node).join("ipam");
    pods.end(&cluster, ["n1", "n2"].map(reserved));
    assert_eq!(made(&cluster), before);
    ground.leaves_nothing_own(&mut cluster);
}
