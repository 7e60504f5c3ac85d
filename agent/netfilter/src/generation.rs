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

/// The count at which something was found to be right. Our own changes count on; it is not current
/// any more once somebody else has changed something.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Generation(Option<u32>);

impl Generation {
    /// Of what is looked at from here on.
    pub(crate) fn now() -> Self {
        Self(read().ok())
    }

    /// Whether nobody else has changed anything since. Not where the kernel does not count.
    pub(crate) fn is_current(self) -> bool {
        read().is_ok_and(|now| Some(now) == self.0)
    }

    /// Whether somebody has, or nothing was found to be right yet, as far as the kernel tells.
    pub(crate) fn is_disturbed(self) -> bool {
        read().is_ok_and(|now| Some(now) != self.0)
    }

    /// Makes a change of ours. If somebody else makes one meanwhile, the kernel counts more than
    /// this, and all is looked at again.
    pub(crate) fn change<E>(&mut self, write: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let before = self.is_current().then_some(self.0).flatten();
        self.0 = None;
        write()?;
        self.0 = before.map(|before| before.wrapping_add(1));
        Ok(())
    }
}

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

pub(crate) fn parse(answer: &[u8]) -> Option<u32> {
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
