//! Messages of the kernel's netfilter subsystems: how they are written, and how what the kernel
//! sends is read. Knows no subsystem.
//!
//! Lengths and kinds are in the machine's byte order, values mostly in the network's. What is cut
//! off or nonsense is no message and no attribute: reading ends there.

use std::{io, net::IpAddr, os::fd::AsFd, time::Duration};

use nix::sys::{socket, time::TimeVal};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
/// Of a dump: what was listed changed meanwhile.
const DUMP_INTERRUPTED: u16 = 0x10;

pub(crate) const AF_UNSPEC: u8 = 0;

/// Of which addresses something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Those of 32 bits.
    Ipv4,
    /// Those of 128 bits.
    Ipv6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// That of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// `AF_*`, and `NFPROTO_*`, which are the same.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }
}

/// `NLA_F_NESTED`, and what is left of a kind without flags.
pub(crate) const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;
/// `struct nlmsghdr`.
const NETLINK_HEADER: usize = 16;
/// The kernel never sends more than 32 KiB in one datagram of a dump.
const RECEIVE_BYTES: usize = 32 * 1024;
/// For each answer. The kernel answers at once, but for what others hold it up with.
const DEADLINE: Duration = Duration::from_secs(10);

/// Appends a netlink attribute: length, kind, value, padding to four bytes.
pub(crate) fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).expect("short values");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Appends a text with its end.
pub(crate) fn text(bytes: &mut Vec<u8>, kind: u16, value: &str) {
    let mut ended = Vec::with_capacity(value.len() + 1);
    ended.extend_from_slice(value.as_bytes());
    ended.push(0);
    attribute(bytes, kind, &ended);
}

/// Appends a number in the network's byte order.
pub(crate) fn number(bytes: &mut Vec<u8>, kind: u16, value: u32) {
    attribute(bytes, kind, &value.to_be_bytes());
}

/// Appends an attribute whose value is attributes.
pub(crate) fn nested(bytes: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
    fill(bytes);
    let length = u16::try_from(bytes.len() - start).expect("short values");
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
}

/// How a message begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) family: u8,
    /// `res_id` of `struct nfgenmsg`.
    pub(crate) resource: u16,
}

/// Appends one message: headers, attributes.
pub(crate) fn message(bytes: &mut Vec<u8>, head: Head, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&head.kind.to_ne_bytes());
    bytes.extend_from_slice(&head.flags.to_ne_bytes());
    bytes.extend_from_slice(&head.sequence.to_ne_bytes());
    // The port: the kernel's.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[head.family, 0]);
    bytes.extend_from_slice(&head.resource.to_be_bytes());
    fill(bytes);
    let length = u32::try_from(bytes.len() - start).expect("messages are built from short values");
    bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
}

/// The messages of a datagram.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

/// What the kernel has sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    /// What was listed changed while it was.
    pub(crate) is_interrupted: bool,
    /// What follows `struct nlmsghdr`.
    pub(crate) body: &'a [u8],
}

impl<'a> Received<'a> {
    /// What follows `struct nfgenmsg`.
    pub(crate) fn attributes(&self) -> &'a [u8] {
        self.body.get(4..).unwrap_or_default()
    }

    /// The outcome that an [`ERROR`] tells.
    pub(crate) fn outcome(&self) -> io::Result<()> {
        match number_at(self.body, 0).map(u32::cast_signed) {
            None | Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(number_at(self.0, 0)?).ok()?;
        let flags = short_at(self.0, 6)?;
        let received = Received {
            kind: short_at(self.0, 4)?,
            sequence: number_at(self.0, 8)?,
            is_interrupted: flags & DUMP_INTERRUPTED != 0,
            body: self.0.get(NETLINK_HEADER..length)?,
        };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(received)
    }
}

/// The attributes of a message, or of another attribute: kind and value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // A length that does not move on would loop for ever.
        let length = usize::from(short_at(self.0, 0)?).max(4);
        let kind = short_at(self.0, 2)? & KIND_MASK;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The value of the first attribute of this kind.
pub(crate) fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    Attributes(attributes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// The text of the first attribute of this kind.
pub(crate) fn find_text(attributes: &[u8], kind: u16) -> Option<String> {
    let value = find(attributes, kind)?;
    let end = value.iter().position(|byte| *byte == 0);
    let value = &value[..end.unwrap_or(value.len())];
    String::from_utf8(value.to_vec()).ok()
}

/// The number of the first attribute of this kind.
pub(crate) fn find_number(attributes: &[u8], kind: u16) -> Option<u32> {
    let value = find(attributes, kind)?.try_into().ok()?;
    Some(u32::from_be_bytes(value))
}

fn short_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// Opens a socket in the calling thread's namespace.
pub(crate) fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let limit = TimeVal::new(DEADLINE.as_secs().cast_signed(), 0);
    socket::setsockopt(&socket.as_fd(), socket::sockopt::ReceiveTimeout, &limit)?;
    Ok(socket)
}

/// Waits for a datagram.
pub(crate) fn receive(socket: &mut Socket) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(RECEIVE_BYTES);
    let (read, _) = socket.recv_from(&mut bytes, 0)?;
    // An empty answer would be asked for again without end.
    if read < NETLINK_HEADER {
        Err(io::ErrorKind::UnexpectedEof.into())
    } else {
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u16, sequence: u32) -> Head {
        Head {
            kind,
            flags: 0,
            sequence,
            family: Family::Ipv4.number(),
            resource: 0,
        }
    }

    #[test]
    fn messages_are_taken_one_by_one() {
        let mut bytes = Vec::new();
        message(&mut bytes, head(7, 1), |body| {
            text(body, 1, "a");
            nested(body, 2, |inner| number(inner, 3, 0x0102_0304));
        });
        message(&mut bytes, head(DONE, 2), |_| {});
        let all: Vec<Received<'_>> = Messages(&bytes).collect();
        let kinds: Vec<_> = all.iter().map(|one| (one.kind, one.sequence)).collect();
        assert_eq!(kinds, [(7, 1), (DONE, 2)]);
        let attributes = all[0].attributes();
        assert_eq!(find_text(attributes, 1).as_deref(), Some("a"));
        let inner = find(attributes, 2).unwrap();
        assert_eq!(find_number(inner, 3), Some(0x0102_0304));
    }

    #[test]
    fn what_is_cut_off_or_nonsense_is_nothing() {
        let mut bytes = Vec::new();
        message(&mut bytes, head(7, 1), |body| text(body, 1, "abc"));
        for length in 0..bytes.len() {
            assert_eq!(Messages(&bytes[..length]).count(), 0, "{length} bytes");
        }
        assert_eq!(Messages(&[255; 20]).count(), 0);
        assert_eq!(find(&[0, 0, 1, 0, 0, 0, 1, 0], 9), None);
        assert_eq!(Attributes(&[255; 9]).count(), 0);
    }
}
