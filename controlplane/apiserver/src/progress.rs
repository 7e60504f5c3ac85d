//! Answers that do not get on: whoever sends one finds here by when it must have gone, or gone on.
//!
//! An answer has a minute, as a request has. One without an end, such as a watch, has a minute for
//! each piece: a client that stops reading is cut off, one to which there is nothing to say is not.
//! Of such an answer one piece is under way at a time, and followed until it has been sent: what is
//! held for a client that does not read is that piece.
//!
//! The body says how it stands, since it alone knows; who polls it looks: over HTTP/2 the stream's
//! own task, which is then dropped and so resets the stream alone; over HTTP/1.1 the connection. A
//! body cannot do this itself: nobody polls it while the client takes nothing.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

/// For a whole answer, or for each piece of one without an end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// Of the stream that this thread polls just now.
    static CURRENT: RefCell<Option<Arc<Progress>>> = const { RefCell::new(None) };
}

/// By when an answer must have got on.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Milliseconds since [`START`]; 0 while nothing is owed.
    due: AtomicU64,
    /// Whether it has no end: it then owes what has not been sent, and nothing else.
    is_lasting: AtomicBool,
    /// Bytes of one without an end that have been given away and not sent.
    unsent: AtomicUsize,
    /// Who waits for them to be sent.
    waiting: AtomicWaker,
}

impl Progress {
    /// Something is under way to the client.
    pub(crate) fn owe(&self, patience: Duration) {
        let due = START.elapsed().saturating_add(patience).as_millis();
        self.due.store(
            u64::try_from(due).unwrap_or(u64::MAX).max(1),
            Ordering::Relaxed,
        );
    }

    /// Nothing is.
    pub(crate) fn settle(&self) {
        self.due.store(0, Ordering::Relaxed);
    }

    /// What follows has no end, or has one.
    pub(crate) fn begin(&self, is_lasting: bool) {
        self.is_lasting.store(is_lasting, Ordering::Relaxed);
    }

    /// Waits until all that was given away has been sent.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unsent.load(Ordering::Acquire) > 0 {
            self.waiting.register(cx.waker());
            if self.unsent.load(Ordering::Acquire) > 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// A piece of an answer without an end, which is to be sent within `patience`.
    pub(crate) fn give(self: &Arc<Self>, piece: Bytes, patience: Duration) -> Bytes {
        self.unsent.fetch_add(piece.len(), Ordering::AcqRel);
        self.owe(patience);
        Bytes::from_owner(Piece {
            bytes: piece,
            progress: Arc::clone(self),
        })
    }

    /// By when what is under way must be gone.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.is_lasting.load(Ordering::Relaxed) && self.unsent.load(Ordering::Acquire) == 0 {
            return None;
        }
        match self.due.load(Ordering::Relaxed) {
            0 => None,
            millis => START.checked_add(Duration::from_millis(millis)),
        }
    }

    /// Of the stream that is being polled; `None` outside of HTTP/2.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }
}

/// Bytes that know when they have been sent: whoever sends them drops them then.
struct Piece {
    bytes: Bytes,
    progress: Arc<Progress>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let length = self.bytes.len();
        if self.progress.unsent.fetch_sub(length, Ordering::AcqRel) == length {
            self.progress.waiting.wake();
        }
    }
}

/// Runs the streams of HTTP/2 connections, and drops those whose answer does not get on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams;

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        #[expect(
            clippy::disallowed_methods,
            reason = "one a request: panics end in the handler, which tells of them"
        )]
        tokio::spawn(async move {
            let progress = Arc::new(Progress::default());
            let mut stream = pin!(stream);
            let mut alarm: Option<Pin<Box<Sleep>>> = None;
            poll_fn(|cx| {
                let before = CURRENT.replace(Some(Arc::clone(&progress)));
                let polled = stream.as_mut().poll(cx);
                CURRENT.set(before);
                if polled.is_ready() {
                    return Poll::Ready(());
                }
                let Some(due) = progress.due() else {
                    alarm = None;
                    return Poll::Pending;
                };
                // Most answers are gone by now: only those that wait for their client need a timer.
                let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
                if alarm.deadline() != due {
                    alarm.as_mut().reset(due);
                }
                alarm.as_mut().poll(cx)
            })
            .await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_owes_something_is_dropped_in_time() {
        let (told, ended) = tokio::sync::oneshot::channel::<()>();
        let started = Instant::now();
        Streams.execute(async move {
            let _told = told;
            Progress::current().unwrap().owe(PATIENCE);
            pending::<()>().await;
        });
        assert!(ended.await.is_err());
        let lasted = started.elapsed();
        assert!(lasted >= PATIENCE && lasted < PATIENCE * 2, "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_owes_nothing_lasts() {
        let (told, ended) = tokio::sync::oneshot::channel::<()>();
        Streams.execute(async move {
            let progress = Progress::current().unwrap();
            progress.owe(PATIENCE);
            tokio::time::sleep(PATIENCE / 2).await;
            progress.settle();
            tokio::time::sleep(PATIENCE * 10).await;
            told.send(()).unwrap();
        });
        assert!(ended.await.is_ok());
    }

    #[test]
    fn an_answer_without_an_end_owes_what_was_not_sent() {
        let progress = Arc::new(Progress::default());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        progress.begin(true);
        progress.owe(PATIENCE);
        assert_eq!(progress.due(), None, "nothing has been said yet");
        let piece = progress.give(Bytes::from_static(b"piece"), PATIENCE);
        assert!(progress.due().is_some() && progress.poll_sent(&mut cx).is_pending());
        let begun = piece.slice(..2);
        drop(piece);
        assert!(
            progress.poll_sent(&mut cx).is_pending(),
            "a part is under way"
        );
        drop(begun);
        assert!(progress.due().is_none() && progress.poll_sent(&mut cx).is_ready());
    }
}
