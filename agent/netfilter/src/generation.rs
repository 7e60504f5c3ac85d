//! The kernel's count of changes to nftables' rules, which the nft variant of iptables writes, too.
//!
//! Rules that nobody changed since they were compared need not be read again: this makes looking
//! after thousands of rules free. Knows nothing of legacy iptables.

use std::io;

use rtnetlink::sys::Socket;

use crate::netlink::{self, AF_UNSPEC, Head, Messages, REQUEST, find_number, message};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN`, and its answer `NFT_MSG_NEWGEN`.
const GET: u16 = (10 << 8) | 16;
const NEW: u16 = (10 << 8) | 15;
/// `NFTA_GEN_ID`.
const ID: u16 = 1;

/// The count, in the calling thread's namespace.
///
/// # Errors
/// What the socket says; `InvalidData` for an answer of another kind, such as EPERM's.
pub(crate) fn read() -> io::Result<u32> {
    read_by(&mut netlink::open()?)
}

/// The count, in the namespace of the socket.
pub(crate) fn read_by(socket: &mut Socket) -> io::Result<u32> {
    let mut request = Vec::new();
    let head = Head {
        kind: GET,
        flags: REQUEST,
        sequence: 0,
        family: AF_UNSPEC,
        resource: 0,
    };
    message(&mut request, head, |_| {});
    socket.send(&request, 0)?;
    parse(&netlink::receive(socket)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no generation in the answer"))
}

fn parse(answer: &[u8]) -> Option<u32> {
    let answer = Messages(answer).next().filter(|one| one.kind == NEW)?;
    find_number(answer.attributes(), ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_other_kinds_and_cut_off_ones_are_none() {
        let answer = |kind, fill: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            let head = Head {
                kind,
                flags: 0,
                sequence: 0,
                family: AF_UNSPEC,
                resource: 0,
            };
            message(&mut bytes, head, |body| fill(body));
            bytes
        };
        let id = |body: &mut Vec<u8>| netlink::number(body, ID, 7);
        assert_eq!(parse(&answer(NEW, &|_| {})), None);
        assert_eq!(parse(&answer(NEW, &id)), Some(7));
        assert_eq!(parse(&answer(netlink::ERROR, &id)), None);
        assert_eq!(parse(&[]), None);
    }
}
