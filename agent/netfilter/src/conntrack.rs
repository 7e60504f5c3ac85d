//! The kernel's table of connections: lists and deletes UDP flows, by netlink.
//!
//! A UDP "connection" lives in the table as long as packets come, and is translated as its first
//! packet was. Lists IPv4 only; knows nothing of Services or pods: who calls decides which flows
//! are wrong.

use std::{io, net::IpAddr};

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_CTNETLINK << 8`, and `IPCTNL_MSG_CT_{NEW,GET,DELETE}`.
const NEW: u16 = 1 << 8;
const GET: u16 = (1 << 8) | 1;
const DELETE: u16 = (1 << 8) | 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
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
/// `NLA_F_NESTED`, and what is left of a type without flags.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const UDP: u8 = 17;
/// A netlink header and `struct nfgenmsg`.
const HEADER: usize = 16 + 4;
/// The kernel never sends more than 32 KiB in one datagram of a dump.
const RECEIVE_BYTES: usize = 32 * 1024;
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
    let mut socket = open()?;
    let mut request = Vec::with_capacity(HEADER);
    message(&mut request, GET, NLM_F_REQUEST | NLM_F_DUMP, AF_INET, &[]);
    socket.send(&request, 0)?;
    let mut flows = Vec::new();
    loop {
        let bytes = receive(&mut socket)?;
        for (kind, body) in Messages(&bytes) {
            match kind {
                NEW => flows.extend(body.get(4..).and_then(parse).filter(&mut wanted)),
                NLMSG_DONE => return Ok(flows),
                NLMSG_ERROR => failure(body)?,
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
    let mut socket = open()?;
    let (mut deleted, mut outcome) = (0, Ok(()));
    for chunk in flows.chunks(DELETIONS) {
        let mut request = Vec::new();
        for flow in chunk {
            message(
                &mut request,
                DELETE,
                NLM_F_REQUEST | NLM_F_ACK,
                family(flow),
                &tuple(flow),
            );
        }
        socket.send(&request, 0)?;
        let mut answers = 0;
        while answers < chunk.len() {
            let bytes = receive(&mut socket)?;
            for (_, body) in Messages(&bytes).filter(|(kind, _)| *kind == NLMSG_ERROR) {
                answers += 1;
                match failure(body) {
                    Ok(()) => deleted += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
        }
    }
    outcome.map(|()| deleted)
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn receive(socket: &mut Socket) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(RECEIVE_BYTES);
    let (read, _) = socket.recv_from(&mut bytes, 0)?;
    // An empty answer would be asked for again without end.
    if read < 16 {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(bytes)
    }
}

/// The errno of an answer, 0 for success.
fn failure(body: &[u8]) -> io::Result<()> {
    let code = body
        .get(..4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i32::from_ne_bytes);
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code.saturating_neg()))
    }
}

fn family(flow: &Flow) -> u8 {
    if flow.destination.is_ipv4() {
        AF_INET
    } else {
        AF_INET6
    }
}

/// Appends one message: header, `struct nfgenmsg`, attributes.
fn message(bytes: &mut Vec<u8>, kind: u16, flags: u16, family: u8, attributes: &[u8]) {
    let length = u32::try_from(HEADER + attributes.len()).expect("one tuple");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    // Sequence and port; version and resource.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, 0, 0, 0]);
    bytes.extend_from_slice(attributes);
}

fn tuple(flow: &Flow) -> Vec<u8> {
    let mut ip = Vec::new();
    address(&mut ip, [IP_SRC, IP6_SRC], flow.source);
    address(&mut ip, [IP_DST, IP6_DST], flow.destination);
    let mut proto = Vec::new();
    attribute(&mut proto, PROTO_NUM, &[UDP]);
    attribute(&mut proto, PROTO_SRC_PORT, &flow.source_port.to_be_bytes());
    attribute(
        &mut proto,
        PROTO_DST_PORT,
        &flow.destination_port.to_be_bytes(),
    );
    let mut tuple = Vec::new();
    attribute(&mut tuple, TUPLE_IP | NESTED, &ip);
    attribute(&mut tuple, TUPLE_PROTO | NESTED, &proto);
    let mut all = Vec::new();
    attribute(&mut all, TUPLE_ORIG | NESTED, &tuple);
    attribute(&mut all, ID, &flow.id.to_be_bytes());
    all
}

/// Appends an address under the kind of its family.
fn address(bytes: &mut Vec<u8>, [v4, v6]: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(address) => attribute(bytes, v4, &address.octets()),
        IpAddr::V6(address) => attribute(bytes, v6, &address.octets()),
    }
}

/// Appends a netlink attribute: length, kind, value, padding to four bytes.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).expect("short values");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
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

/// The value of the first attribute of this kind.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let short = |at: usize| {
            Some(u16::from_ne_bytes(
                attributes.get(at..at + 2)?.try_into().ok()?,
            ))
        };
        // A length that does not move on would loop for ever.
        let length = usize::from(short(0)?).max(4);
        if short(2)? & TYPE_MASK == kind {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

/// The messages of a datagram: kind, and what follows the netlink header.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32::from_ne_bytes(self.0.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(self.0.get(4..6)?.try_into().ok()?);
        let body = self.0.get(16..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    }
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
        let mut attributes = tuple(flow);
        let (mut ip, mut reply) = (Vec::new(), Vec::new());
        address(&mut ip, [IP_SRC, IP6_SRC], flow.answers_from);
        attribute(&mut reply, TUPLE_IP | NESTED, &ip);
        attribute(&mut attributes, TUPLE_REPLY | NESTED, &reply);
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
        assert_eq!(find(&[0, 0, 1, 0, 0, 0, 1, 0], 9), None);
        assert_eq!(Messages(&[255; 20]).count(), 0);
    }

    #[test]
    fn messages_are_taken_one_by_one() {
        let mut bytes = Vec::new();
        message(&mut bytes, NEW, 0, AF_INET, &listed(&flows()[0]));
        message(&mut bytes, NLMSG_DONE, 0, AF_INET, &[]);
        let kinds: Vec<u16> = Messages(&bytes).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [NEW, NLMSG_DONE]);
    }
}
