//! The kernel's table of connections: lists and deletes flows, by netlink.
//!
//! A "connection" lives in the table as long as packets come, is translated as its first packet
//! was, and passes where its first packet did. Knows nothing of Services or pods: who calls
//! decides which flows are wrong.

mod table;

use std::{io, net::IpAddr};

pub use self::table::{Table, table};
use crate::{
    netlink::{
        self, ACK, DONE, DUMP, ERROR, Family, Head, Messages, NESTED, REQUEST, attribute, find,
        message,
    },
    service::Protocol,
};

/// `NFNL_SUBSYS_CTNETLINK << 8`, and `IPCTNL_MSG_CT_{NEW,GET,DELETE}`.
const NEW: u16 = 1 << 8;
const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
/// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_ID`.
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
/// `CTA_TUPLE_IP`, `CTA_TUPLE_PROTO`.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
/// `CTA_IP_V4_SRC`, `CTA_IP_V4_DST`, and the same of IPv6.
const IP_SRC: u16 = 1;
const IP_DST: u16 = 2;
const IP6_SRC: u16 = 3;
const IP6_DST: u16 = 4;
/// `CTA_PROTO_NUM`, `CTA_PROTO_SRC_PORT`, `CTA_PROTO_DST_PORT`.
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
/// Deletions in one message: their answers fit into any receive buffer.
const DELETIONS: usize = 64;

/// A flow of packets between two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The transport's number: `IPPROTO_UDP` and others.
    pub protocol: u8,
    /// Who sent the first packet.
    pub source: IpAddr,
    /// Where to, before translation.
    pub destination: IpAddr,
    /// The sender's port; 0 where the transport has none.
    pub source_port: u16,
    /// The port before translation.
    pub destination_port: u16,
    /// Who answers: where the packets are really sent to.
    pub answers_from: IpAddr,
    /// The port there.
    pub answering_port: u16,
    /// As the kernel knows it.
    tuple: Vec<u8>,
    /// Tells this flow from a later one with the same addresses.
    id: u32,
}

impl Flow {
    /// A flow of UDP that the kernel does not know; for tests.
    #[must_use]
    pub fn new(from: (IpAddr, u16), to: (IpAddr, u16), answers_from: IpAddr) -> Self {
        let ((source, source_port), (destination, destination_port)) = (from, to);
        Self {
            protocol: Protocol::Udp.number(),
            source,
            destination,
            source_port,
            destination_port,
            answers_from,
            answering_port: destination_port,
            tuple: Vec::new(),
            id: 0,
        }
    }

    fn write_deletion(&self, request: &mut Vec<u8>) {
        let head = head(DELETE, ACK, Family::of(self.destination));
        message(request, head, |body| {
            attribute(body, TUPLE_ORIG | NESTED, &self.tuple);
            attribute(body, ID, &self.id.to_be_bytes());
        });
    }
}

/// The IPv4 UDP flows that `wanted` chooses.
///
/// # Errors
/// As [`flows`].
pub fn udp_flows(mut wanted: impl FnMut(&Flow) -> bool) -> io::Result<Vec<Flow>> {
    let udp = Protocol::Udp.number();
    flows(Family::Ipv4, |flow| flow.protocol == udp && wanted(flow))
}

/// The flows of one family, in the calling thread's namespace, that `wanted` chooses.
///
/// # Errors
/// What the socket or the kernel says; `EOPNOTSUPP` or `EINVAL` without `NF_CT_NETLINK`.
pub fn flows(family: Family, mut wanted: impl FnMut(&Flow) -> bool) -> io::Result<Vec<Flow>> {
    let mut socket = netlink::open()?;
    let mut request = Vec::new();
    message(&mut request, head(GET, DUMP, family), |_| {});
    socket.send(&request, 0)?;
    let mut flows = Vec::new();
    loop {
        let bytes = netlink::receive(&mut socket)?;
        for one in Messages(&bytes) {
            match one.kind {
                NEW => flows.extend(parse(one.attributes(), &mut wanted)),
                DONE => return Ok(flows),
                ERROR => one.outcome()?,
                _ => {}
            }
        }
    }
}

/// Deletes flows; those that ended meanwhile count as deleted. Returns how many the kernel still
/// had.
///
/// # Errors
/// The first answer that is neither success nor absence; the rest is tried all the same.
pub fn delete(flows: &[Flow]) -> io::Result<usize> {
    let mut socket = netlink::open()?;
    let (mut deleted, mut outcome) = (0, Ok(()));
    for chunk in flows.chunks(DELETIONS) {
        let mut request = Vec::new();
        for flow in chunk {
            flow.write_deletion(&mut request);
        }
        socket.send(&request, 0)?;
        let mut answers = 0;
        while answers < chunk.len() {
            let bytes = netlink::receive(&mut socket)?;
            for one in Messages(&bytes).filter(|one| one.kind == ERROR) {
                answers += 1;
                match one.outcome() {
                    Ok(()) => deleted += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        }
    }
    outcome.map(|()| deleted)
}

fn head(kind: u16, flags: u16, family: Family) -> Head {
    Head {
        kind,
        flags: REQUEST | flags,
        sequence: 0,
        family: family.number(),
        resource: 0,
    }
}

fn parse(attributes: &[u8], wanted: impl FnOnce(&Flow) -> bool) -> Option<Flow> {
    let (original, reply) = (
        find(attributes, TUPLE_ORIG)?,
        find(attributes, TUPLE_REPLY)?,
    );
    let ip = |tuple, [v4, v6]: [u16; 2]| {
        let ip = find(tuple, TUPLE_IP)?;
        match find(ip, v4) {
            Some(octets) => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?)),
            None => Some(IpAddr::from(<[u8; 16]>::try_from(find(ip, v6)?).ok()?)),
        }
    };
    let (sent, answered) = (find(original, TUPLE_PROTO)?, find(reply, TUPLE_PROTO)?);
    // ICMP has none.
    let port = |proto, kind| match find(proto, kind) {
        Some(port) => Some(u16::from_be_bytes(port.try_into().ok()?)),
        None => Some(0),
    };
    let mut flow = Flow {
        protocol: *find(sent, PROTO_NUM)?.first()?,
        source: ip(original, [IP_SRC, IP6_SRC])?,
        destination: ip(original, [IP_DST, IP6_DST])?,
        source_port: port(sent, PROTO_SRC_PORT)?,
        destination_port: port(sent, PROTO_DST_PORT)?,
        answers_from: ip(reply, [IP_SRC, IP6_SRC])?,
        answering_port: port(answered, PROTO_SRC_PORT)?,
        tuple: Vec::new(),
        id: u32::from_be_bytes(find(attributes, ID)?.try_into().ok()?),
    };
    if !wanted(&flow) {
        return None;
    }
    flow.tuple = original.to_vec();
    Some(flow)
}

/// What a list has is deleted by what the list said of it.
#[cfg(feature = "fuzzing")]
pub(crate) fn check(listed: &netlink::Received<'_>) {
    let Some(flow) = parse(listed.attributes(), |_| true) else {
        return;
    };
    let mut request = Vec::new();
    flow.write_deletion(&mut request);
    let mut written = Messages(&request);
    let deletion = written.next().expect("one message");
    assert!(written.next().is_none());
    let tuple = find(deletion.attributes(), TUPLE_ORIG);
    assert_eq!(tuple, find(listed.attributes(), TUPLE_ORIG));
    assert_eq!(
        find(deletion.attributes(), ID),
        Some(&flow.id.to_be_bytes()[..])
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nested;

    const TCP: u8 = 6;
    const ICMP: u8 = 1;

    fn address(bytes: &mut Vec<u8>, [v4, v6]: [u16; 2], address: IpAddr) {
        match address {
            IpAddr::V4(address) => attribute(bytes, v4, &address.octets()),
            IpAddr::V6(address) => attribute(bytes, v6, &address.octets()),
        }
    }

    /// One direction as the kernel lists it.
    fn tuple(protocol: u8, from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
        let mut bytes = Vec::new();
        nested(&mut bytes, TUPLE_IP, |ip| {
            address(ip, [IP_SRC, IP6_SRC], from.0);
            address(ip, [IP_DST, IP6_DST], to.0);
        });
        nested(&mut bytes, TUPLE_PROTO, |proto| {
            attribute(proto, PROTO_NUM, &[protocol]);
            if protocol != ICMP {
                attribute(proto, PROTO_SRC_PORT, &from.1.to_be_bytes());
                attribute(proto, PROTO_DST_PORT, &to.1.to_be_bytes());
            }
        });
        bytes
    }

    /// A flow, and the message that lists it.
    fn listed(protocol: u8, [from, to, answers]: [&str; 3]) -> (Flow, Vec<u8>) {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let has_ports = protocol != ICMP;
        let port = |port| if has_ports { port } else { 0 };
        let original = tuple(protocol, (ip(from), 4000), (ip(to), 53));
        let reply = tuple(protocol, (ip(answers), 5353), (ip(from), 4000));
        let mut attributes = Vec::new();
        attribute(&mut attributes, TUPLE_ORIG | NESTED, &original);
        attribute(&mut attributes, TUPLE_REPLY | NESTED, &reply);
        attribute(&mut attributes, ID, &7_u32.to_be_bytes());
        let flow = Flow {
            protocol,
            source: ip(from),
            destination: ip(to),
            source_port: port(4000),
            destination_port: port(53),
            answers_from: ip(answers),
            answering_port: port(5353),
            tuple: original,
            id: 7,
        };
        (flow, attributes)
    }

    fn examples() -> [(Flow, Vec<u8>); 3] {
        [
            listed(
                Protocol::Udp.number(),
                ["10.1.0.5", "10.96.0.10", "10.1.0.9"],
            ),
            listed(TCP, ["fd00::5", "fd01::10", "fd00::9"]),
            listed(ICMP, ["10.1.0.5", "10.1.0.9", "10.1.0.9"]),
        ]
    }

    #[test]
    fn flows_are_read_with_what_deletes_them() {
        for (flow, message) in examples() {
            assert_eq!(parse(&message, |_| true), Some(flow));
        }
    }

    #[test]
    fn cut_off_answers_are_no_flows() {
        for (_, whole) in examples() {
            for length in 0..whole.len() {
                assert_eq!(parse(&whole[..length], |_| true), None, "{length} bytes");
            }
        }
    }
}
