//! What a pod sends under another's name does not arrive.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::fd::AsRawFd as _,
    process::Command,
    time::Duration,
};

use coracle_cni::bridge;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};

use crate::harness::{Node, Pod, talk};

#[test]
fn a_pod_cannot_send_under_anothers_address() {
    let Some(node) = Node::new("spoof") else {
        return;
    };
    let (a, b) = (node.pod("a"), node.pod("b"));
    let (address_a, address_b) = (node.add(&a), node.add(&b));
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    let ip = |pod: &Pod, args: &[&str]| {
        pod.ns
            .run(|| assert!(Command::new("ip").args(args).status().unwrap().success()))
            .unwrap();
    };
    // An address of its own choice.
    ip(&a, &["addr", "add", "10.77.1.99/24", "dev", "eth0"]);
    let from = |source: [u8; 4]| {
        let listener =
            b.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9999)).unwrap())
                .unwrap();
        listener
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        a.ns.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::from(source), 0)).unwrap();
            socket.send_to(b"x", (address_b, 9999)).unwrap();
        })
        .unwrap();
        listener.recv(&mut [0]).is_ok()
    };
    assert!(from(address_a.octets()));
    assert!(!from([10, 77, 1, 99]), "a foreign IPv4 source arrived");
    // A MAC address of its own choice.
    ip(&a, &["link", "set", "eth0", "address", "0a:58:0a:4d:01:63"]);
    assert!(!from(address_a.octets()), "a foreign MAC arrived");
}

/// An Ethernet frame with one UDP packet, after `tag`.
fn udp_frame(from: Ipv4Addr, to: Ipv4Addr, port: u16, tag: &[u8]) -> Vec<u8> {
    let mut frame = [bridge::mac(to), bridge::mac(from)].concat();
    frame.extend_from_slice(tag);
    frame.extend_from_slice(&[0x08, 0x00]);
    let mut header = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend_from_slice(&from.octets());
    header.extend_from_slice(&to.octets());
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(folded).unwrap();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&header);
    // UDP: ports, length, no checksum; one byte.
    frame.extend_from_slice(&[
        0x10,
        0,
        port.to_be_bytes()[0],
        port.to_be_bytes()[1],
        0,
        9,
        0,
        0,
        b'x',
    ]);
    frame
}

#[test]
fn a_tagged_frame_does_not_pass_the_guard() {
    let Some(node) = Node::new("vlan") else {
        return;
    };
    let mut conf = node.conf();
    conf.anti_spoof = true;
    let (a, b) = (node.pod("a"), node.pod("b"));
    let attach = |pod: &Pod| {
        let result = node
            .ns
            .run(|| coracle_cni::add(&pod.attachment, &conf))
            .unwrap()
            .unwrap();
        let IpAddr::V4(address) = result.addresses()[0] else {
            panic!("IPv6")
        };
        address
    };
    let (address_a, address_b) = (attach(&a), attach(&b));
    assert_eq!(talk(&a.ns, &b.ns, address_b), address_a);
    let arrives = |tag: &[u8]| {
        let listener =
            b.ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9999)).unwrap())
                .unwrap();
        listener
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        a.ns.run(|| {
            let links = nix::ifaddrs::getifaddrs()
                .unwrap()
                .filter(|link| link.interface_name == "eth0");
            let link = links
                .filter_map(|link| link.address?.as_link_addr().copied())
                .next()
                .unwrap();
            let raw = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::empty(),
                None,
            )
            .unwrap();
            let frame = udp_frame(address_a, address_b, 9999, tag);
            sendto(raw.as_raw_fd(), &frame, &link, MsgFlags::empty()).unwrap();
        })
        .unwrap();
        listener.recv(&mut [0]).is_ok()
    };
    assert!(arrives(&[]), "the frame itself is right");
    // Priority 0, VLAN 0: the receiver would take it for untagged, the node's rules would not see
    // it at all.
    assert!(
        !arrives(&[0x81, 0x00, 0x00, 0x00]),
        "a priority-tagged frame arrived"
    );
    assert!(
        !arrives(&[0x88, 0xa8, 0x00, 0x00, 0x81, 0x00, 0x00, 0x00]),
        "a twice tagged frame arrived"
    );
}
