//! Which events are written, and as what.
//!
//! Source: `k8s.io/client-go/tools/record/events_cache.go` at v1.37.

use std::{borrow::Cow, collections::HashMap, hash::Hash, time::Duration};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use tokio::time::Instant;

use super::{EventType, MAX_MESSAGE, Queued, Write};

/// At most so many of each sort are remembered.
pub(super) const REMEMBERED: usize = 4096;
/// How often what makes no difference any more is forgotten.
const SWEEP: Duration = Duration::from_secs(60);
/// The server keeps an event for an hour after its last repetition: what is older begins anew.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// The how many-th message about one thing within [`SIMILAR_WINDOW`] of each other is combined with
/// those after it.
const SIMILAR_LIMIT: usize = 10;
/// Of an object's name: leaves room for a dot and a time.
const MAX_NAME: usize = 220;
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// Tokens a source may spend on one object, and how long one takes to come back.
const SPAM_BURST: f64 = 25.0;
pub(super) const SPAM_REFILL: Duration = Duration::from_secs(300);

/// What makes two events the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    similarity: Similarity,
    field_path: Option<String>,
    message: String,
}

/// What makes two events similar: all but the message.
type Similarity = (Cow<'static, str>, EventType, Cow<'static, str>, ObjectKey);
/// Kind, namespace, name and uid of the object.
type ObjectKey = (
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
);

#[derive(Debug)]
struct Seen {
    name: String,
    first: Timestamp,
    count: i32,
    used: Instant,
}

#[derive(Debug)]
struct Similar {
    messages: Vec<String>,
    used: Instant,
}

#[derive(Debug)]
struct Budget {
    tokens: f64,
    used: Instant,
}

impl Budget {
    fn tokens_at(&self, now: Instant) -> f64 {
        let refill = now.duration_since(self.used).as_secs_f64() / SPAM_REFILL.as_secs_f64();
        (self.tokens + refill).min(SPAM_BURST)
    }
}

/// Decides whether an event is written, and as what. Pure apart from its memory.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    seen: HashMap<Identity, Seen>,
    similar: HashMap<Similarity, Similar>,
    budgets: HashMap<(Cow<'static, str>, ObjectKey), Budget>,
    swept: Option<Instant>,
}

impl Correlator {
    /// What a round of notes makes of the objects: each is written once.
    pub(super) fn round(
        &mut self,
        notes: impl Iterator<Item = Queued>,
        now: Instant,
    ) -> Vec<Write> {
        let mut writes: Vec<Write> = Vec::new();
        for write in notes.filter_map(|queued| self.correlate(queued, now)) {
            match writes
                .iter_mut()
                .find(|earlier| earlier.identity == write.identity)
            {
                Some(earlier) => {
                    *earlier = Write {
                        is_new: earlier.is_new,
                        ..write
                    }
                }
                None => writes.push(write),
            }
        }
        writes
    }

    pub(super) fn correlate(&mut self, queued: Queued, now: Instant) -> Option<Write> {
        let Queued { mut note, at, .. } = queued;
        self.make_room(now);
        let about = &note.about;
        let object = (
            about.kind.clone(),
            about.namespace.clone(),
            about.name.clone(),
            about.uid.clone(),
        );
        let similarity = (
            note.component.clone(),
            note.kind,
            note.reason.clone(),
            object.clone(),
        );
        let mut identity = Identity {
            similarity,
            field_path: about.field_path.clone(),
            message: note.message.clone(),
        };
        if self.too_many_alike(&identity.similarity, &note.message, now) {
            note.message = format!("(combined from similar events): {}", note.message);
            cut(&mut note.message, MAX_MESSAGE);
            // All combined events are one, whatever their text.
            identity.message = String::new();
        }
        let name = || format!("{}.{:x}", about_name(&note.about), at.as_nanosecond());
        let is_new = !self.seen.contains_key(&identity);
        let seen = self.seen.entry(identity.clone()).or_insert_with(|| Seen {
            name: name(),
            first: at,
            count: 0,
            used: now,
        });
        seen.count = seen.count.saturating_add(note.times);
        seen.used = now;
        let (name, first, count) = (seen.name.clone(), seen.first, seen.count);
        // Counted all the same: when there is room again, the count is right.
        if !self.within_budget((note.component.clone(), object), now) {
            return None;
        }
        let namespace = note
            .about
            .namespace
            .clone()
            .filter(|ns| !ns.is_empty())
            .unwrap_or_else(|| "default".into());
        Some(Write {
            identity,
            namespace,
            name,
            first,
            at,
            count,
            is_new,
            note,
        })
    }

    /// What could not be written is new when it happens again.
    pub(super) fn forget(&mut self, identity: &Identity) {
        self.seen.remove(identity);
    }

    fn too_many_alike(&mut self, key: &Similarity, message: &str, now: Instant) -> bool {
        let similar = self.similar.entry(key.clone()).or_insert_with(|| Similar {
            messages: Vec::new(),
            used: now,
        });
        if now.duration_since(similar.used) > SIMILAR_WINDOW {
            similar.messages.clear();
        }
        similar.used = now;
        if similar.messages.iter().any(|known| known == message) {
            return false;
        }
        if similar.messages.len() + 1 >= SIMILAR_LIMIT {
            return true;
        }
        similar.messages.push(message.to_owned());
        false
    }

    fn within_budget(&mut self, key: (Cow<'static, str>, ObjectKey), now: Instant) -> bool {
        let budget = self.budgets.entry(key).or_insert(Budget {
            tokens: SPAM_BURST,
            used: now,
        });
        *budget = Budget {
            tokens: budget.tokens_at(now),
            used: now,
        };
        let is_within = budget.tokens >= 1.0;
        if is_within {
            budget.tokens -= 1.0;
        }
        is_within
    }

    /// How much is remembered of each sort.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.seen.len(), self.similar.len(), self.budgets.len()]
    }

    /// Forgets what makes no difference any more, and keeps the memory bounded whatever comes.
    fn make_room(&mut self, now: Instant) {
        if self
            .swept
            .is_none_or(|swept| now.duration_since(swept) >= SWEEP)
        {
            self.swept = Some(now);
            self.seen
                .retain(|_, seen| now.duration_since(seen.used) < KEPT);
            self.similar
                .retain(|_, similar| now.duration_since(similar.used) <= SIMILAR_WINDOW);
            self.budgets
                .retain(|_, budget| budget.tokens_at(now) < SPAM_BURST);
        }
        halve(&mut self.seen, |seen| seen.used);
        halve(&mut self.similar, |similar| similar.used);
        halve(&mut self.budgets, |budget| budget.used);
    }
}

/// Of a full map the half longest unused goes.
fn halve<K: Eq + Hash, V>(map: &mut HashMap<K, V>, used: impl Fn(&V) -> Instant) {
    if map.len() >= REMEMBERED {
        let mut ages: Vec<Instant> = map.values().map(&used).collect();
        ages.sort_unstable();
        let middle = ages[ages.len() / 2];
        map.retain(|_, value| used(value) > middle);
    }
}

/// The object's name, cut so that the event's name stays within 253 bytes and a name.
fn about_name(about: &ObjectReference) -> String {
    let mut name = about.name.clone().unwrap_or_else(|| "unknown".to_owned());
    cut(&mut name, MAX_NAME);
    name.truncate(name.trim_end_matches(['.', '-']).len());
    name
}

/// Keeps at most `most` bytes.
pub(super) fn cut(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
}
