//! Host ports beside others: several pods at one, each on an address, or in a protocol, of its own;
//! and the node's own daemons.

use std::{
    io::Read as _,
    net::{Ipv4Addr, TcpStream},
    os::fd::AsRawFd as _,
};

use coracle_agent::runtime::types::PortMapping;
use coracle_netfilter::ProxyMode;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};

use super::published;
use crate::harness::{ask, ask_udp, lab_by, serve};

const PORT: u16 = 54323;

fn on(host_ip: &str, protocol: &str) -> Vec<PortMapping> {
    let mut port = published(PORT);
    port[0].host_ip = host_ip.into();
    port[0].protocol = protocol.into();
    port
}

/// Who answers at 127.0.0.1 a client of this address.
fn ask_loopback_as(client: Ipv4Addr) -> String {
    let family = AddressFamily::Inet;
    let one = socket(family, SockType::Stream, SockFlag::empty(), None).unwrap();
    let [a, b, c, d] = client.octets();
    bind(one.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
    connect(one.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, PORT)).unwrap();
    let mut answer = String::new();
    TcpStream::from(one).read_to_string(&mut answer).unwrap();
    answer.split(' ').next().unwrap().to_owned()
}

for_each_engine!(
    pods_share_a_host_port_by_address_and_protocol,
    a_published_port_leaves_the_nodes_own_daemons_to_their_local_clients,
    loopback_of_the_node_is_not_routed,
);

fn pods_share_a_host_port_by_address_and_protocol(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "shared-hostport") else {
        return;
    };
    let (node, outside) = (lab.node(1), lab.node(2));
    let network = node.ready_network();
    let own = node.address.to_string();
    let pods = [
        node.pod(&network, "pod1", on("127.0.0.1", "TCP")),
        node.pod(&network, "pod2", on(&own, "TCP")),
        node.pod(&network, "pod3", on(&own, "UDP")),
    ];
    let names = ["pod1", "pod2", "pod3"];
    let _servers: Vec<_> = names
        .iter()
        .zip(&pods)
        .map(|(name, pod)| pod.serve(name))
        .collect();
    let at = format!("{own}:{PORT}");
    assert_eq!(
        node.ns.run(|| ask_loopback_as(node.address)).unwrap(),
        "pod1"
    );
    for from in [&node.ns, &outside.ns] {
        assert_eq!(ask(from, &at).unwrap().0, "pod2");
        assert_eq!(ask_udp(from, &at, 0).unwrap().0, "pod3");
    }
}

fn a_published_port_leaves_the_nodes_own_daemons_to_their_local_clients(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "daemon") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    let pod = node.pod(&network, "a", published(8080));
    let (_server, _daemon) = (pod.serve("pod"), serve(&node.ns, "daemon"));
    assert_eq!(ask(&node.ns, "127.0.0.1:8080").unwrap().0, "daemon");
    assert_eq!(ask(&node.ns, "198.18.0.1:8080").unwrap().0, "pod");
}

/// CVE-2020-8558: published ports and Services work without ever routing 127.0.0.0/8, so no
/// neighbour reaches what listens on the node's loopback only.
fn loopback_of_the_node_is_not_routed(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "loopback") else {
        return;
    };
    let node = lab.node(1);
    let network = node.ready_network();
    let _pod = node.pod(&network, "a", published(8081));
    let routed = node.ns.run(|| {
        let links = std::fs::read_dir("/proc/sys/net/ipv4/conf")
            .unwrap()
            .flatten();
        let values = links.map(|link| {
            (
                link.file_name(),
                std::fs::read_to_string(link.path().join("route_localnet")),
            )
        });
        values
            .filter(|(_, value)| value.as_ref().unwrap().trim() != "0")
            .map(|(link, _)| link)
            .collect::<Vec<_>>()
    });
    assert!(routed.unwrap().is_empty());
}
