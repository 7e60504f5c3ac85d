//! Cores for what is large: worked on beside the runtime's threads, in turn.

use std::{future::poll_fn, task::Poll};

use coracle_api::status::Status;
#[cfg(test)]
use tokio::sync::SemaphorePermit;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

use super::{LARGE, LARGE_WAIT, Limits, Rank, Requester, too_many};
use crate::slow::{Step, Timing};

impl Limits {
    /// Does `work`, which has `size` bytes to chew on. What is large is worked on beside the
    /// runtime's threads, as many at once as there are cores to spare, and one of each identity:
    /// who asks for something small does not wait for it. While `work` waits itself, as for a
    /// webhook, its core is somebody else's.
    ///
    /// # Errors
    /// `work`'s, and 429 when no core came free, or too much of the same identity waits for one.
    pub(crate) async fn worked_on<T>(
        &self,
        requester: Requester,
        size: usize,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        if size < LARGE {
            return work.await;
        }
        let is_other = requester.rank == Rank::Other;
        let _line = if is_other {
            Some(
                self.large_bytes
                    .take(requester.flow, size)
                    .ok_or_else(too_many)?,
            )
        } else {
            None
        };
        let place = async || {
            if is_other {
                let lock = self.one_large.lock(requester.flow).await;
                (Some(lock), self.large.acquire().await)
            } else {
                (None, self.large_of_ours.acquire().await)
            }
        };
        let timing = Timing::of(Step::Queue);
        let Ok(mut held) = tokio::time::timeout(LARGE_WAIT, place()).await else {
            return Err(too_many());
        };
        drop(timing);
        let mut work = Box::pin(work);
        loop {
            let step = poll_fn(|cx| Poll::Ready(in_place(|| work.as_mut().poll(cx))));
            if let Poll::Ready(done) = step.await {
                return done;
            }
            drop(held);
            woken().await;
            // What has begun is not refused any more: those before it work, and wait for nobody.
            held = place().await;
        }
    }

    /// Does `work`, which goes through `size` bytes without a pause, as [`Limits::worked_on`] does.
    ///
    /// # Errors
    /// 429 when no core came free.
    pub(crate) async fn beside<T>(
        &self,
        size: usize,
        work: impl FnOnce() -> T,
    ) -> Result<T, Status> {
        if size < LARGE {
            return Ok(work());
        }
        let Ok(Ok(_permit)) = tokio::time::timeout(LARGE_WAIT, self.large.acquire()).await else {
            return Err(too_many());
        };
        Ok(in_place(work))
    }

    /// All cores for large bodies of everybody else: what is large waits.
    #[cfg(test)]
    pub(crate) async fn take_cores(&self) -> SemaphorePermit<'_> {
        let all = u32::try_from(self.large.available_permits()).unwrap();
        self.large.acquire_many(all).await.unwrap()
    }

    /// Bytes of large bodies that wait for a core or have one.
    #[cfg(test)]
    pub(crate) fn large_bytes(&self) -> usize {
        self.large_bytes.taken()
    }
}

/// Does `work` beside the runtime's threads.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        // One thread alone, as in tests: there is nothing beside it.
        _ => work(),
    }
}

/// Until somebody wakes the task: what it has polled before can go on.
async fn woken() {
    let mut has_slept = false;
    poll_fn(|_| match std::mem::replace(&mut has_slept, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
