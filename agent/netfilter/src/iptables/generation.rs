//! The kernel's count of changes to nftables' rules, which the nft variant of iptables writes.
//!
//! Rules that nobody changed since they were compared need not be read again: this makes looking
//! after thousands of rules free. Knows nothing of legacy iptables.

use std::io;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN`, and its answer `NFT_MSG_NEWGEN`.
const GET: u16 = (10 << 8) | 16;
const NEW: u16 = (10 << 8) | 15;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NFTA_GEN_ID`.
const ID: u16 = 1;
/// A netlink header and `struct nfgenmsg`.
const HEADER: usize = 16 + 4;

/// The count, in the calling thread's namespace.
///
/// # Errors
/// What the socket says; `InvalidData` for an answer of another kind, such as EPERM's.
pub(super) fn read() -> io::Result<u32> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::with_capacity(HEADER);
    request.extend_from_slice(
        &u32::try_from(HEADER)
            .map_err(io::Error::other)?
            .to_ne_bytes(),
    );
    request.extend_from_slice(&GET.to_ne_bytes());
    request.extend_from_slice(&REQUEST.to_ne_bytes());
    // Sequence, port, nfgenmsg.
    request.resize(HEADER, 0);
    socket.send(&request, 0)?;
    let mut answer = Vec::with_capacity(1024);
    socket.recv_from(&mut answer, 0)?;
    parse(&answer)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no generation in the answer"))
}

fn parse(answer: &[u8]) -> Option<u32> {
    let short = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if short(4)? != NEW {
        return None;
    }
    let mut at = HEADER;
    loop {
        let (length, kind) = (usize::from(short(at)?), short(at + 2)?);
        if kind == ID {
            return Some(u32::from_be_bytes(
                answer.get(at + 4..at + 8)?.try_into().ok()?,
            ));
        }
        // A length that does not move on would loop for ever.
        at += length.max(4).next_multiple_of(4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_other_kinds_and_cut_off_ones_are_none() {
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&NEW.to_ne_bytes());
        assert_eq!(parse(&answer), None);
        answer.extend_from_slice(&8_u16.to_ne_bytes());
        answer.extend_from_slice(&ID.to_ne_bytes());
        answer.extend_from_slice(&[0, 0, 0, 7]);
        assert_eq!(parse(&answer), Some(7));
        answer[4] = 2;
        assert_eq!(parse(&answer), None);
        assert_eq!(parse(&[]), None);
    }
}
