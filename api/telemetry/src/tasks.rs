//! Tasks with a name and one policy: none ends unnoticed.
//!
//! ```text
//! Tasks::add    ends early or panics > told > the group's token is cancelled > whoever runs the group starts it anew
//! Tasks::keep   fails, ends or panics > told, unwell > started again after a pause > well once it has run for STEADY
//! spawn         panics > told              (one that has an end: a connection, a clean-up)
//! spawn_in      panics > told              (the same, in a JoinSet)
//! spawn_tracked panics > told              (the same, in a TaskTracker)
//! ```
//!
//! `clippy.toml` forbids `tokio::spawn`, `JoinSet::spawn` and `TaskTracker::spawn` everywhere else.

use std::{
    any::Any,
    collections::HashMap,
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::task::{AbortHandle, Id, JoinError, JoinHandle, JoinSet};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Backoff, ErrorChain, ExponentialBackoff, Health};

/// A task that was started again counts as well after it has run this long.
const STEADY: Duration = Duration::from_secs(10);
/// How long one that is cut off gets to come to its next await.
const CUT_OFF: Duration = Duration::from_secs(1);

/// A task that belongs to no group for it has an end of its own. A panic in it is told; who holds
/// the handle sees it, too.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    run: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    tokio::spawn(told(name, run.boxed()))
}

/// As [`spawn`], in a set: for one who wants what the tasks return, or ends them all by dropping
/// it.
pub fn spawn_in<T: Send + 'static>(
    set: &mut JoinSet<T>,
    name: &'static str,
    run: impl Future<Output = T> + Send + 'static,
) -> AbortHandle {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    set.spawn(told(name, run.boxed()))
}

/// As [`spawn`], counted by a tracker: for one who waits until all are through.
pub fn spawn_tracked<T: Send + 'static>(
    tracker: &TaskTracker,
    name: &'static str,
    run: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    tracker.spawn(told(name, run.boxed()))
}

/// Boxed, so that what a runtime makes of a task is compiled once a kind of outcome and not once a
/// task: some 2,000 lines of LLVM's code each.
async fn told<T>(name: &'static str, run: BoxFuture<'static, T>) -> T {
    match caught(run).await {
        Ok(value) => value,
        Err(panic) => {
            tracing::error!(task = name, panic = panic.text(), "panicked");
            panic.resume()
        }
    }
}

/// A panic that was caught.
pub struct Panicked(Box<dyn Any + Send>);

impl Panicked {
    /// What it said.
    #[must_use]
    pub fn text(&self) -> &str {
        let text = self.0.downcast_ref::<&str>().copied();
        text.or_else(|| self.0.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("without words")
    }

    /// Lets it go on.
    pub fn resume(self) -> ! {
        resume_unwind(self.0)
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panicked").field(&self.text()).finish()
    }
}

/// Runs to its end or to its panic, which the caller tells of and makes good: what it shared with
/// others may be half done.
///
/// # Errors
/// The panic.
pub async fn caught<T>(run: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(run).catch_unwind().await.map_err(Panicked)
}

/// Why a group has ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// A task has panicked: what it fed would go on with a picture that no longer changes.
    #[error("{task} has died")]
    Died {
        /// Which.
        task: &'static str,
        /// How.
        #[source]
        source: JoinError,
    },
    /// A task has come to its end.
    #[error("{task} has ended")]
    Ended {
        /// Which.
        task: &'static str,
    },
}

impl TaskEnded {
    /// The name of the task.
    #[must_use]
    pub fn task(&self) -> &'static str {
        match self {
            Self::Died { task, .. } | Self::Ended { task } => task,
        }
    }
}

/// Tasks that live and end together. Dropped, it ends them where they are.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    stop: CancellationToken,
}

impl Tasks {
    /// A group without tasks that ends with `stop`, and cancels it if a task ends early. Give it a
    /// child of the token that others share.
    #[must_use]
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            names: HashMap::new(),
            stop,
        }
    }

    /// What the group's tasks end with.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// A task that runs until the group is told to stop; if it ends or panics before, so does the
    /// group.
    pub fn add(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the place; `judge` tells of a panic"
        )]
        let id = self.set.spawn(run.boxed()).id();
        self.names.insert(id, name);
    }

    /// A task that is started again whenever it ends, fails or panics, after a pause; until it has
    /// run for a while it is unwell. `start` gets a token that ends with the group's.
    pub fn keep<F>(
        &mut self,
        name: &'static str,
        pauses: ExponentialBackoff,
        health: &Health,
        start: impl Fn(CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output: Outcome> + Send + 'static,
    {
        health.tell(name, true);
        self.add(
            name,
            keep(name, pauses, self.stop.clone(), health.clone(), start),
        );
    }

    /// Leaves tasks to themselves that are kept: they end with the group's token, and nobody waits
    /// for them.
    pub fn detach(mut self) {
        self.set.detach_all();
    }

    /// Waits until the group is told to stop, or for the first task that ends before that: this
    /// ends the group. Cancel-safe.
    ///
    /// # Errors
    /// Which task it was.
    pub async fn watch(&mut self) -> Result<(), TaskEnded> {
        let ended = self.first_end().await;
        if ended.is_err() {
            self.stop.cancel();
        }
        ended
    }

    /// As [`Tasks::watch`], and leaves the others running: for a group that has to outlive those it
    /// works for, and is ended by [`Tasks::finish`] after them.
    ///
    /// # Errors
    /// Which task it was.
    pub async fn first_end(&mut self) -> Result<(), TaskEnded> {
        let ended = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(()),
            Some(ended) = self.set.join_next_with_id() => ended,
            else => {
                self.stop.cancelled().await;
                return Ok(());
            }
        };
        // Stop and the end of a task that follows it come in any order.
        if self.stop.is_cancelled() && ended.is_ok() {
            return Ok(());
        }
        let failure = self.judge(ended);
        tracing::error!(error = %ErrorChain(&failure), "a task has ended early; what belongs to it ends");
        Err(failure)
    }

    /// Tells all to stop and waits for them; what has not ended after `limit` is cut off and named
    /// in a warning.
    pub async fn finish(&mut self, limit: Duration) {
        self.stop.cancel();
        let rest = async {
            while let Some(ended) = self.set.join_next_with_id().await {
                if ended.is_err() {
                    let failure = self.judge(ended);
                    tracing::error!(error = %ErrorChain(&failure), "a task died as it should end");
                } else if let Ok((id, ())) = ended {
                    self.names.remove(&id);
                }
            }
        };
        if tokio::time::timeout(limit, rest).await.is_err() {
            let tasks: Vec<&str> = self.names.values().copied().collect();
            tracing::warn!(?tasks, "did not end in time");
            // One that is stuck outside of any await cannot be cut off, and the process is to end
            // all the same.
            let _ = tokio::time::timeout(CUT_OFF, self.set.shutdown()).await;
        }
    }

    fn judge(&mut self, ended: Result<(Id, ()), JoinError>) -> TaskEnded {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let task = self.names.remove(&id).unwrap_or("a task");
        match ended {
            Ok(_) => TaskEnded::Ended { task },
            Err(source) => TaskEnded::Died { task, source },
        }
    }
}

/// What a task that is kept may end with.
pub trait Outcome: Send {
    /// Why, if it failed.
    fn failure(&self) -> Option<&dyn Error>;
}

impl Outcome for () {
    fn failure(&self) -> Option<&dyn Error> {
        None
    }
}

impl<E: Error + Send + 'static> Outcome for Result<(), E> {
    fn failure(&self) -> Option<&dyn Error> {
        self.as_ref().err().map(|error| error as &dyn Error)
    }
}

async fn keep<F>(
    name: &'static str,
    pauses: ExponentialBackoff,
    stop: CancellationToken,
    health: Health,
    start: impl Fn(CancellationToken) -> F,
) where
    F: Future<Output: Outcome>,
{
    let mut backoff = Backoff::of(pauses);
    while !stop.is_cancelled() {
        // What `start` does before its first await may panic as well.
        let begun = catch_unwind(AssertUnwindSafe(|| start(stop.child_token())));
        let mut run = pin!(async move {
            match begun {
                Ok(run) => caught(run).await,
                Err(panic) => Err(Panicked(panic)),
            }
        });
        let ended = tokio::select! {
            ended = &mut run => ended,
            () = tokio::time::sleep(STEADY) => {
                health.tell(name, true);
                backoff.reset();
                run.await
            }
        };
        if stop.is_cancelled() {
            return;
        }
        health.tell(name, false);
        match ended {
            Ok(outcome) => match outcome.failure() {
                None => tracing::warn!(task = name, "ended; starting it again"),
                Some(error) => {
                    tracing::error!(task = name, error = %ErrorChain(error), "failed; starting it again")
                }
            },
            Err(panic) => tracing::error!(
                task = name,
                panic = panic.text(),
                "panicked; starting it again"
            ),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}

#[cfg(test)]
mod tests;
