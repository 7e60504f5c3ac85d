//! A pod on each node that is there from the beginning to the end: it starts once.

use coracle_tests::machines::{Machines, Node};
use serde_json::json;

/// What a pod says each time that it starts.
const STARTED: &str = "started\n";

fn name(node: &Node) -> String {
    format!("steady-{}", node.name)
}

/// Starts them, each where it has to be by the scheduler's word.
pub(super) fn start(machines: &Machines) {
    let kubectl = machines.kubectl(0);
    for node in &machines.nodes {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name(node)},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node.name},
                "containers": [{"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", "echo started; exec sleep 36000"]}],
            },
        });
        let made = kubectl.apply_text(&["create"], &pod.to_string());
        assert_eq!(made.code, 0, "{made:?}");
    }
    for node in &machines.nodes {
        kubectl.pod_ready(&name(node));
    }
}

/// By their own word; what the API says of restarts is looked at with all other pods'.
pub(super) fn each_has_started_once(machines: &Machines) {
    for node in &machines.nodes {
        let said = machines.kubectl(0).ok(&format!("logs {}", name(node)));
        assert_eq!(said, STARTED, "{}", node.name);
    }
}
