//! Limits of bandwidth: what passes, what the kernel says of it, and that nothing of it stays.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use coracle_cni::{NetConf, conf::Bandwidth, netlink::Netlink, veth};
use coracle_netns::{NetNs, unpin};

use crate::harness::{Node, Pod};

/// Of 8 Mbit/s: a second.
const BYTES: usize = 1_000_000;
const LIMIT: u64 = 8_000_000;

fn limited(node: &Node, ingress_rate: u64, egress_rate: u64) -> NetConf {
    let mut conf = node.conf();
    conf.runtime_config.bandwidth = Bandwidth {
        ingress_rate,
        egress_rate,
        ..Bandwidth::default()
    };
    conf
}

fn add(node: &Node, pod: &Pod, conf: &NetConf) -> Ipv4Addr {
    let result = node
        .ns
        .run(|| coracle_cni::add(&pod.attachment, conf))
        .unwrap()
        .unwrap();
    match result.addresses()[0] {
        std::net::IpAddr::V4(address) => address,
        other => panic!("{other}"),
    }
}

/// How long it takes to send [`BYTES`] to `address` in `to`.
fn send(from: &NetNs, to: &NetNs, address: Ipv4Addr) -> Duration {
    let listener = to
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 9000)).unwrap())
        .unwrap();
    let mut client = from
        .run(|| TcpStream::connect((address, 9000)).unwrap())
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || client.write_all(&vec![7; BYTES]).unwrap());
        server.read_exact(&mut vec![0; BYTES]).unwrap();
    });
    started.elapsed()
}

fn names(node: &Node, start: &str) -> Vec<String> {
    let links = node.ns.run(|| Netlink::open().unwrap().links().unwrap());
    let names = links.unwrap().into_iter().map(|link| link.name);
    names.filter(|name| name.starts_with(start)).collect()
}

/// Link and bytes a second of every bucket, as the kernel tells them.
fn buckets(node: &Node) -> Vec<(String, u64)> {
    node.ns
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            let links = netlink.links().unwrap();
            let name = |index| {
                links
                    .iter()
                    .find(|l| l.index == index)
                    .unwrap()
                    .name
                    .clone()
            };
            let buckets = netlink.token_buckets().unwrap();
            let mut all: Vec<_> = buckets
                .iter()
                .map(|(on, rate)| (name(*on), *rate))
                .collect();
            all.sort();
            all
        })
        .unwrap()
}

#[test]
fn a_pod_sends_and_receives_no_faster_than_it_may() {
    let Some(node) = Node::new("bandwidth") else {
        return;
    };
    let (slow, free) = (node.pod("slow"), node.pod("free"));
    let conf = limited(&node, LIMIT, LIMIT / 2);
    let address = add(&node, &slow, &conf);
    // Once more, as after an agent's restart.
    assert_eq!(add(&node, &slow, &conf), address);
    let other = add(&node, &free, &node.conf());
    let host = veth::host_name(&slow.attachment.container_id, "eth0");
    assert_eq!(
        buckets(&node),
        [
            (host.clone(), LIMIT / 8),
            (veth::ifb_name(&host), LIMIT / 16)
        ]
    );
    let within = |took: Duration, seconds: f64, what: &str| {
        let took = took.as_secs_f64();
        let (least, most) = (seconds * 0.8, seconds * 2.0 + 0.5);
        assert!((least..most).contains(&took), "{what}: {took} s");
    };
    let quick = |took: Duration, what: &str| assert!(took.as_secs_f64() < 0.5, "{what}: {took:?}");
    let gateway = Ipv4Addr::new(10, 77, 1, 1);
    within(
        send(&node.ns, &slow.ns, address),
        1.0,
        "received from the node",
    );
    within(send(&slow.ns, &node.ns, gateway), 2.0, "sent to the node");
    within(send(&slow.ns, &free.ns, other), 2.0, "sent to a pod");
    quick(send(&node.ns, &free.ns, other), "another pod receives");
    quick(send(&free.ns, &node.ns, gateway), "another pod sends");
    let check = |conf: &NetConf| {
        let checked = node.ns.run(|| coracle_cni::check(&slow.attachment, conf));
        checked.unwrap().map_err(|error| error.to_string())
    };
    check(&conf).unwrap();
    let why = check(&limited(&node, LIMIT, LIMIT)).unwrap_err();
    assert!(why.contains("is not limited to 8000000 bit/s"), "{why}");
}

#[test]
fn nothing_of_a_limit_stays() {
    let Some(node) = Node::new("unlimited") else {
        return;
    };
    let conf = limited(&node, LIMIT, LIMIT);
    let (a, b) = (node.pod("a"), node.pod("b"));
    add(&node, &a, &conf);
    add(&node, &b, &conf);
    assert_eq!(names(&node, "vifb").len(), 2);
    node.del(&a.attachment);
    assert_eq!((names(&node, "vifb").len(), buckets(&node).len()), (1, 2));
    // Its namespace takes the pod's links with it, and nobody asks for the rest.
    unpin(&b.path).unwrap();
    drop(b.ns);
    let started = Instant::now();
    while !names(&node, "veth").is_empty() {
        assert!(started.elapsed() < Duration::from_secs(30));
        thread::yield_now();
    }
    assert_eq!(names(&node, "vifb").len(), 1);
    node.ns
        .run(|| coracle_cni::gc(&node.conf()))
        .unwrap()
        .unwrap();
    assert_eq!(names(&node, "vifb"), [""; 0]);
}

#[test]
fn a_limited_pod_sends_under_no_other_address() {
    let Some(node) = Node::new("limitspoof") else {
        return;
    };
    let pod = node.pod("a");
    let conf = limited(&node, 0, LIMIT);
    add(&node, &pod, &conf);
    let other = Ipv4Addr::new(10, 77, 1, 99);
    let run = |args: &[&str]| {
        let status = std::process::Command::new("ip").args(args).status();
        assert!(status.unwrap().success(), "{args:?}");
    };
    pod.ns
        .run(|| run(&["addr", "add", &format!("{other}/24"), "dev", "eth0"]))
        .unwrap();
    let heard = |from: Ipv4Addr| {
        let listener = node
            .ns
            .run(|| std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9001)).unwrap())
            .unwrap();
        listener
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        pod.ns
            .run(|| {
                let socket = std::net::UdpSocket::bind((from, 0)).unwrap();
                socket.send_to(b"x", (Ipv4Addr::new(10, 77, 1, 1), 9001))
            })
            .unwrap()
            .unwrap();
        listener.recv_from(&mut [0; 8]).is_ok()
    };
    assert!(heard(Ipv4Addr::UNSPECIFIED));
    assert!(!heard(other), "it passed under another address");
}

#[test]
fn a_limit_that_is_none_is_refused() {
    let Some(node) = Node::new("nolimit") else {
        return;
    };
    for rate in [999, 1_000_000_000_000_001] {
        let json = serde_json::to_vec(&limited(&node, rate, 0)).unwrap();
        assert_eq!(NetConf::parse(&json).unwrap_err().code(), 7);
    }
}
