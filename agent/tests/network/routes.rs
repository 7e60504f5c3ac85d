//! Routes to other nodes.

use serde_json::{Value, json};

use crate::harness::{Node, lab, output, wait_for};

fn object(name: &str, address: &str, pod_cidr: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

fn routes(node: &Node) -> String {
    node.ns.run(|| output("ip", &["route", "show"])).unwrap()
}

#[test]
fn routes_follow_the_nodes_and_foreign_ones_stay() {
    let Some(lab) = lab("routes") else { return };
    let node = lab.node(1);
    node.ns.run(|| crate::harness::ip(&["route", "add", "10.50.0.0/24", "via", "198.18.0.9"])).unwrap();
    lab.api.put("nodes", object("n1", "198.18.0.1", "10.244.1.0/24"));
    lab.api.put("nodes", object("n2", "198.18.0.2", "10.244.2.0/24"));
    lab.api.put("nodes", object("far", "203.0.113.3", "10.244.3.0/24"));
    let running = node.routes(None);
    let second = "10.244.2.0/24 via 198.18.0.2 dev eth0 proto 67";
    wait_for("the neighbour's route", || routes(&node).contains(second));
    let all = routes(&node);
    assert!(!all.contains("10.244.1.0/24") && !all.contains("10.244.3.0/24"), "{all}");
    // Removed by hand: repaired.
    node.ns.run(|| crate::harness::ip(&["route", "del", "10.244.2.0/24"])).unwrap();
    wait_for("repaired", || routes(&node).contains(second));
    // A node that is gone while nobody watches.
    drop(running);
    assert!(routes(&node).contains(second));
    lab.api.delete("nodes", "", "n2");
    lab.api.put("nodes", object("n4", "198.18.0.4", "10.244.4.0/24"));
    let _running = node.routes(None);
    wait_for("gone and come", || {
        let all = routes(&node);
        !all.contains("10.244.2.0/24") && all.contains("10.244.4.0/24 via 198.18.0.4")
    });
    assert!(routes(&node).contains("10.50.0.0/24 via 198.18.0.9"));
}
