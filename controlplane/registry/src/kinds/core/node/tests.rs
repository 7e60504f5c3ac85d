use super::*;
use crate::testing::{create_errors, created, update_errors, updated, with};

fn node() -> Value {
    json!({"metadata": {"name": "n1"}, "spec": {}, "status": {"capacity": {"cpu": "2"}}})
}

#[test]
fn a_node_brings_its_status() {
    let node = created(&Node, node());
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
    assert_eq!(value::len(&node["status"]["nodeInfo"]), 10);
    assert_eq!(
        updated(&Node, with(&node, "/status", json!({})), &node)["status"],
        node["status"]
    );
}

#[test]
fn cidr_and_list_stay_in_step() {
    let one = created(&Node, with(&node(), "/spec/podCIDR", json!("10.0.0.0/24")));
    assert_eq!(one["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    let many = created(
        &Node,
        with(&node(), "/spec/podCIDRs", json!(["10.0.1.0/24"])),
    );
    assert_eq!(many["spec"]["podCIDR"], "10.0.1.0/24");
}

#[test]
fn nodes_are_checked() {
    for (pointer, value, expect) in [
        (
            "/spec/taints",
            json!([{"key": "a"}]),
            "metadata.taints[0].effect: Required value",
        ),
        (
            "/spec/taints",
            json!([{"key": "a", "effect": "X"}]),
            "metadata.taints[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            "/spec/taints",
            json!([{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]),
            "metadata.taints[1]: Duplicate value: {\"effect\":\"NoExecute\",\"key\":\"a\"}: taints must be unique by key and effect pair",
        ),
        (
            "/status/capacity",
            json!({"pods": "1.5"}),
            "[status.capacity.pods: Invalid value: \"1.5\": must be an integer, status.allocatable.pods: Invalid value: \"1.5\": must be an integer]",
        ),
        (
            "/spec/podCIDRs",
            json!(["x"]),
            "spec.podCIDRs[0]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ),
    ] {
        assert_eq!(create_errors(&Node, with(&node(), pointer, value)), expect);
    }
}

#[test]
fn cidr_is_set_once() {
    let old = created(&Node, with(&node(), "/spec/podCIDR", json!("10.0.0.0/24")));
    let mut new = with(&old, "/spec/podCIDR", json!("10.0.1.0/24"));
    new["spec"]["podCIDRs"] = json!(["10.0.1.0/24"]);
    assert_eq!(
        update_errors(&Node, new, &old),
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"
    );
    assert_eq!(
        update_errors(&Node, old.clone(), &created(&Node, node())),
        ""
    );
}

#[test]
fn rows_show_readiness_roles_and_addresses() {
    let node = json!({
        "metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "db", "a": "b"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "osImage": "Debian", "kernelVersion": "6.18", "containerRuntimeVersion": "c://1"},
        },
    });
    assert_eq!(
        json!(Node.row(&node, 0)),
        json!([
            "n1",
            "Ready,SchedulingDisabled",
            "control-plane,db",
            "<unknown>",
            "v1.37.0",
            "10.0.0.1",
            "<none>",
            "Debian",
            "6.18",
            "c://1"
        ])
    );
    for (conditions, expect) in [
        (json!([]), "Unknown"),
        (json!([{"type": "Ready", "status": "Unknown"}]), "NotReady"),
        (json!([{"type": "Ready", "status": "False"}]), "NotReady"),
    ] {
        assert_eq!(
            Node.row(&json!({"status": {"conditions": conditions}}), 0)[1],
            expect
        );
    }
    assert_eq!(Node.field(&node, "spec.unschedulable"), "true");
}

#[test]
fn a_taint_is_there_once_and_an_old_identity_stays() {
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    let errors = create_errors(&Node, with(&node(), "/spec/taints", json!([taint, taint])));
    assert_eq!(
        errors,
        "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique by key and effect pair"
    );
    let old = created(&Node, node());
    let new = with(&old, "/spec/externalID", json!("x"));
    let expected = "spec.externalID: Forbidden: may not be updated";
    assert_eq!(update_errors(&Node, new, &old), expected);
}
