//! Bounded queues from an engine to its watchers.
//!
//! The engine publishes each batch once; every subscriber gets the part under its prefix. A
//! subscriber whose queue is full is cut off at once: an engine never waits for a reader. No
//! history here: engines keep their own.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::mpsc;

use crate::{
    error::StoreError,
    types::{Event, EventBatch, Revision},
};

/// Batches a watcher may lag behind. A batch is one group commit, at most some hundred events that
/// share their bytes with the rest of the process.
const QUEUE_BATCHES: usize = 1024;

/// The live watchers of one engine. Not synchronized: it lives inside the engine's lock, so that
/// subscribing and publishing are ordered with the revision.
#[derive(Default)]
pub(crate) struct Fanout {
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    prefix: String,
    queue: mpsc::Sender<EventBatch>,
    cut_off: Arc<AtomicBool>,
}

/// The receiving end of a subscription.
pub(crate) struct Subscription {
    queue: mpsc::Receiver<EventBatch>,
    cut_off: Arc<AtomicBool>,
}

impl Fanout {
    /// Starts delivering everything that is published from now on.
    pub(crate) fn subscribe(&mut self, prefix: &str) -> Subscription {
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let cut_off = Arc::new(AtomicBool::new(false));
        self.subscribers.push(Subscriber {
            prefix: prefix.to_owned(),
            queue: sender,
            cut_off: Arc::clone(&cut_off),
        });
        Subscription {
            queue: receiver,
            cut_off,
        }
    }

    /// Hands `events`, all that happened up to `revision`, to every subscriber.
    pub(crate) fn publish(&mut self, revision: Revision, events: &[Event]) {
        self.subscribers
            .retain(|subscriber| subscriber.offer(revision, events));
    }

    /// Ends every subscription without an error.
    pub(crate) fn close(&mut self) {
        self.subscribers.clear();
    }
}

impl Subscriber {
    /// Whether the subscriber stays.
    fn offer(&self, revision: Revision, events: &[Event]) -> bool {
        let events: Vec<Event> = events
            .iter()
            .filter(|event| event.kv.key.starts_with(&*self.prefix))
            .cloned()
            .collect();
        let only_progress = events.is_empty();
        match self.queue.try_send(EventBatch { revision, events }) {
            Ok(()) => true,
            // A later batch will carry a later revision.
            Err(mpsc::error::TrySendError::Full(_)) if only_progress => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.cut_off.store(true, Ordering::Release);
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

impl Subscription {
    /// The next batch; `None` once the engine is closed.
    ///
    /// # Errors
    /// [`StoreError::WatcherTooSlow`] after the last batch that was queued before the cut.
    pub(crate) async fn next(&mut self) -> Option<Result<EventBatch, StoreError>> {
        match self.queue.recv().await {
            Some(batch) => Some(Ok(batch)),
            None if self.cut_off.swap(false, Ordering::Acquire) => {
                Some(Err(StoreError::WatcherTooSlow))
            }
            None => None,
        }
    }
}
