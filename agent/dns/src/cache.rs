//! What others have answered, for as long as it holds; and longer, where nobody answers any more.
//!
//! Pure: what time it is is said by whoever asks. The oldest goes first, when it is too much.
//!
//! Source: RFC 2308 (what is not there), RFC 8767 (what is stale); times as CoreDNS' `cache 30`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_proto::{
    op::ResponseCode,
    rr::{Name, RData, Record, RecordType},
};

use crate::forward::{Query, Reply};

/// How long an answer is kept at most, and one that says that there is none.
const MOST: Duration = Duration::from_secs(30);
const MOST_NOTHING: Duration = Duration::from_secs(5);
/// How long one is kept for the case that nobody answers, and what it then says of itself.
const STALE: Duration = Duration::from_secs(3600);
const STALE_TTL: u32 = 30;
/// Of all answers together, as they were read, and of each beside that.
const BYTES: usize = 1 << 20;
const BYTES_BESIDE: usize = 400;

/// What an answer is to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    name: Name,
    record_type: RecordType,
    dnssec_ok: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<Key, Entry>,
    /// By when they came.
    order: BTreeMap<u64, Key>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    reply: Arc<Reply>,
    since: Instant,
    holds: Duration,
    bytes: usize,
    number: u64,
}

impl Key {
    pub(crate) fn of(query: &Query) -> Self {
        Self {
            name: query.name.to_lowercase(),
            record_type: query.record_type,
            dnssec_ok: query.dnssec_ok,
        }
    }
}

impl Cache {
    /// An answer that holds, with the rest of its time.
    pub(crate) fn fresh(&self, key: &Key, now: Instant) -> Option<Reply> {
        let entry = self.entries.get(key)?;
        let age = now.saturating_duration_since(entry.since);
        (age < entry.holds).then(|| {
            let left = entry.holds - age;
            let secs = u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1);
            with_ttl(&entry.reply, |ttl| ttl.min(secs))
        })
    }

    /// One that has held, in place of none.
    pub(crate) fn stale(&self, key: &Key, now: Instant) -> Option<Reply> {
        let entry = self.entries.get(key)?;
        let age = now.saturating_duration_since(entry.since);
        (age < entry.holds + STALE).then(|| with_ttl(&entry.reply, |_| STALE_TTL))
    }

    /// Keeps an answer of so many bytes, if it says for how long.
    pub(crate) fn put(&mut self, key: Key, reply: &Arc<Reply>, bytes: usize, now: Instant) {
        let Some(holds) = holds(reply, key.record_type) else {
            return;
        };
        self.remove(&key);
        let (number, bytes) = (self.next, bytes + BYTES_BESIDE);
        self.next += 1;
        self.bytes += bytes;
        self.order.insert(number, key.clone());
        let entry = Entry {
            reply: Arc::clone(reply),
            since: now,
            holds,
            bytes,
            number,
        };
        self.entries.insert(key, entry);
        while self.bytes > BYTES {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.number);
            self.bytes -= entry.bytes;
        }
    }
}

/// For how long an answer holds; `None` if it is not to be kept.
fn holds(reply: &Reply, of: RecordType) -> Option<Duration> {
    let has_answer = |record: &Record| record.record_type() == of;
    let (secs, most) = match reply.code {
        ResponseCode::NoError if reply.answers.iter().any(has_answer) => {
            (reply.answers.iter().map(|record| record.ttl).min()?, MOST)
        }
        // Whoever has nothing says in its start of authority for how long that holds.
        ResponseCode::NoError | ResponseCode::NXDomain => {
            let minimum = reply
                .authorities
                .iter()
                .find_map(|record| match &record.data {
                    RData::SOA(soa) => Some(soa.minimum.min(record.ttl)),
                    _ => None,
                });
            (minimum?, MOST_NOTHING)
        }
        _ => return None,
    };
    (secs > 0).then(|| Duration::from_secs(secs.into()).min(most))
}

fn with_ttl(reply: &Reply, ttl: impl Fn(u32) -> u32) -> Reply {
    let mut reply = reply.clone();
    let sections = [
        &mut reply.answers,
        &mut reply.authorities,
        &mut reply.additionals,
    ];
    for record in sections.into_iter().flatten() {
        record.ttl = ttl(record.ttl);
    }
    reply
}

#[cfg(test)]
mod tests;
