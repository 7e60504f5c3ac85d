//! One host port for several pods: each on an address, or in a protocol, of its own.

use std::{
    io::Read as _,
    net::{Ipv4Addr, TcpStream},
    os::fd::AsRawFd as _,
};

use coracle_agent::runtime::types::PortMapping;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};

use super::published;
use crate::harness::{ask, ask_udp, lab};

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

#[test]
fn pods_share_a_host_port_by_address_and_protocol() {
    let Some(lab) = lab("shared-hostport") else {
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
