//! Limits by annotation on the own network.

use coracle_agent::network::{PodNetwork as _, PodNetworkRequest};
use coracle_cni::{netlink::Netlink, veth};

use super::{eventually, files};
use crate::harness::{Node, lab, wait_for};

const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

fn annotated(with: &[(&str, &str)]) -> impl FnOnce(&mut PodNetworkRequest) {
    let with = with.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let with = with.collect();
    move |request| request.annotations = with
}

/// Bytes a second of every limit, and how many links there are for what pods send.
fn limits(node: &Node) -> (Vec<u64>, usize) {
    node.ns
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            let buckets = netlink.token_buckets().unwrap();
            let mut rates: Vec<u64> = buckets.into_iter().map(|(_, rate)| rate).collect();
            rates.sort_unstable();
            let links = netlink.links().unwrap();
            let of_limits = links.iter().filter(|link| link.name.starts_with("vifb"));
            (rates, of_limits.count())
        })
        .unwrap()
}

#[test]
fn annotations_limit_a_pod_and_its_end_the_limits() {
    let Some(lab) = lab("bandwidth") else { return };
    let node = lab.node(1);
    let network = node.ready_network();
    let both = annotated(&[(INGRESS, "8M"), (EGRESS, "1Mi")]);
    let pod = node.try_pod(&network, "a", both).unwrap();
    let vanishes = node
        .try_pod(&network, "b", annotated(&[(EGRESS, "16M")]))
        .unwrap();
    node.pod(&network, "c", Vec::new());
    assert_eq!(limits(&node), (vec![131_072, 1_000_000, 2_000_000], 2));
    node.block_on(network.check(&pod.request)).unwrap();
    let addresses = lab.dir.join("n1/networks/coracle");
    node.block_on(async {
        let (ns, request) = (pod.ns, pod.request);
        network.teardown(&request).await.unwrap();
        coracle_netns::unpin(&request.netns).unwrap();
        drop(ns);
        eventually("its address and its limits go", || {
            files(&addresses) == 2 && limits(&node) == (vec![2_000_000], 1)
        })
        .await;
    });
    // Gone while no agent ran: the next one finds what is left.
    let link = veth::host_name(&vanishes.request.sandbox_id.0, "eth0");
    coracle_netns::unpin(&vanishes.request.netns).unwrap();
    drop(vanishes.ns);
    wait_for("its link goes", || !super::links(&node).contains(&link));
    assert_eq!(limits(&node), (vec![2_000_000], 1));
    node.block_on(node.ready_network().gc(&[])).unwrap();
    assert_eq!(limits(&node), (Vec::new(), 0));
}

#[test]
fn a_limit_that_makes_no_sense_fails_the_pod_in_upstreams_words() {
    let Some(lab) = lab("bandwidthbad") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    for (value, why) in [
        ("1", "resource is unreasonably small (< 1kbit)"),
        ("2P", "resource is unreasonably large (> 1Pbit)"),
        ("fast", "quantities must match the regular expression"),
    ] {
        let name = format!("p{value}");
        let refused = node.try_pod(&network, &name, annotated(&[(EGRESS, value)]));
        let Err(error) = refused else {
            panic!("{value} is a limit")
        };
        let (told, start) = (error.to_string(), "reading pod bandwidth annotations: ");
        assert!(told.starts_with(&format!("{start}{why}")), "{told}");
        assert_eq!(files(&lab.dir.join("n1/networks/coracle")), 0);
    }
}
