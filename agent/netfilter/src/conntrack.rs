//! The kernel's table of connections: lists and deletes UDP flows, by netlink.
//!
//! A UDP "connection" lives in the table as long as packets come, and is translated as its first
//! packet was. Lists IPv4 only; knows nothing of Services or pods: who calls decides which flows
//! are wrong.

use std::{io, net::IpAddr};

use crate::netlink::{
    self, ACK, AF_INET, AF_INET6, DONE, DUMP, ERROR, Head, Messages, REQUEST, attribute, find,
    message, nested,
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
const UDP: u8 = 17;
/// Deletions in one message: their answers fit into any receive buffer.
const DELETIONS: usize = 64;

/// A UDP flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Who sent the first packet.
    pub source: IpAddr,
    /// Where to, before translation.
    pub destination: IpAddr,
    /// The sender's port.
    pub source_port: u16,
    /// The port before translation.
    pub destination_port: u16,
    /// Who answers: where the packets are really sent to.
    pub answers_from: IpAddr,
    /// Tells this flow from a later one with the same addresses.
    id: u32,
}

impl Flow {
    /// A flow that the kernel does not know; for tests.
    #[must_use]
    pub fn new(from: (IpAddr, u16), to: (IpAddr, u16), answers_from: IpAddr) -> Self {
        let ((source, source_port), (destination, destination_port)) = (from, to);
        Self {
            source,
            destination,
            source_port,
            destination_port,
            answers_from,
            id: 0,
        }
    }
}

/// The UDP flows of the calling thread's namespace that `wanted` chooses.
///
/// # Errors
/// What the socket or the kernel says; `EOPNOTSUPP` or `EINVAL` without `NF_CT_NETLINK`.
pub fn udp_flows(mut wanted: impl FnMut(&Flow) -> bool) -> io::Result<Vec<Flow>> {
    let mut socket = netlink::open()?;
    let mut request = Vec::new();
    message(&mut request, head(GET, DUMP, AF_INET), |_| {});
    socket.send(&request, 0)?;
    let mut flows = Vec::new();
    loop {
        let bytes = netlink::receive(&mut socket)?;
        for one in Messages(&bytes) {
            match one.kind {
                NEW => flows.extend(parse(one.attributes()).filter(&mut wanted)),
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
            message(&mut request, head(DELETE, ACK, family(flow)), |body| {
                tuple(body, flow);
            });
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

fn head(kind: u16, flags: u16, family: u8) -> Head {
    Head {
        kind,
        flags: REQUEST | flags,
        sequence: 0,
        family,
        resource: 0,
    }
}

fn family(flow: &Flow) -> u8 {
    if flow.destination.is_ipv4() {
        AF_INET
    } else {
        AF_INET6
    }
}

fn tuple(bytes: &mut Vec<u8>, flow: &Flow) {
    nested(bytes, TUPLE_ORIG, |tuple| {
        nested(tuple, TUPLE_IP, |ip| {
            address(ip, [IP_SRC, IP6_SRC], flow.source);
            address(ip, [IP_DST, IP6_DST], flow.destination);
        });
        nested(tuple, TUPLE_PROTO, |proto| {
            attribute(proto, PROTO_NUM, &[UDP]);
            attribute(proto, PROTO_SRC_PORT, &flow.source_port.to_be_bytes());
            attribute(proto, PROTO_DST_PORT, &flow.destination_port.to_be_bytes());
        });
    });
    attribute(bytes, ID, &flow.id.to_be_bytes());
}

/// Appends an address under the kind of its family.
fn address(bytes: &mut Vec<u8>, [v4, v6]: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(address) => attribute(bytes, v4, &address.octets()),
        IpAddr::V6(address) => attribute(bytes, v6, &address.octets()),
    }
}

fn parse(attributes: &[u8]) -> Option<Flow> {
    let (original, reply) = (
        find(attributes, TUPLE_ORIG)?,
        find(attributes, TUPLE_REPLY)?,
    );
    let proto = find(original, TUPLE_PROTO)?;
    if find(proto, PROTO_NUM)?.first() != Some(&UDP) {
        return None;
    }
    let ip = |tuple, [v4, v6]: [u16; 2]| {
        let ip = find(tuple, TUPLE_IP)?;
        match find(ip, v4) {
            Some(octets) => Some(IpAddr::from(<[u8; 4]>::try_from(octets).ok()?)),
            None => Some(IpAddr::from(<[u8; 16]>::try_from(find(ip, v6)?).ok()?)),
        }
    };
    let port = |kind| Some(u16::from_be_bytes(find(proto, kind)?.try_into().ok()?));
    Some(Flow {
        source: ip(original, [IP_SRC, IP6_SRC])?,
        destination: ip(original, [IP_DST, IP6_DST])?,
        source_port: port(PROTO_SRC_PORT)?,
        destination_port: port(PROTO_DST_PORT)?,
        answers_from: ip(reply, [IP_SRC, IP6_SRC])?,
        id: u32::from_be_bytes(find(attributes, ID)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each family.
    fn flows() -> [Flow; 2] {
        let flow = |from: &str, to: &str, answers: &str| {
            let ip = |text: &str| text.parse().expect("an address");
            Flow {
                id: 7,
                ..Flow::new((ip(from), 4000), (ip(to), 53), ip(answers))
            }
        };
        [
            flow("10.1.0.5", "10.96.0.10", "10.1.0.9"),
            flow("fd00::5", "fd01::10", "fd00::9"),
        ]
    }

    /// As the kernel would list it, with the reply's tuple after the rest.
    fn listed(flow: &Flow) -> Vec<u8> {
        let mut attributes = Vec::new();
        tuple(&mut attributes, flow);
        nested(&mut attributes, TUPLE_REPLY, |reply| {
            nested(reply, TUPLE_IP, |ip| {
                address(ip, [IP_SRC, IP6_SRC], flow.answers_from);
            });
        });
        attributes
    }

    #[test]
    fn what_is_written_is_read_back() {
        for flow in flows() {
            assert_eq!(parse(&listed(&flow)), Some(flow));
        }
    }

    #[test]
    fn cut_off_answers_are_no_flows() {
        for flow in flows() {
            let whole = listed(&flow);
            for length in 0..whole.len() {
                assert_eq!(parse(&whole[..length]), None, "{length} bytes");
            }
        }
    }
}
