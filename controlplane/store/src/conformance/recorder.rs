//! Follows a watch and judges every batch: order, uniqueness, atomicity, the state that the events
//! add up to.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;

use super::{Outcome, Violation, ensure, ensure_eq, history::state_at};
use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    types::{Event, EventBatch, KeyValue, Revision},
};

/// A watch of everything and what it has shown.
pub(super) struct Recorder {
    stream: WatchStream,
    /// Everything up to here has been shown.
    pub(super) revision: Revision,
    /// All events in the order in which they came.
    pub(super) events: Vec<Event>,
    state: BTreeMap<Arc<str>, KeyValue>,
}

impl Recorder {
    /// Watches everything after `from`, where the state is what the store says it was.
    pub(super) async fn start(store: &dyn Backend, from: Revision) -> Result<Self, StoreError> {
        let state = state_at(store, from)
            .await?
            .into_iter()
            .map(|kv| (Arc::clone(&kv.key), kv))
            .collect();
        Self::resume(store, from, state).await
    }

    async fn resume(
        store: &dyn Backend,
        from: Revision,
        state: BTreeMap<Arc<str>, KeyValue>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            stream: store.watch("/registry/", from).await?,
            revision: from,
            events: Vec::new(),
            state,
        })
    }

    /// Watches on from what has been seen, with the state that the events added up to.
    pub(super) async fn restart(&mut self, store: &dyn Backend) -> Result<(), StoreError> {
        self.stream = store.watch("/registry/", self.revision).await?;
        Ok(())
    }

    /// Takes batches until everything up to `until` has been shown.
    pub(super) async fn record(&mut self, until: Revision) -> Outcome {
        while self.revision < until {
            match self.stream.next().await {
                Some(Ok(batch)) => self.judge(batch)?,
                Some(Err(error)) => return Err(error.into()),
                None => {
                    return Err(Violation(format!(
                        "the watch ended at {} before {until}",
                        self.revision
                    )));
                }
            }
        }
        Ok(())
    }

    /// Takes batches until the watch is cut off; whether it was.
    pub(super) async fn record_until_cut_off(
        &mut self,
        until: Revision,
    ) -> Result<bool, Violation> {
        while self.revision < until {
            match self.stream.next().await {
                Some(Ok(batch)) => self.judge(batch)?,
                Some(Err(StoreError::WatcherTooSlow)) => return Ok(true),
                Some(Err(error)) => return Err(error.into()),
                None => {
                    return Err(Violation(
                        "a slow watch ended without saying why".to_owned(),
                    ));
                }
            }
        }
        Ok(false)
    }

    fn judge(&mut self, batch: EventBatch) -> Outcome {
        ensure(batch.revision > self.revision, || {
            format!(
                "a batch up to {} after one up to {}",
                batch.revision, self.revision
            )
        })?;
        let mut last = self.revision;
        for event in batch.events {
            let revision = event.kv.mod_revision;
            let first_of_batch = last == self.revision;
            ensure(
                revision > last || (revision == last && !first_of_batch),
                || format!("an event of {revision} after everything up to {last}"),
            )?;
            ensure(revision <= batch.revision, || {
                format!("an event of {revision} in a batch up to {}", batch.revision)
            })?;
            last = revision;
            self.apply(event)?;
        }
        self.revision = batch.revision;
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Outcome {
        let before = self.state.get(&event.kv.key).cloned();
        if event.deleted {
            let gone = before.map(|prev| KeyValue {
                mod_revision: event.kv.mod_revision,
                ..prev
            });
            ensure_eq(&Some(event.kv.clone()), &gone, "what a deletion shows")?;
            self.state.remove(&event.kv.key);
        } else {
            let created = before.map_or(event.kv.mod_revision, |prev| prev.create_revision);
            ensure_eq(
                &event.kv.create_revision,
                &created,
                "the create revision of an event",
            )?;
            self.state
                .insert(Arc::clone(&event.kv.key), event.kv.clone());
        }
        self.events.push(event);
        Ok(())
    }

    /// Whether the events add up to what the store holds.
    pub(super) async fn compare(&mut self, store: &dyn Backend) -> Outcome {
        let stored = state_at(store, self.revision).await?;
        let followed: Vec<KeyValue> = self.state.values().cloned().collect();
        ensure_eq(
            &followed,
            &stored,
            &format!("the state at {} by its events", self.revision),
        )
    }
}
