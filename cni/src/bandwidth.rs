//! How fast a pod may send and receive.
//!
//! What it receives leaves the node's end of its link through a token bucket. What it sends comes
//! in there, where nothing can be queued: it is redirected to an `ifb` link, which has a bucket of
//! its own and hands it back. [`anti_spoof`] must have seen it before: the kernel asks no filter a
//! second time. The `ifb` link has the name of the pod's link with another beginning, and goes when
//! that is gone.
//!
//! Source: containernetworking/plugins `plugins/meta/bandwidth/ifb_creator.go`,
//! `net/sched/sch_tbf.c`, `include/uapi/linux/pkt_cls.h`.
//!
//! [`anti_spoof`]: crate::anti_spoof

use nix::errno::Errno;
use rtnetlink::{
    LinkUnspec,
    packet_core::DefaultNla,
    packet_route::{
        RouteNetlinkMessage,
        link::{InfoKind, LinkAttribute, LinkInfo},
        tc::{TcAttribute, TcHandle, TcHeader, TcMessage},
    },
};

use crate::{
    anti_spoof::ingress_queue,
    conf::Bandwidth,
    error::CniError,
    netlink::{Link, Netlink, NetlinkError, Request, TokenBucket, attribute},
    veth::{ifb_name, ifb_removal, limited_by},
};

const TCA_OPTIONS: u16 = 2;
/// `TCA_TBF_PARMS`, `TCA_TBF_RATE64`, `TCA_TBF_BURST`; `TC_LINKLAYER_ETHERNET`.
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
const ETHERNET: u8 = 1;
/// `TCA_U32_CLASSID`, `TCA_U32_SEL`, `TCA_U32_ACT`; `TC_U32_TERMINAL`.
const U32_CLASS: u16 = 1;
const U32_SELECTOR: u16 = 5;
const U32_ACTIONS: u16 = 7;
const U32_TERMINAL: u8 = 1;
/// `TCA_ACT_KIND`, `TCA_ACT_OPTIONS`, `TCA_MIRRED_PARMS`.
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const MIRRED_PARMS: u16 = 2;
/// `TC_ACT_STOLEN`, `TCA_EGRESS_REDIR`.
const STOLEN: i32 = 4;
const REDIRECT: i32 = 1;
const ETH_ALL: u16 = 0x0003;
/// The first filter is that against false addresses.
const PRIORITY: u32 = 2;
/// A whole segment as offload makes it, and its headers: smaller buckets cut them up.
const LEAST_BURST: u64 = 66_000;
/// Of a second: what may come at once where nobody says, and what may wait beyond that.
const BURST_PART: u64 = 100;
const WAIT_PART: u64 = 40;

/// Sets the limits of the pod whose link on the node is `port`. Idempotent. Returns the `ifb` link,
/// if it takes one.
///
/// # Errors
/// [`CniError::Unsupported`] where the kernel lacks what it takes; [`CniError::Netlink`].
pub fn limit(
    netlink: &mut Netlink,
    port: &Link,
    limits: &Bandwidth,
) -> Result<Option<Link>, CniError> {
    if let Some(bucket) = received(limits) {
        let request = fill("limit what the pod receives (sch_tbf)", port.index, bucket)?;
        netlink.batch(vec![request]).map_err(explained)?;
    }
    let Some(bucket) = sent(limits) else {
        return Ok(None);
    };
    let name = ifb_name(&port.name);
    let mut message = LinkUnspec::new_with_name(&name).mtu(port.mtu).up().build();
    let kind = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]);
    message.attributes.push(kind);
    let make = Request::create(
        "make the link that delays what the pod sends (ifb)",
        RouteNetlinkMessage::NewLink(message),
    );
    netlink
        .batch(vec![make.tolerate(&[Errno::EEXIST])])
        .map_err(explained)?;
    let missing = || CniError::CheckFailed {
        what: format!("link {name} vanished"),
    };
    let ifb = netlink.link(&name)?.ok_or_else(missing)?;
    let requests = vec![
        fill("limit what the pod sends (sch_tbf)", ifb.index, bucket)?,
        ingress_queue(index(port.index)?),
        Request::replace(
            "redirect what the pod sends (cls_u32, act_mirred)",
            RouteNetlinkMessage::NewTrafficFilter(redirection(index(port.index)?, ifb.index)),
        ),
    ];
    netlink.batch(requests).map_err(explained)?;
    Ok(Some(ifb))
}

/// What of [`limit`] is not there.
///
/// # Errors
/// [`NetlinkError`].
pub fn missing(
    netlink: &mut Netlink,
    port: &Link,
    limits: &Bandwidth,
) -> Result<Option<String>, NetlinkError> {
    let mut wanted = Vec::new();
    if let Some(bucket) = received(limits) {
        wanted.push((Some(port.index), port.name.clone(), bucket));
    }
    if let Some(bucket) = sent(limits) {
        let name = ifb_name(&port.name);
        let ifb = netlink.link(&name)?;
        wanted.push((ifb.map(|link| link.index), name, bucket));
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    let present = netlink.token_buckets()?;
    let lost = wanted.into_iter().find(|(link, _, bucket)| {
        let there = |(on, rate): &(u32, u64)| Some(*on) == *link && *rate == bucket.rate;
        !present.iter().any(there)
    });
    Ok(lost.map(|(_, name, bucket)| {
        format!("link {name} is not limited to {} bit/s", bucket.rate * 8)
    }))
}

/// Deletes `ifb` links whose pods' links are gone, as those of a namespace go with it, or do not
/// count any more.
///
/// # Errors
/// [`NetlinkError`].
pub fn collect(netlink: &mut Netlink, counts: impl Fn(&Link) -> bool) -> Result<(), NetlinkError> {
    let links = netlink.links()?;
    let requests = links.iter().filter_map(|link| {
        let pods = limited_by(&link.name)?;
        let lives = links.iter().any(|one| one.name == pods && counts(one));
        (!lives).then(|| ifb_removal(&pods))
    });
    netlink.batch(requests.collect())
}

fn received(limits: &Bandwidth) -> Option<TokenBucket> {
    bucket(limits.ingress_rate, limits.ingress_burst)
}

fn sent(limits: &Bandwidth) -> Option<TokenBucket> {
    bucket(limits.egress_rate, limits.egress_burst)
}

/// Of bits; `None` without a limit.
fn bucket(rate: u64, burst: u64) -> Option<TokenBucket> {
    let rate = (rate > 0).then_some(rate / 8)?;
    let burst = match burst / 8 {
        0 => LEAST_BURST.max(rate / BURST_PART),
        // Less holds no packet: nothing would ever pass.
        told => told.max(LEAST_BURST),
    };
    let short = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    Some(TokenBucket {
        rate,
        burst: short(burst),
        limit: short(burst.saturating_add(rate / WAIT_PART)),
    })
}

fn fill(what: &'static str, link: u32, bucket: TokenBucket) -> Result<Request, CniError> {
    let mut message = TcMessage::default();
    message.header = TcHeader {
        index: index(link)?,
        handle: TcHandle { major: 1, minor: 0 },
        parent: TcHandle::ROOT,
        ..TcHeader::default()
    };
    message.attributes = vec![
        TcAttribute::Kind("tbf".into()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bucket_options(bucket))),
    ];
    let message = RouteNetlinkMessage::NewQueueDiscipline(message);
    Ok(Request::replace(what, message))
}

/// `struct tc_tbf_qopt`, and what is too large for it.
fn bucket_options(bucket: TokenBucket) -> Vec<u8> {
    let mut parms = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    let rate = u32::try_from(bucket.rate).unwrap_or(u32::MAX);
    parms.extend_from_slice(&rate.to_ne_bytes());
    parms.extend_from_slice(&[0; 12]);
    parms.extend_from_slice(&bucket.limit.to_ne_bytes());
    parms.extend_from_slice(&[0; 8]);
    let mut options = Vec::new();
    attribute(&mut options, TBF_PARMS, &parms);
    if bucket.rate > u64::from(u32::MAX) {
        attribute(&mut options, TBF_RATE64, &bucket.rate.to_ne_bytes());
    }
    attribute(&mut options, TBF_BURST, &bucket.burst.to_ne_bytes());
    options
}

/// Everything that comes from the pod leaves by `ifb`.
fn redirection(port: i32, ifb: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header = TcHeader {
        index: port,
        // Always the same filter: a second one would lead to a link that is gone.
        handle: TcHandle {
            major: 0x8000,
            minor: 0x0800,
        },
        parent: TcHandle {
            major: 0xffff,
            minor: 0,
        },
        info: (PRIORITY << 16) | u32::from(ETH_ALL.to_be()),
        ..TcHeader::default()
    };
    // `struct tc_u32_sel` with one key, which every packet has.
    let mut selector = vec![U32_TERMINAL, 0, 1];
    selector.resize(16 + 16, 0);
    // `struct tc_mirred`.
    let mut parms = vec![0; 8];
    parms.extend_from_slice(&STOLEN.to_ne_bytes());
    parms.extend_from_slice(&[0; 8]);
    parms.extend_from_slice(&REDIRECT.to_ne_bytes());
    parms.extend_from_slice(&ifb.to_ne_bytes());
    let (mut settings, mut action, mut actions) = (Vec::new(), Vec::new(), Vec::new());
    attribute(&mut settings, MIRRED_PARMS, &parms);
    attribute(&mut action, ACTION_KIND, b"mirred\0");
    attribute(&mut action, ACTION_OPTIONS, &settings);
    attribute(&mut actions, 1, &action);
    let mut options = Vec::new();
    attribute(&mut options, U32_CLASS, &0x0001_0001_u32.to_ne_bytes());
    attribute(&mut options, U32_SELECTOR, &selector);
    attribute(&mut options, U32_ACTIONS, &actions);
    message.attributes = vec![
        TcAttribute::Kind("u32".into()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)),
    ];
    message
}

fn index(link: u32) -> Result<i32, CniError> {
    i32::try_from(link).map_err(|_| CniError::CheckFailed {
        what: format!("link {link} has an index that no link has"),
    })
}

/// These are the kernel's answers to kinds of links, queues, filters and actions that it lacks.
fn explained(error: NetlinkError) -> CniError {
    match error.errno() {
        Some(Errno::ENOENT | Errno::EOPNOTSUPP) => CniError::Unsupported {
            feature: "limits of bandwidth",
            source: error,
        },
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_a_packet_at_least_and_what_is_asked_for() {
        let bytes = |rate, burst| {
            let bucket = bucket(rate, burst).unwrap();
            (bucket.rate, bucket.burst, bucket.limit)
        };
        assert_eq!(bucket(0, 0), None);
        assert_eq!(bytes(1_000, 0), (125, 66_000, 66_003));
        assert_eq!(bytes(1_000, 80), (125, 66_000, 66_003));
        assert_eq!(
            bytes(8_000_000_000, 0),
            (1_000_000_000, 10_000_000, 35_000_000)
        );
        assert_eq!(bytes(8_000, 8_000_000), (1_000, 1_000_000, 1_000_025));
        assert_eq!(
            bytes(1_000_000_000_000_000, 0),
            (125_000_000_000_000, u32::MAX, u32::MAX)
        );
    }

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let refused = |errno: Errno| NetlinkError::Refused {
            what: "limit what the pod sends (sch_tbf)",
            source: errno.into(),
        };
        let wire = explained(refused(Errno::ENOENT)).to_wire("1.0.0");
        assert_eq!(wire.msg, "the kernel lacks limits of bandwidth");
        assert!(wire.details.contains("sch_tbf"), "{}", wire.details);
        assert_eq!(explained(refused(Errno::EPERM)).code(), 100);
    }
}
