//! Questions to a task that owns what they are about: it answers between two of its own steps.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Notify, oneshot};

/// Those that wait for an answer. Clones are one, so that a task that is started again finds those
/// of its predecessor.
#[derive(Debug)]
pub(crate) struct Inquiries<T>(Arc<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    /// Locked for as long as one is put or all are taken.
    senders: Mutex<Vec<oneshot::Sender<T>>>,
    come: Notify,
}

impl<T> Clone for Inquiries<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Inquiries<T> {
    fn default() -> Self {
        Self(Arc::new(Waiting {
            senders: Mutex::default(),
            come: Notify::new(),
        }))
    }
}

impl<T> Inquiries<T> {
    /// Waits for the answer, for as long as it takes: the caller has a limit. `None` if nobody
    /// will give one.
    pub(crate) async fn ask(&self) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.lock().push(sender);
        self.0.come.notify_one();
        answer.await.ok()
    }

    /// Returns once somebody may be waiting. Cancel-safe.
    pub(crate) async fn come(&self) {
        self.0.come.notified().await;
    }

    /// Answers all who wait.
    pub(crate) fn answer(&self, answer: impl Fn() -> T) {
        let senders = mem::take(&mut *self.lock());
        for sender in senders.into_iter().filter(|sender| !sender.is_closed()) {
            // Who does not wait any more has been told to give up.
            let _ = sender.send(answer());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<oneshot::Sender<T>>> {
        let senders = self.0.senders.lock();
        senders.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_get_an_answer() {
        let inquiries = Inquiries::default();
        let answering = async {
            inquiries.come().await;
            inquiries.answer(|| 7);
        };
        let (one, two, ()) = tokio::join!(inquiries.ask(), inquiries.ask(), answering);
        assert_eq!((one, two), (Some(7), Some(7)));
    }
}
