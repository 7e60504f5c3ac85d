//! How full the table is.

use std::{fs, io};

use super::head;
use crate::netlink::{self, DONE, DUMP, ERROR, Family, Messages, find_number, message};

/// `IPCTNL_MSG_CT_GET_STATS_CPU`: an answer for each processor.
const GET_STATISTICS: u16 = (1 << 8) | 4;
/// `CTA_STATS_DROP`.
const DROPPED: u16 = 10;

const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const MOST: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// How full the table is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Table {
    /// Connections in it.
    pub count: u64,
    /// As many as may be in it; 0: no bound.
    pub most: u64,
    /// Packets that were dropped for want of room, or because they came at once, since it is there.
    pub dropped: u64,
}

impl Table {
    /// How full it is, in hundredths.
    #[must_use]
    pub fn percent(&self) -> u64 {
        match self.most {
            0 => 0,
            most => self.count.saturating_mul(100) / most,
        }
    }
}

/// Of the calling thread's namespace.
///
/// # Errors
/// `NotFound` while the kernel follows no connection; what the socket or the kernel says.
pub fn table() -> io::Result<Table> {
    Ok(Table {
        count: number(COUNT)?,
        most: number(MOST)?,
        dropped: dropped()?,
    })
}

fn number(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let malformed = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{path} has {text:?}"));
    text.trim().parse().map_err(malformed)
}

fn dropped() -> io::Result<u64> {
    let mut socket = netlink::open()?;
    let mut request = Vec::new();
    message(
        &mut request,
        head(GET_STATISTICS, DUMP, Family::Ipv4),
        |_| {},
    );
    socket.send(&request, 0)?;
    let mut dropped = 0;
    loop {
        let bytes = netlink::receive(&mut socket)?;
        for one in Messages(&bytes) {
            match one.kind {
                GET_STATISTICS => {
                    dropped += u64::from(find_number(one.attributes(), DROPPED).unwrap_or(0));
                }
                DONE => return Ok(dropped),
                ERROR => one.outcome()?,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_a_bound_is_never_full() {
        let table = |count, most| Table {
            count,
            most,
            dropped: 0,
        };
        assert_eq!(table(7, 0).percent(), 0);
        assert_eq!(table(0, 10).percent(), 0);
        assert_eq!(table(9, 10).percent(), 90);
        assert_eq!(table(11, 10).percent(), 110);
    }
}
