//! Packets that no socket of a decent program sends.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

use coracle_cni::bridge::mac;
use coracle_netns::NetNs;
use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto,
        setsockopt, socket, sockopt::ReceiveTimeout,
    },
    time::TimeVal,
};

use super::world::PATIENCE;
use crate::harness::wait_for;

pub(super) const UDP: u8 = 17;
const IPV4: [u8; 2] = [0x08, 0x00];
/// In [`Ipv4::fragment`], whose other bits are the offset in units of eight bytes.
pub(super) const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 packet.
pub(super) struct Ipv4<'a> {
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) protocol: u8,
    pub(super) fragment: u16,
    /// Whole words.
    pub(super) options: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl Ipv4<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let words = u8::try_from(5 + self.options.len() / 4).unwrap();
        let length = usize::from(words) * 4 + self.payload.len();
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        let [flags, offset] = self.fragment.to_be_bytes();
        let mut header = vec![
            0x40 | words,
            0,
            high,
            low,
            0x47,
            0x11,
            flags,
            offset,
            64,
            self.protocol,
            0,
            0,
        ];
        header.extend_from_slice(&self.from.octets());
        header.extend_from_slice(&self.to.octets());
        header.extend_from_slice(self.options);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum);
        header.extend_from_slice(self.payload);
        header
    }

    /// Puts it on the link of the pod in `ns`, for whoever has the address `next`.
    pub(super) fn send(&self, ns: &NetNs, next: Ipv4Addr) {
        let addresses = [mac(next), mac(self.from)].concat();
        send(ns, &[&addresses[..], &IPV4, &self.bytes()].concat());
    }
}

/// The Internet's sum of what has zeros in its place.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or_default();
        u32::from(u16::from_be_bytes([pair[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// A datagram without a checksum.
pub(super) fn udp(to: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).unwrap();
    let head = [4444, to, length, 0].map(u16::to_be_bytes).concat();
    [&head[..], data].concat()
}

/// Puts a frame on the pod's link.
pub(super) fn send(ns: &NetNs, frame: &[u8]) {
    ns.run(|| {
        let mut links = nix::ifaddrs::getifaddrs().unwrap();
        let link = links.find_map(|link| {
            let is_it = link.interface_name == "eth0";
            link.address.filter(|_| is_it)?.as_link_addr().copied()
        });
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let raw = socket(family, kind, SockFlag::empty(), None).unwrap();
        let (to, flags) = (link.unwrap(), MsgFlags::empty());
        sendto(raw.as_raw_fd(), frame, &to, flags).unwrap();
    })
    .unwrap();
}

/// Listens on a UDP port of the namespace, has `send` done, and says what came.
pub(super) fn heard(ns: &NetNs, port: u16, send: impl FnOnce()) -> Option<Vec<u8>> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let mut bound = None;
    // Programs that begin have the last one for a moment.
    wait_for("the port", || {
        bound = ns.run(bind).unwrap().ok();
        bound.is_some()
    });
    let listener = bound.unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    send();
    let mut bytes = vec![0; 8192];
    let read = listener.recv(&mut bytes).ok()?;
    bytes.truncate(read);
    Some(bytes)
}

/// The hardware address of a link.
pub(super) fn mac_of(ns: &NetNs, link: &str) -> [u8; 6] {
    let find = || {
        let mut links = nix::ifaddrs::getifaddrs().unwrap();
        links.find_map(|one| {
            let is_it = one.interface_name == link;
            one.address.filter(|_| is_it)?.as_link_addr()?.addr()
        })
    };
    ns.run(find).unwrap().unwrap()
}

/// The first packet of an association.
pub(super) fn sctp_init(to: u16) -> Vec<u8> {
    let mut packet = [4444, to].map(u16::to_be_bytes).concat();
    // No tag yet; the sum is put in below.
    packet.extend_from_slice(&[0; 8]);
    // INIT of 20 bytes: tag, window, streams, first number.
    packet.extend_from_slice(&[1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let mut sum = u32::MAX;
    for byte in &packet {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            // CRC-32C, backwards.
            sum = (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
        }
    }
    packet[8..12].copy_from_slice(&(!sum).to_le_bytes());
    packet
}

/// UDP behind so many headers of options.
pub(super) fn ipv6_options(from: Ipv6Addr, to: Ipv6Addr, options: u8, port: u16) -> Vec<u8> {
    /// For the destination.
    const OPTIONS: u8 = 60;
    let mut datagram = udp(port, b"x");
    let length = u16::try_from(datagram.len()).unwrap();
    let pseudo = [
        &from.octets()[..],
        &to.octets(),
        &[0, 0],
        &length.to_be_bytes(),
        &[0, 0, 0, UDP],
    ];
    let sum = checksum(&[&pseudo.concat()[..], &datagram].concat());
    datagram[6..8].copy_from_slice(&sum);
    let mut headers = Vec::new();
    for left in (0..options).rev() {
        let next = if left == 0 { UDP } else { OPTIONS };
        // Padding of four bytes.
        headers.extend_from_slice(&[next, 0, 1, 4, 0, 0, 0, 0]);
    }
    let length = u16::try_from(headers.len() + datagram.len()).unwrap();
    let next = if options == 0 { UDP } else { OPTIONS };
    let [high, low] = length.to_be_bytes();
    let head = [0x60, 0, 0, 0, high, low, next, 64];
    [&head[..], &from.octets(), &to.octets(), &headers, &datagram].concat()
}

/// Sees what comes in at a namespace's links.
pub(super) struct Sniffer(OwnedFd);

impl Sniffer {
    pub(super) fn new(ns: &NetNs) -> Self {
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        let open = || socket(family, kind, SockFlag::empty(), SockProtocol::EthAll);
        Self(ns.run(open).unwrap().unwrap())
    }

    /// What comes until nothing has for so long.
    pub(super) fn frames(&self, quiet: Duration) -> Vec<Vec<u8>> {
        let limit = TimeVal::new(0, quiet.subsec_micros().into());
        setsockopt(&self.0, ReceiveTimeout, &limit).unwrap();
        let (mut frames, mut frame) = (Vec::new(), [0; 2048]);
        while let Ok(read) = recv(self.0.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            frames.push(frame[..read].to_vec());
        }
        frames
    }

    /// The ports that IPv4 packets of the protocol are for.
    pub(super) fn ports(&self, protocol: u8, quiet: Duration) -> Vec<u16> {
        let frames = self.frames(quiet);
        let is_it =
            |frame: &&Vec<u8>| frame.len() >= 38 && frame[12..14] == IPV4 && frame[23] == protocol;
        let port = |frame: &Vec<u8>| u16::from_be_bytes([frame[36], frame[37]]);
        frames.iter().filter(is_it).map(port).collect()
    }
}

/// Whether an echo comes back.
pub(super) fn echoes(ns: &NetNs, from: IpAddr) -> bool {
    let (family, protocol, [ask, answer], header) = match from {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, [8, 0], 20),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, [128, 129], 0),
    };
    let open = || socket(family, SockType::Raw, SockFlag::empty(), protocol);
    let socket = ns.run(open).unwrap().unwrap();
    let limit = TimeVal::new(0, PATIENCE.subsec_micros().into());
    setsockopt(&socket, ReceiveTimeout, &limit).unwrap();
    let mut request = [ask, 0, 0, 0, 0, 1, 0, 1];
    let sum = checksum(&request);
    // The kernel puts in that of IPv6.
    request[2..4].copy_from_slice(&sum);
    let (fd, to) = (
        socket.as_raw_fd(),
        SockaddrStorage::from(SocketAddr::new(from, 0)),
    );
    sendto(fd, &request, &to, MsgFlags::empty()).unwrap();
    let mut packet = [0; 128];
    while let Ok(read) = recv(fd, &mut packet, MsgFlags::empty()) {
        if packet[..read].get(header) == Some(&answer) {
            return true;
        }
    }
    false
}
