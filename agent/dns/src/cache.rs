//! What other servers have answered, for a while: at most half a minute fresh, and an hour stale
//! for when none of them answers.
//!
//! ```text
//! put > fresh (TTLs count down) > stale (given only when nobody answers; TTL 30) > forgotten
//!       failure: fresh for a second, never stale
//! ```
//!
//! Pure: the clock is a parameter. An answer is held as on the wire, so that the bytes counted are
//! the bytes held whatever the records are. No lock and no sockets here: the forwarder owns it.

mod shares;

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{RData, Record, RecordType},
};
use tokio::time::Instant;

use self::shares::Shares;
use crate::forward::question::{Query, Reply};

/// The longest that an answer with what was asked for is fresh.
const POSITIVE_MAX: Duration = Duration::from_secs(30);
/// The longest that an answer without it (NXDOMAIN, NODATA) is.
const NEGATIVE_MAX: Duration = Duration::from_secs(5);
/// How long a server's failure to find out (SERVFAIL, REFUSED and the like) is repeated.
const FAILURE: Duration = Duration::from_secs(1);
/// How long after it was fresh an answer is given when no server answers. RFC 8767 suggests one to
/// three days; what pods ask for moves faster.
const STALE: Duration = Duration::from_hours(1);
/// TTL of what is stale, seconds. Source: RFC 8767, section 4.
const STALE_TTL: u32 = 30;
/// How long a stale answer is repeated before the servers are asked again. RFC 8767 has 30 s, to
/// spare the world's servers; here it is the node's own two or three.
const STALE_PAUSE: Duration = Duration::from_secs(5);

/// What the cache may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of answers, names and [`OVERHEAD`].
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

/// A mebibyte: some 3,000 answers of the usual size.
const LIMITS: Limits = Limits {
    bytes: 1024 * 1024,
    entries: 4096,
};

/// Bytes that an entry takes in the maps, beside its name and answer.
const OVERHEAD: usize = 256;

/// The answers by question, each that asker's who was the first to wait for it.
#[derive(Debug)]
pub(crate) struct Cache {
    limits: Limits,
    entries: HashMap<Arc<Query>, Entry>,
    shares: Shares,
    next_number: u64,
}

/// An answer that needs no server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Fresh(Reply),
    /// Nobody has answered a moment ago, and that is not tried again yet.
    Stale(Reply),
}

#[derive(Debug)]
struct Entry {
    asker: IpAddr,
    number: u64,
    /// A message without a question.
    wire: Box<[u8]>,
    /// Here, for those above 15 are not in a message without EDNS.
    code: ResponseCode,
    authentic: bool,
    stored: Instant,
    fresh_until: Instant,
    stale_until: Instant,
    /// Until then it is given without asking, though stale.
    unasked_until: Instant,
}

// === impl Cache ===

impl Cache {
    pub(crate) fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            shares: Shares::default(),
            next_number: 0,
        }
    }

    /// What can be given to `query` without asking anybody.
    pub(crate) fn get(&self, query: &Query, now: Instant) -> Option<Found> {
        let entry = self.entries.get(query)?;
        if now < entry.fresh_until {
            entry.fresh(now).map(Found::Fresh)
        } else if now < entry.unasked_until.min(entry.stale_until) {
            entry.stale().map(Found::Stale)
        } else {
            None
        }
    }

    /// What can be given to `query` now that nobody has answered it. For a moment
    /// [`Cache::get`] gives the same.
    pub(crate) fn stale(&mut self, query: &Query, now: Instant) -> Option<Reply> {
        let entry = self.entries.get_mut(query)?;
        if now >= entry.stale_until {
            return None;
        }
        entry.unasked_until = now + STALE_PAUSE;
        entry.stale()
    }

    /// Remembers an answer in place of the one before, and gives it back with its TTLs brought down
    /// to what it is remembered for: who asks first is told the same as who asks second.
    pub(crate) fn put(
        &mut self,
        asker: IpAddr,
        query: &Arc<Query>,
        mut reply: Reply,
        now: Instant,
    ) -> Reply {
        let lifetime = Lifetime::of(query, &reply);
        self.remove(query);
        let Some(lifetime) = lifetime else {
            return reply;
        };
        if let Some(most) = lifetime.most_ttl() {
            for record in reply.records_mut() {
                record.ttl = record.ttl.min(most);
            }
        }
        let (code, authentic) = (reply.code, reply.authentic);
        let message = Message::from(reply);
        if let Some(wire) = wire(&message) {
            let fresh_until = now + lifetime.fresh();
            let entry = Entry {
                asker,
                number: self.next_number,
                wire,
                code,
                authentic,
                stored: now,
                fresh_until,
                stale_until: fresh_until + lifetime.stale(),
                unasked_until: fresh_until,
            };
            self.insert(Arc::clone(query), entry);
        }
        Reply::from(message)
    }

    /// Forgets everything: other servers are asked from now on.
    pub(crate) fn clear(&mut self) {
        *self = Self::with_limits(self.limits);
    }

    fn insert(&mut self, query: Arc<Query>, entry: Entry) {
        self.next_number += 1;
        let (asker, size) = (entry.asker, size(&query, &entry));
        self.shares
            .add(asker, entry.number, Arc::clone(&query), size);
        self.entries.insert(query, entry);
        while self.shares.bytes() > self.limits.bytes || self.shares.len() > self.limits.entries {
            let Some(query) = self.shares.next_to_go() else {
                break;
            };
            self.remove(&query);
        }
    }

    fn remove(&mut self, query: &Query) {
        if let Some(entry) = self.entries.remove(query) {
            self.shares
                .remove(entry.asker, entry.number, size(query, &entry));
        }
    }
}

fn size(query: &Query, entry: &Entry) -> usize {
    OVERHEAD + query.name.len() + entry.wire.len()
}

/// `None` where the message cannot be written whole.
fn wire(message: &Message) -> Option<Box<[u8]>> {
    /// The byte of the header with the TC bit, and the bit.
    const TRUNCATED: (usize, u8) = (2, 0b10);
    let wire = message.to_vec().ok()?;
    let (at, bit) = TRUNCATED;
    let whole = wire.get(at)? & bit == 0;
    whole.then(|| wire.into_boxed_slice())
}

// === impl Entry ===

impl Entry {
    /// TTLs are what is left of them. Whole seconds that have passed are taken off, so a TTL is at
    /// least 1 while the entry is fresh.
    fn fresh(&self, now: Instant) -> Option<Reply> {
        let age = now.saturating_duration_since(self.stored).as_secs();
        let age = u32::try_from(age).unwrap_or(u32::MAX);
        let mut reply = self.reply()?;
        for record in reply.records_mut() {
            record.ttl = record.ttl.saturating_sub(age);
        }
        reply.authentic = self.authentic;
        Some(reply)
    }

    /// Not authentic, for its signatures may have ended.
    fn stale(&self) -> Option<Reply> {
        let mut reply = self.reply()?;
        for record in reply.records_mut() {
            record.ttl = STALE_TTL;
        }
        reply.authentic = false;
        Some(reply)
    }

    fn reply(&self) -> Option<Reply> {
        let message = Message::from_vec(&self.wire).ok()?;
        Some(Reply {
            code: self.code,
            ..Reply::from(message)
        })
    }
}

/// How long an answer is worth something: whole seconds, as TTLs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// What was asked for, or that there is none.
    Answer {
        ttl: u32,
    },
    Failure,
}

// === impl Lifetime ===

impl Lifetime {
    /// `None` for what is not to be remembered: a TTL of 0, or a negative answer without the SOA
    /// that says for how long.
    ///
    /// Source: RFC 2308, sections 2 and 5.
    fn of(query: &Query, reply: &Reply) -> Option<Self> {
        let named = reply.code == ResponseCode::NXDomain;
        if !named && reply.code != ResponseCode::NoError {
            return Some(Self::Failure);
        }
        let least = reply.records().map(|record| record.ttl).min();
        let is_asked_for = |record: &Record| {
            query.record_type == RecordType::ANY || record.record_type() == query.record_type
        };
        let ttl = if !named && reply.answers.iter().any(is_asked_for) {
            least?.min(seconds(POSITIVE_MAX))
        } else {
            let minimum = reply
                .authorities
                .iter()
                .find_map(|record| match &record.data {
                    RData::SOA(soa) => Some(soa.minimum),
                    _ => None,
                })?;
            least?.min(minimum).min(seconds(NEGATIVE_MAX))
        };
        (ttl > 0).then_some(Self::Answer { ttl })
    }

    fn fresh(self) -> Duration {
        match self {
            Self::Answer { ttl } => Duration::from_secs(ttl.into()),
            Self::Failure => FAILURE,
        }
    }

    /// Negative answers, too: a resolver that walks a search path gives up at a SERVFAIL where it
    /// goes on after an NXDOMAIN, and one that asks for A and AAAA needs both answers.
    fn stale(self) -> Duration {
        match self {
            Self::Answer { .. } => STALE,
            Self::Failure => Duration::ZERO,
        }
    }

    fn most_ttl(self) -> Option<u32> {
        match self {
            Self::Answer { ttl } => Some(ttl),
            Self::Failure => None,
        }
    }
}

fn seconds(of: Duration) -> u32 {
    u32::try_from(of.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
