//! ServiceCIDRs that come and go while Services are used.

use std::{
    io::ErrorKind,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use coracle_netfilter::ProxyMode;
use serde_json::json;

use super::{NEVER, OneNode, one_node};
use crate::{
    fake_api::{service, slice},
    harness::{Lab, ask, lab_by, serve, wait_for},
};

for_each_engine!(
    a_range_that_is_added_is_refused_where_no_service_is,
    a_range_among_which_nodes_are_is_not_refused,
);

/// A Service at this address, port 80, with its one endpoint there.
fn put(lab: &Lab, name: &str, ip: &str, endpoint: &str) {
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    lab.api
        .put("services", service(name, ip, &ports, &json!({})));
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    lab.api
        .put("endpointslices", slice(name, &target, &[(endpoint, "n1")]));
}

fn put_range(lab: &Lab, name: &str, cidr: &str) {
    lab.api.put(
        "servicecidrs",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": name}, "spec": {"cidrs": [cidr]}}),
    );
}

fn a_range_that_is_added_is_refused_where_no_service_is(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "ranges") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    let (endpoint, client) = (pods[0].address.to_string(), &pods[1].ns);
    put(&lab, "first", "10.96.0.10", &endpoint);
    put(&lab, "second", "10.112.0.10", &endpoint);
    let refused = |at: &str| {
        let asked = ask(client, at);
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    let _proxy = node.proxy(NEVER);
    wait_for("a Service works whatever its address", || {
        ask(client, "10.112.0.10:80").is_ok() && ask(client, "10.96.0.10:80").is_ok()
    });
    let empty = ["10.112.0.10:81", "10.112.0.99:80"];
    assert!(!empty.iter().any(|at| refused(at)), "no range is known");
    // This node has no default route.
    assert!(ask(&node.ns, "10.112.0.10:80").is_err());
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for at in ["10.96.0.10:80", "10.112.0.10:80"] {
                    ask(client, at).expect("an answer while ranges change");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        put_range(&lab, "more", "10.112.0.0/24");
        wait_for("refused", || empty.iter().all(|at| refused(at)));
        wait_for("the node has a way", || {
            ask(&node.ns, "10.112.0.10:80").is_ok()
        });
        lab.api.delete("servicecidrs", "", "more");
        wait_for("let go", || !empty.iter().any(|at| refused(at)));
        assert!(refused("10.96.0.10:81") && refused("10.96.0.99:80"));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 10);
}

fn a_range_among_which_nodes_are_is_not_refused(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "wide-range") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let other = lab.far_node(2);
    lab.join_subnets(&[&node, &other]);
    lab.register(&[&node, &other]);
    let _servers = (pods[0].serve("a"), serve(&other.ns, "other"));
    put(&lab, "web", "10.112.0.10", &pods[0].address.to_string());
    put_range(&lab, "nodes", "198.18.1.0/24");
    put_range(&lab, "good", "10.112.0.0/24");
    let _proxy = node.proxy(NEVER);
    wait_for("the good range is in force", || {
        let asked = ask(&pods[1].ns, "10.112.0.10:81");
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    ask(&node.ns, "198.18.1.2:8080").expect("the other node is reached");
}
