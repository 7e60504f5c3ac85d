//! What a runtime asks for by name: the program as `cnitool` calls it.

use std::process::Output;

use coracle_cni::{NetConf, netlink::Netlink};
use serde_json::{Value, json};

use crate::harness::{Node, Pod, talk};

fn call(node: &Node, pod: &Pod, command: &str, asked: &Value) -> Output {
    let mut conf = serde_json::to_value(node.conf()).unwrap();
    conf["runtimeConfig"] = asked.clone();
    node.call(pod, command, conf.to_string().as_bytes())
}

#[track_caller]
fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pod_has_the_address_and_the_mac_that_are_asked_for() {
    let Some(node) = Node::new("asked") else {
        return;
    };
    let (a, b, c) = (node.pod("a"), node.pod("b"), node.pod("c"));
    let asked = json!({"ips": ["10.77.1.42/24"], "mac": "c2:11:22:33:44:55"});
    let added = call(&node, &a, "ADD", &asked);
    let result = said(&added);
    assert!(added.status.success(), "{result}");
    assert_eq!(result["ips"][0]["address"], "10.77.1.42/24");
    assert_eq!(result["interfaces"][2]["mac"], "c2:11:22:33:44:55");
    let link = || Netlink::open().unwrap().link("eth0").unwrap().unwrap();
    assert_eq!(
        a.ns.run(link).unwrap().address,
        [0xc2, 0x11, 0x22, 0x33, 0x44, 0x55]
    );
    // What it sends is not taken for another's.
    let address_b = node.add(&b);
    let address_a = [10, 77, 1, 42].into();
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    assert_eq!(talk(&b.ns, &a.ns, address_a), address_b);
    assert!(call(&node, &a, "CHECK", &asked).status.success());
    assert!(call(&node, &a, "ADD", &asked).status.success());
    // Another has it, or the pod has another.
    let refused = |pod, asked: &Value| {
        let output = call(&node, pod, "ADD", asked);
        assert!(!output.status.success());
        said(&output)
    };
    let taken = refused(&c, &asked);
    assert_eq!(taken["code"], 105, "{taken}");
    let why = taken["msg"].as_str().unwrap();
    assert!(why.contains(&a.attachment.container_id), "{why}");
    assert_eq!(refused(&a, &json!({"ips": ["10.77.1.43"]}))["code"], 105);
    assert_eq!(refused(&c, &json!({"ips": ["10.78.1.43"]}))["code"], 7);
    assert_eq!(node.ports().len(), 2);
    assert_eq!(node.reservations().len(), 2);
    for other in [
        json!({"ips": ["10.77.1.43"]}),
        json!({"mac": "c2:11:22:33:44:56"}),
    ] {
        let checked = call(&node, &a, "CHECK", &other);
        assert_eq!(said(&checked)["code"], 103, "{other}");
    }
    // Free again, for whoever asks.
    assert!(call(&node, &a, "DEL", &asked).status.success());
    assert!(call(&node, &c, "ADD", &asked).status.success());
}

#[test]
fn others_are_not_given_what_one_has_asked_for() {
    let Some(node) = Node::new("asked-next") else {
        return;
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let mut conf = node.conf();
    conf.runtime_config = serde_json::from_value(json!({"ips": ["10.77.1.3"]})).unwrap();
    let add = |pod: &Pod, conf: &NetConf| {
        let added = node.ns.run(|| coracle_cni::add(&pod.attachment, conf));
        added.unwrap().unwrap().addresses()[0].to_string()
    };
    let small = |conf: &NetConf| {
        let mut conf = conf.clone();
        conf.ipam.range_start = Some([10, 77, 1, 2].into());
        conf.ipam.range_end = Some([10, 77, 1, 3].into());
        conf
    };
    assert_eq!(add(&a, &small(&conf)), "10.77.1.3");
    assert_eq!(add(&b, &small(&node.conf())), "10.77.1.2");
}
