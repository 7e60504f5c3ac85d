//! Everybody reaches every pod under its own address.

use crate::harness::{ask, ask_udp, lab, wait_for};

#[test]
fn pods_and_nodes_reach_every_pod_by_tcp_and_udp() {
    let Some(lab) = lab("reach") else { return };
    let nodes = [lab.node(1), lab.node(2)];
    let networks = [nodes[0].ready_network(), nodes[1].ready_network()];
    let names = [["a", "b"], ["c", "d"]];
    let pods: Vec<_> = (0..2)
        .flat_map(|at| names[at].map(|name| nodes[at].pod(&networks[at], name, Vec::new())))
        .collect();
    let servers: Vec<_> = names
        .as_flattened()
        .iter()
        .zip(&pods)
        .map(|(name, pod)| pod.serve(name))
        .collect();
    lab.register(&[&nodes[0], &nodes[1]]);
    let [first, second] = networks;
    let _routes = (nodes[0].routes(Some(first)), nodes[1].routes(Some(second)));
    let pod_ends = pods.iter().map(|pod| (&pod.ns, pod.address));
    let node_ends = nodes.iter().map(|node| (&node.ns, node.address));
    for (from, own) in pod_ends.chain(node_ends) {
        for (name, pod) in names.as_flattened().iter().zip(&pods) {
            let at = format!("{}:8080", pod.address);
            wait_for("the way", || ask(from, &at).is_ok());
            let answers = [ask(from, &at).unwrap(), ask_udp(from, &at, 0).unwrap()];
            for (server, seen) in answers {
                assert_eq!(server, **name);
                // The node of a pod is seen as the bridge, by its pods alone.
                let is_own_node = nodes.iter().any(|node| node.address == own);
                assert!(is_own_node || seen == own, "{own} was seen as {seen}");
            }
        }
    }
    assert!(servers.iter().all(|server| server.served() >= 12));
}
