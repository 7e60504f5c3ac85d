//! An engine that fails when a test says so, in the ways that its users have to live with.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Backend, WatchStream},
    error::StoreError,
    memory::MemoryBackend,
    types::{KeyValue, RangeRequest, RangeResponse, Revision, Txn, TxnOutcome},
};

/// See [`FailingBackend::far`].
const WAY: Duration = Duration::from_millis(1);

/// A good engine until it is told otherwise.
pub struct FailingBackend {
    inner: Arc<dyn Backend>,
    is_full: AtomicBool,
    in_doubt: CancellationToken,
    is_away: AtomicBool,
    cut: Arc<Notify>,
    held: Option<Held>,
    is_shared: bool,
    is_far: bool,
    /// As if others wrote to it too: places of events that watches may show.
    remote: Option<Arc<Semaphore>>,
}

/// Reads that wait.
struct Held {
    prefix: String,
    asked: Semaphore,
    may_answer: Semaphore,
}

impl Default for FailingBackend {
    fn default() -> Self {
        Self::over(Arc::new(MemoryBackend::new()))
    }
}

impl FailingBackend {
    /// Over an engine that does the work.
    #[must_use]
    pub fn over(inner: Arc<dyn Backend>) -> Self {
        Self {
            inner,
            is_full: AtomicBool::new(false),
            in_doubt: CancellationToken::new(),
            is_away: AtomicBool::new(false),
            cut: Arc::default(),
            held: None,
            is_shared: false,
            is_far: false,
            remote: None,
        }
    }

    /// One of several servers' views of the engine below.
    #[must_use]
    pub fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    /// Transactions take a moment to get there: what was read before may be old by then.
    #[must_use]
    pub fn far(self) -> Self {
        Self {
            is_far: true,
            ..self
        }
    }

    /// An engine in memory that answers [`Backend::range`] of `prefix` only as
    /// [`FailingBackend::release`] says.
    #[must_use]
    pub fn holding(prefix: &str) -> Self {
        let held = Held {
            prefix: prefix.to_owned(),
            asked: Semaphore::new(0),
            may_answer: Semaphore::new(0),
        };
        Self {
            held: Some(held),
            ..Self::default()
        }
    }

    /// An engine in memory that others could write to, too: it has to be asked how far it is, and
    /// its watches come no further unless they are hastened.
    #[must_use]
    pub fn remote() -> Self {
        Self {
            remote: Some(Arc::new(Semaphore::new(0))),
            ..Self::default()
        }
    }

    /// Waits for the next read that is held.
    pub async fn held(&self) {
        if let Some(held) = &self.held
            && let Ok(asked) = held.asked.acquire().await
        {
            asked.forget();
        }
    }

    /// Lets so many reads that are held go, now or later.
    pub fn release(&self, reads: usize) {
        if let Some(held) = &self.held {
            held.may_answer.add_permits(reads);
        }
    }

    /// From now on there is room only for what may use the reserve.
    pub fn fill(&self) {
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// The state of the disk is in doubt: the store closes by itself.
    pub fn doubt(&self) {
        self.in_doubt.cancel();
    }

    /// Whether new watches fail.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Ends a watch, as if its reader had been too slow, whatever is still queued.
    pub fn cut_watch(&self) {
        self.cut.notify_one();
    }
}

#[async_trait::async_trait]
impl Backend for FailingBackend {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        if self.in_doubt.is_cancelled() {
            return Err(StoreError::Closed);
        }
        if self.is_full.load(Ordering::Relaxed) && !txn.may_use_disk_reserve {
            return Err(StoreError::DiskFull {
                path: "/full".into(),
            });
        }
        if self.is_far {
            tokio::time::sleep(WAY).await;
        }
        self.inner.txn(txn).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        if let Some(held) = &self.held
            && held.prefix == request.prefix
        {
            held.asked.add_permits(1);
            if let Ok(may_answer) = held.may_answer.acquire().await {
                may_answer.forget();
            }
        }
        self.inner.range(request).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(StoreError::Engine {
                what: "watch".to_owned(),
                source: "away".into(),
            });
        }
        let mut events = self.inner.watch(prefix, from).await?;
        if let Some(shown) = self.remote.clone() {
            let one_by_one = events.then(move |event| {
                let shown = Arc::clone(&shown);
                async move {
                    if let Ok(place) = shown.acquire().await {
                        place.forget();
                    }
                    event
                }
            });
            events = one_by_one.boxed();
        }
        let watch = Some((events, Arc::clone(&self.cut)));
        let until_cut = stream::unfold(watch, |watch| async {
            let (mut events, cut) = watch?;
            tokio::select! {
                biased;
                () = cut.notified() => Some((Err(StoreError::WatcherTooSlow), None)),
                event = events.next() => event.map(|event| (event, Some((events, cut)))),
            }
        });
        Ok(until_cut.boxed())
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.inner.compact(to).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        match self.remote {
            Some(_) => None,
            None => self.inner.known_revision(),
        }
    }

    async fn hasten(&self, _revision: Revision) {
        if let Some(shown) = &self.remote {
            shown.add_permits(1);
        }
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn is_shared(&self) -> bool {
        self.is_shared || self.remote.is_some()
    }

    async fn backup(&self) -> Result<File, StoreError> {
        self.inner.backup().await
    }

    fn failure(&self) -> Option<String> {
        let in_doubt = self.in_doubt.is_cancelled();
        in_doubt.then(|| "the disk is in doubt".to_owned())
    }

    async fn closed(&self) {
        self.in_doubt.cancelled().await;
    }
}
