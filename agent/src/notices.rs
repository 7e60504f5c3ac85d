//! What the kernel tells of changes of nftables' rules, which the nft variant of iptables writes,
//! too.

use std::io;

use coracle_telemetry::ErrorChain;
use rtnetlink::sys::{
    AsyncSocket as _, AsyncSocketExt as _, TokioSocket, protocols::NETLINK_NETFILTER,
};

/// `NFNLGRP_NFTABLES`: where all changes are told.
const GROUP: u32 = 7;
/// The kernel tells of many changes at once, of a page's length or two. What is cut off of more may
/// be of any table.
const NOTICE_BYTES: usize = 32 * 1024;
/// `ENOBUFS`: more was told than there is room for.
const LOST: i32 = 105;

/// Those of the namespace of the thread that has begun to listen; none where the kernel tells
/// nothing.
pub(crate) struct Notices {
    socket: Option<TokioSocket>,
    bytes: Vec<u8>,
}

impl Notices {
    pub(crate) fn listen() -> Self {
        let socket = listen().inspect_err(|error| {
            tracing::debug!(error = %ErrorChain(error), "nobody tells of changes of rules");
        });
        Self {
            socket: socket.ok(),
            bytes: Vec::with_capacity(NOTICE_BYTES),
        }
    }

    /// Whether somebody tells.
    pub(crate) fn are_told(&self) -> bool {
        self.socket.is_some()
    }

    /// Waits for the next, as long as somebody tells; else for ever. Loses nothing when it is
    /// dropped.
    pub(crate) async fn next(&mut self) {
        let Some(socket) = &mut self.socket else {
            return std::future::pending().await;
        };
        self.bytes.clear();
        let told = socket.recv(&mut self.bytes).await;
        if let Err(error) = told.as_ref()
            && error.raw_os_error() != Some(LOST)
        {
            tracing::warn!(error = %ErrorChain(error), "nobody tells of changes of rules any more");
            self.socket = None;
        }
        if told.is_err() {
            self.bytes.clear();
        }
    }

    /// The same, for one that may be of one of these tables.
    pub(crate) async fn next_of(&mut self, tables: &[&str]) {
        loop {
            self.next().await;
            if tables.iter().any(|table| may_be_of(&self.bytes, table)) {
                return;
            }
        }
    }
}

/// Names are in notices as they are. Nothing was heard of what is lost.
fn may_be_of(notice: &[u8], table: &str) -> bool {
    notice.is_empty()
        || notice.len() >= NOTICE_BYTES
        || notice
            .windows(table.len())
            .any(|part| part == table.as_bytes())
}

fn listen() -> io::Result<TokioSocket> {
    let mut notices = TokioSocket::new(NETLINK_NETFILTER)?;
    notices.socket_mut().bind_auto()?;
    notices.socket_mut().add_membership(GROUP)?;
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_cut_off_may_be_of_any_table() {
        assert!(may_be_of(b"", "coracle-policy"));
        assert!(may_be_of(b"\x13\0coracle-policy\0", "coracle-policy"));
        assert!(!may_be_of(b"\x0c\0coracle\0", "coracle-policy"));
        assert!(may_be_of(&[0; NOTICE_BYTES], "coracle-policy"));
    }
}
