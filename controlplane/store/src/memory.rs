//! The engine for tests and for figures without a disk: everything in the process, nothing survives
//! it.
//!
//! History is a log of events since the last compaction. A state of the past is the present with
//! the later events undone, so nothing is stored twice.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs::File,
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    fanout::Fanout,
    types::{
        Compare, Event, EventBatch, KeyValue, Op, RangeRequest, RangeResponse, Revision, Txn,
        TxnOutcome,
    },
};

/// The memory engine. Cloning is not offered: share it behind an `Arc`.
#[derive(Default)]
pub struct MemoryBackend {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    revision: Revision,
    compacted: Revision,
    live: BTreeMap<Arc<str>, Stored>,
    log: VecDeque<Change>,
    fanout: Fanout,
}

/// An event and what the key was before it.
struct Change {
    event: Event,
    before: Option<KeyValue>,
}

#[derive(Clone)]
struct Stored {
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
}

impl MemoryBackend {
    /// An empty store at revision 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait::async_trait]
impl Backend for MemoryBackend {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        txn.check()?;
        Ok(self.state.lock().txn(&txn))
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        Ok(self.state.lock().get(key))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.state.lock().range(&request)
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        let mut state = self.state.lock();
        state.check_revision(from)?;
        let events: Vec<Event> = state
            .log_after(from)
            .map(|change| &change.event)
            .filter(|event| event.kv.key.starts_with(prefix))
            .cloned()
            .collect();
        let history = EventBatch {
            revision: state.revision,
            events,
        };
        let subscription = state.fanout.subscribe(prefix);
        let live = futures::stream::unfold(subscription, |mut subscription| async move {
            let item = subscription.next().await?;
            Some((item, subscription))
        });
        let past = (history.revision > from).then_some(Ok(history));
        Ok(Box::pin(futures::StreamExt::chain(
            futures::stream::iter(past),
            live,
        )))
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if to > state.revision {
            return Err(StoreError::Future {
                asked: to,
                current: state.revision,
            });
        }
        while state
            .log
            .front()
            .is_some_and(|change| change.event.kv.mod_revision <= to)
        {
            state.log.pop_front();
        }
        state.compacted = state.compacted.max(to);
        Ok(())
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.state.lock().revision)
    }

    fn known_revision(&self) -> Option<Revision> {
        Some(self.state.lock().revision)
    }

    async fn backup(&self) -> Result<File, StoreError> {
        Err(StoreError::NoBackup {
            advice: "its objects are in memory alone (--store memory)",
        })
    }
}

// === impl State ===

impl State {
    fn get(&self, key: &str) -> Option<KeyValue> {
        self.live
            .get_key_value(key)
            .map(|(key, stored)| stored.key_value(key))
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.live.contains_key(key),
            Compare::Present(key) => self.live.contains_key(key),
            Compare::ModRevision(key, revision) => self
                .live
                .get(key)
                .is_some_and(|stored| stored.mod_revision == *revision),
        }
    }

    fn txn(&mut self, txn: &Txn) -> TxnOutcome {
        if !txn.compare.iter().all(|compare| self.holds(compare)) {
            return TxnOutcome::Conflict(
                txn.compare
                    .iter()
                    .map(|compare| self.get(compare.key()))
                    .collect(),
            );
        }
        let revision = Revision(self.revision.0 + 1);
        let before = self.log.len();
        for op in &txn.ops {
            let change = self.apply(op, revision);
            self.log.extend(change);
        }
        let events: Vec<Event> = self
            .log
            .range(before..)
            .map(|change| change.event.clone())
            .collect();
        if events.is_empty() {
            return TxnOutcome::Committed(self.revision);
        }
        self.revision = revision;
        self.fanout.publish(revision, &events);
        TxnOutcome::Committed(revision)
    }

    fn apply(&mut self, op: &Op, revision: Revision) -> Option<Change> {
        match op {
            Op::Put { key, value } => {
                let before = self.get(key);
                let create_revision = before
                    .as_ref()
                    .map_or(revision, |before| before.create_revision);
                let stored = Stored {
                    value: value.clone(),
                    create_revision,
                    mod_revision: revision,
                };
                let kv = stored.key_value(key);
                self.live.insert(Arc::clone(key), stored);
                Some(Change {
                    event: Event { kv, deleted: false },
                    before,
                })
            }
            Op::Delete { key } => {
                let (key, stored) = self.live.remove_entry(key)?;
                let before = stored.key_value(&key);
                let kv = KeyValue {
                    mod_revision: revision,
                    ..before.clone()
                };
                Some(Change {
                    event: Event { kv, deleted: true },
                    before: Some(before),
                })
            }
        }
    }

    fn check_revision(&self, asked: Revision) -> Result<(), StoreError> {
        if asked < self.compacted {
            return Err(StoreError::Compacted {
                asked,
                oldest: self.compacted,
            });
        }
        if asked > self.revision {
            return Err(StoreError::Future {
                asked,
                current: self.revision,
            });
        }
        Ok(())
    }

    fn log_after(&self, revision: Revision) -> impl Iterator<Item = &Change> {
        let first = self
            .log
            .partition_point(|change| change.event.kv.mod_revision <= revision);
        self.log.range(first..)
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StoreError> {
        let at = request.at.unwrap_or(self.revision);
        self.check_revision(at)?;
        // The first later event of a key tells what the key was at `at`.
        let mut undo: HashMap<&str, Option<&KeyValue>> = HashMap::new();
        for Change { event, before } in self
            .log_after(at)
            .filter(|change| request.covers(&change.event.kv.key))
        {
            undo.entry(&event.kv.key).or_insert(before.as_ref());
        }
        let from = request.first_key();
        let mut items: Vec<KeyValue> = self
            .live
            .range::<str, _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&*request.prefix))
            .filter(|(key, _)| !undo.contains_key(&***key))
            .map(|(key, stored)| stored.key_value(key))
            .chain(undo.values().filter_map(|before| before.cloned()))
            .collect();
        if !undo.is_empty() {
            items.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        }
        let remaining = items
            .len()
            .saturating_sub(request.limit.unwrap_or(usize::MAX));
        items.truncate(items.len() - remaining);
        Ok(RangeResponse {
            items,
            revision: at,
            remaining,
        })
    }
}

impl Stored {
    fn key_value(&self, key: &Arc<str>) -> KeyValue {
        KeyValue {
            key: Arc::clone(key),
            value: self.value.clone(),
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
        }
    }
}
