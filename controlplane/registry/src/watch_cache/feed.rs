//! Feeds the cache from the store.
//!
//! One watch of everything under `/registry/`; each batch is applied to all resources it touches,
//! then the new revision is announced, then watchers are woken. The store queues a batch before it
//! acknowledges the writes in it. So whoever waits for a revision takes the batches up to it
//! himself ([`Source::pull`]) and need not wait for a task to be scheduled; the task takes what
//! nobody waits for.
//!
//! If the store cuts the watch off, the task resumes it; if the store has forgotten the point of
//! resumption, everything is loaded again and watchers are told that they lost events. Meanwhile
//! there is no stream and pulling does nothing.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use coracle_store::{Backend, Event, EventBatch, RangeRequest, Revision, StoreError, WatchStream};
use coracle_telemetry::{Backoff, ErrorChain};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    resource::{ResourceCache, Wake},
};

/// What the whole store is under.
const ROOT: &str = "/registry/";
/// Objects read from the store at once while loading; bounds what is held twice.
const PAGE: usize = 1000;
/// Batches the task applies before it lets others have their turn.
const BATCHES_AT_ONCE: usize = 16;
/// How often what has become too old is looked for.
const TRIM: Duration = Duration::from_secs(30);
/// Pauses after engine failures before the watch is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// The watch of the store. Whoever holds the lock applies what he takes, so batches stay in order.
#[derive(Default)]
pub(super) struct Source {
    stream: Mutex<Stream>,
    /// Wakes the task after somebody else polled the stream in vain or found its end.
    kick: Notify,
}

#[derive(Default)]
enum Stream {
    /// Taken by the task.
    #[default]
    Away,
    Live(WatchStream),
    /// Found to have ended: with an error, or because the store was closed.
    Ended(Option<StoreError>),
}

/// Why there is no stream any more.
enum End {
    Failed(StoreError),
    Closed,
}

impl Source {
    pub(super) fn put(&self, stream: WatchStream) {
        *self.stream.lock() = Stream::Live(stream);
    }

    /// Applies what is queued until `revision` is reached, without waiting.
    pub(super) fn pull(&self, shared: &Shared, revision: Revision) {
        let mut wakes = Vec::new();
        let mut stream = self.stream.lock();
        while shared.applied() < revision {
            // A stream that has something does not keep the waker.
            if stream
                .poll_apply(shared, &mut Context::from_waker(Waker::noop()), &mut wakes)
                .is_ready()
            {
                continue;
            }
            self.kick.notify_one();
            break;
        }
        drop(stream);
        wakes.into_iter().for_each(Wake::wake);
    }

    /// Applies what comes; ready when the stream has ended.
    fn poll_feed(&self, shared: &Shared, cx: &mut Context<'_>) -> Poll<End> {
        let mut wakes = Vec::new();
        let mut stream = self.stream.lock();
        let mut batches = 0;
        while batches < BATCHES_AT_ONCE && stream.poll_apply(shared, cx, &mut wakes).is_ready() {
            batches += 1;
        }
        let ended = match &mut *stream {
            Stream::Ended(why) => Some(why.take().map_or(End::Closed, End::Failed)),
            Stream::Live(_) | Stream::Away => None,
        };
        drop(stream);
        wakes.into_iter().for_each(Wake::wake);
        if batches == BATCHES_AT_ONCE {
            cx.waker().wake_by_ref();
        }
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// Nothing is applied as long as this is held.
    pub(super) fn hold(&self) -> impl Sized {
        self.stream.lock()
    }
}

impl Stream {
    /// Ready if a batch was applied.
    fn poll_apply(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
        wakes: &mut Vec<Wake>,
    ) -> Poll<()> {
        let Self::Live(stream) = self else {
            return Poll::Pending;
        };
        match stream.poll_next_unpin(cx) {
            Poll::Ready(Some(Ok(batch))) => {
                wakes.extend(apply(shared, &batch));
                Poll::Ready(())
            }
            Poll::Ready(end) => {
                *self = Self::Ended(end.and_then(Result::err));
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Applies a batch to all resources it touches and announces its revision; returns whom to wake.
fn apply(shared: &Shared, batch: &EventBatch) -> Vec<Wake> {
    let mut wakes = Vec::new();
    shared.aside.lock().keep(batch);
    // The order between resources within a batch is nobody's concern: none is announced before all
    // are applied.
    let mut rest: Vec<&Event> = batch.events.iter().collect();
    while let Some(first) = rest.first() {
        let Some(resource) = shared.resource_of(&first.kv.key) else {
            let unknown = Arc::clone(&first.kv.key);
            rest.retain(|event| event.kv.key != unknown);
            continue;
        };
        let prefix = &resource.config().prefix;
        let (mine, others): (Vec<&Event>, Vec<&Event>) = rest
            .into_iter()
            .partition(|event| event.kv.key.starts_with(prefix));
        wakes.push(resource.apply(&mine, batch.revision));
        rest = others;
    }
    shared.announce(batch.revision);
    wakes
}

/// The feeding task.
pub(super) struct Feed {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) shared: Arc<Shared>,
}

enum Input {
    End(End),
    Kick,
    Trim,
    Stop,
}

impl Feed {
    /// Feeds until `shutdown`, then ends all watches.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut trim = tokio::time::interval(TRIM);
        loop {
            let source = &self.shared.source;
            let input = tokio::select! {
                biased;
                () = shutdown.cancelled() => Input::Stop,
                () = source.kick.notified() => Input::Kick,
                _ = trim.tick() => Input::Trim,
                end = std::future::poll_fn(|cx| source.poll_feed(&self.shared, cx)) => Input::End(end),
            };
            match input {
                // The stream is polled again, and keeps this task's waker.
                Input::Kick => {}
                Input::Trim => {
                    for resource in self.shared.resources() {
                        resource.trim();
                    }
                }
                Input::End(End::Failed(error)) => {
                    tracing::warn!(error = %ErrorChain(&error), "the watch of the store broke off");
                    match self.resume(&shutdown).await {
                        Some(resumed) => source.put(resumed),
                        None => break,
                    }
                }
                Input::End(End::Closed) | Input::Stop => break,
            }
        }
        self.shared.close();
    }

    /// A new watch of the store after one broke off; `None` when there is no point.
    async fn resume(&self, shutdown: &CancellationToken) -> Option<WatchStream> {
        let mut retry = RETRY;
        loop {
            let resumed = match self.backend.watch(ROOT, self.shared.applied()).await {
                Err(StoreError::Compacted { .. }) => self.reload().await,
                other => other,
            };
            match resumed {
                Ok(stream) => return Some(stream),
                Err(StoreError::Closed) => return None,
                Err(error) => {
                    tracing::error!(error = %ErrorChain(&error), "cannot watch the store; trying again")
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(retry.pause()) => {}
            }
        }
    }

    async fn reload(&self) -> Result<WatchStream, StoreError> {
        // Before it is seen which resources there are: one that comes later is loaded after this.
        self.shared.aside.lock().mark_lost();
        let revision = self.backend.current_revision().await?;
        let mut wakes = Vec::new();
        for resource in self.shared.resources() {
            let mut objects = Vec::new();
            read_all(
                &*self.backend,
                &resource.config().prefix,
                revision,
                |page| objects.extend_from_slice(page),
            )
            .await?;
            wakes.push(resource.reset(&objects, revision));
        }
        self.shared.announce(revision);
        self.shared.aside.lock().goes_on();
        for wake in wakes {
            wake.wake();
        }
        self.backend.watch(ROOT, revision).await
    }
}

/// Loads the state of one resource at `revision`.
pub(super) async fn load(
    backend: &dyn Backend,
    resource: &ResourceCache,
    revision: Revision,
) -> Result<(), StoreError> {
    read_all(backend, &resource.config().prefix, revision, |page| {
        resource.load(page)
    })
    .await
}

/// Watches everything after `revision`.
pub(super) async fn watch(
    backend: &dyn Backend,
    revision: Revision,
) -> Result<WatchStream, StoreError> {
    backend.watch(ROOT, revision).await
}

async fn read_all(
    backend: &dyn Backend,
    prefix: &str,
    at: Revision,
    mut take: impl FnMut(&[coracle_store::KeyValue]),
) -> Result<(), StoreError> {
    let mut start = None;
    loop {
        let request = RangeRequest {
            prefix: prefix.to_owned(),
            start,
            limit: Some(PAGE),
            at: Some(at),
        };
        let page = backend.range(request).await?;
        take(&page.items);
        match page.items.last() {
            Some(last) if page.remaining > 0 => start = Some(format!("{}\0", last.key)),
            _ => return Ok(()),
        }
    }
}
