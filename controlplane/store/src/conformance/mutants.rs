//! Engines with one planted fault each. A suite that passes one of these is not finished.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::StreamExt;

use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    types::{Event, EventBatch, KeyValue, RangeRequest, RangeResponse, Revision, Txn, TxnOutcome},
};

/// What is wrong with an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A watch leaves out an event now and then.
    DropsEvent,
    /// A watch shows an event twice now and then.
    DuplicatesEvent,
    /// A watch shows two events in the wrong order now and then.
    ReordersEvents,
    /// A watch splits a transaction over two batches.
    SplitsRevision,
    /// A transaction answers with an older revision now and then.
    RegressesRevision,
    /// The first watch after a compaction leaves out its first event.
    LosesEventAtCompaction,
    /// A compaction that was acknowledged does not hold.
    IgnoresCompaction,
    /// Reads show the state before the last write.
    ReadsStale,
    /// Comparisons are not made.
    IgnoresCompare,
    /// A watcher that does not keep up silently loses events.
    DropsForSlowWatcher,
    /// Transactions are acknowledged before they are written; the crash test catches this one.
    AcknowledgesEarly,
}

/// The faults that [`super::run`] must catch.
pub const FAULTS: &[Fault] = &[
    Fault::DropsEvent,
    Fault::DuplicatesEvent,
    Fault::ReordersEvents,
    Fault::SplitsRevision,
    Fault::RegressesRevision,
    Fault::LosesEventAtCompaction,
    Fault::IgnoresCompaction,
    Fault::ReadsStale,
    Fault::IgnoresCompare,
    Fault::DropsForSlowWatcher,
];

/// Every so many events or transactions the fault shows.
const NOW_AND_THEN: usize = 13;

/// A good engine made bad.
pub struct Mutant {
    inner: Arc<dyn Backend>,
    fault: Fault,
    count: Arc<AtomicUsize>,
    compacted: AtomicBool,
}

impl Mutant {
    /// Plants `fault` in `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            count: Arc::default(),
            compacted: AtomicBool::new(false),
        }
    }

    fn now(&self) -> bool {
        is_now(&self.count)
    }
}

fn is_now(count: &AtomicUsize) -> bool {
    count.fetch_add(1, Ordering::Relaxed) % NOW_AND_THEN == NOW_AND_THEN - 1
}

#[async_trait::async_trait]
impl Backend for Mutant {
    async fn txn(&self, mut txn: Txn) -> Result<TxnOutcome, StoreError> {
        match self.fault {
            Fault::IgnoresCompare => txn.compare.clear(),
            Fault::AcknowledgesEarly => {
                let inner = Arc::clone(&self.inner);
                let guess = Revision(self.inner.current_revision().await?.0 + 1);
                coracle_telemetry::spawn("task of a test", async move { inner.txn(txn).await });
                return Ok(TxnOutcome::Committed(guess));
            }
            _ => {}
        }
        let outcome = self.inner.txn(txn).await?;
        match outcome {
            TxnOutcome::Committed(revision)
                if self.fault == Fault::RegressesRevision && self.now() =>
            {
                Ok(TxnOutcome::Committed(Revision(
                    revision.0.saturating_sub(1),
                )))
            }
            outcome => Ok(outcome),
        }
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        if self.fault != Fault::ReadsStale {
            return self.inner.get(key).await;
        }
        let range = self
            .range(RangeRequest {
                prefix: key.to_owned(),
                ..RangeRequest::default()
            })
            .await?;
        Ok(range.items.into_iter().find(|kv| &*kv.key == key))
    }

    async fn range(&self, mut request: RangeRequest) -> Result<RangeResponse, StoreError> {
        if self.fault == Fault::ReadsStale && request.at.is_none() && self.now() {
            let current = self.current_revision().await?;
            request.at = Some(Revision(current.0.saturating_sub(1)));
        }
        self.inner.range(request).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        let stream = self.inner.watch(prefix, from).await?;
        let first = self.fault == Fault::LosesEventAtCompaction
            && self.compacted.swap(false, Ordering::Relaxed);
        let (fault, count) = (self.fault, Arc::clone(&self.count));
        let mut lose_first = first;
        let broken = stream.filter_map(move |item| {
            let mut item = item;
            if let Ok(batch) = &mut item {
                distort(fault, &mut batch.events, &count, &mut lose_first);
            }
            let silent = fault == Fault::DropsForSlowWatcher
                && matches!(item, Err(StoreError::WatcherTooSlow));
            async move { (!silent).then_some(item) }
        });
        if fault != Fault::SplitsRevision {
            return Ok(broken.boxed());
        }
        Ok(broken
            .flat_map(|item| futures::stream::iter(split(item)))
            .boxed())
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        if self.fault == Fault::IgnoresCompaction && to <= self.current_revision().await? {
            return Ok(());
        }
        self.compacted.store(true, Ordering::Relaxed);
        self.inner.compact(to).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        self.inner.known_revision()
    }

    async fn hasten(&self, revision: Revision) {
        self.inner.hasten(revision).await;
    }
}

fn distort(fault: Fault, events: &mut Vec<Event>, count: &AtomicUsize, lose_first: &mut bool) {
    match fault {
        Fault::DropsEvent => events.retain(|_| !is_now(count)),
        Fault::DuplicatesEvent => {
            *events = events
                .drain(..)
                .flat_map(|event| vec![event; 1 + usize::from(is_now(count))])
                .collect();
        }
        Fault::ReordersEvents if events.len() > 1 => events.reverse(),
        Fault::LosesEventAtCompaction if *lose_first && !events.is_empty() => {
            events.remove(0);
            *lose_first = false;
        }
        _ => {}
    }
}

fn split(item: Result<EventBatch, StoreError>) -> Vec<Result<EventBatch, StoreError>> {
    match item {
        Ok(mut batch) if batch.events.len() > 1 => {
            let rest = batch.events.split_off(batch.events.len() / 2);
            let revision = batch.revision;
            vec![
                Ok(batch),
                Ok(EventBatch {
                    revision,
                    events: rest,
                }),
            ]
        }
        item => vec![item],
    }
}
