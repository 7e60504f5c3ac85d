//! Runs a controller's queue: several workers, one reconcile a key, failures back into the queue.
//!
//! A reconcile that fails, hangs or panics costs its own key a back-off and nothing else.

use std::{
    fmt::Display, future::Future, hash::Hash, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    cache::Key,
    errors::{is_conflict, is_not_found},
    work_queue::WorkQueue,
};

/// Longest time one reconcile may take.
const RECONCILE_DEADLINE: Duration = Duration::from_secs(60);
/// So many runs have waited for it when what is awaited is told: by the queue's back-off for 80
/// seconds.
const AWAITED_RUNS: u32 = 15;

/// Why a reconcile failed. The queue tries again in every case.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A call to the API server.
    #[error("{call}")]
    Api {
        /// What was to be done by it.
        call: &'static str,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// Something is not there yet; said in full by the text.
    #[error("{0}")]
    NotYet(String),
    /// The same of what mostly comes by itself within moments: told only if it does not.
    #[error("{0}")]
    Awaited(String),
}

/// Names the call that a [`kube::Error`] came from.
pub trait CallContext<T> {
    /// Names it.
    ///
    /// # Errors
    /// [`ReconcileError::Api`] if the call failed.
    fn during(self, call: &'static str) -> Result<T, ReconcileError>;
}

impl<T> CallContext<T> for Result<T, kube::Error> {
    fn during(self, call: &'static str) -> Result<T, ReconcileError> {
        self.map_err(|source| ReconcileError::Api { call, source })
    }
}

impl ReconcileError {
    /// Whether another writer was quicker: expected now and then, and not worth a warning.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_conflict(source))
    }

    /// Whether it is told that this run, the last of so many that failed, has failed: once for
    /// what is awaited.
    fn is_told(&self, failures: u32) -> bool {
        !matches!(self, Self::Awaited(_)) || failures == AWAITED_RUNS
    }
}

/// Turns a lost race into `None`, for writes to objects whose every change queues the key of this
/// reconcile again.
///
/// A conflict says that there is a newer version than the cached one; its event is on the way, so
/// nothing is retried and nothing is waited for.
///
/// # Errors
/// Every other failure.
pub fn or_event<T>(result: Result<T, ReconcileError>) -> Result<Option<T>, ReconcileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.is_conflict() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Turns failures that are `expected` into `None`.
///
/// # Errors
/// Every other failure.
pub fn ignore<T>(
    result: kube::Result<T>,
    expected: impl Fn(&kube::Error) -> bool,
) -> kube::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if expected(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Turns "not found" into `None`: an object that is gone needs no change.
///
/// # Errors
/// Every other failure.
pub fn ignore_missing<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    ignore(result, is_not_found)
}

/// `Some(delay)` asks for another run although nothing failed.
pub type Outcome = Result<Option<Duration>, ReconcileError>;

/// What a controller does about one object.
pub trait Reconciler: Send + Sync + 'static {
    /// Brings about what the object with `key` asks for, as far as that goes now. Repeatable: it
    /// may be cut off at any await.
    fn reconcile(&self, key: Key) -> impl Future<Output = Outcome> + Send;
}

/// Works `queue` off with `workers` tasks until `shutdown`.
pub async fn run<K, F, Fut>(
    name: &'static str,
    queue: Arc<WorkQueue<K>>,
    workers: usize,
    shutdown: CancellationToken,
    reconcile: F,
) where
    K: Clone + Eq + Hash + Display + Send + Sync + 'static,
    F: Fn(K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let reconcile: Reconcile<K> = Arc::new(move |key| reconcile(key).boxed());
    run_boxed(name, queue, workers, shutdown, reconcile).await;
}

/// Boxed, so that it is compiled once, and an idle worker holds no memory for what it is not doing.
type Reconcile<K> = Arc<dyn Fn(K) -> BoxFuture<'static, Outcome> + Send + Sync>;

async fn run_boxed<K>(
    name: &'static str,
    queue: Arc<WorkQueue<K>>,
    workers: usize,
    shutdown: CancellationToken,
    reconcile: Reconcile<K>,
) where
    K: Clone + Eq + Hash + Display + Send + Sync + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (queue, reconcile) = (queue.clone(), reconcile.clone());
        coracle_telemetry::spawn_in(&mut tasks, "a worker of a controller", async move {
            while let Some(key) = queue.next().await {
                work(name, &queue, key, &reconcile).await;
            }
        });
    }
    tokio::select! {
        () = shutdown.cancelled() => {}
        // A reconcile that panics is caught: this is the queue or the worker itself.
        ended = tasks.join_next() => panic!("a worker of {name} has ended: {ended:?}"),
    }
    queue.close();
    // Workers that are amid a call are cut off: every action is repeatable.
    tasks.shutdown().await;
}

async fn work<K>(name: &'static str, queue: &WorkQueue<K>, key: K, reconcile: &Reconcile<K>)
where
    K: Clone + Eq + Hash + Display,
{
    let run = AssertUnwindSafe(reconcile(key.clone())).catch_unwind();
    match tokio::time::timeout(RECONCILE_DEADLINE, run).await {
        Ok(Ok(Ok(again))) => {
            queue.forget(&key);
            if let Some(delay) = again {
                queue.add_after(key.clone(), delay);
            }
        }
        Ok(Ok(Err(failure))) => {
            let failures = queue.add_rate_limited(key.clone());
            if failure.is_conflict() {
                debug!(controller = name, %key, error = &failure as &dyn std::error::Error, "conflict, trying again");
            } else if failure.is_told(failures) {
                warn!(controller = name, %key, error = &failure as &dyn std::error::Error, "reconcile failed, trying again");
            } else {
                debug!(controller = name, %key, error = &failure as &dyn std::error::Error, "waiting");
            }
        }
        Ok(Err(_panic)) => {
            error!(controller = name, %key, "reconcile panicked, trying again");
            queue.add_rate_limited(key.clone());
        }
        Err(_elapsed) => {
            warn!(controller = name, %key, "reconcile took too long, trying again");
            queue.add_rate_limited(key.clone());
        }
    }
    queue.done(&key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_awaited_is_told_once_it_has_not_come_for_long() {
        let told = |error: &ReconcileError| (1..=1000).filter(|runs| error.is_told(*runs)).count();
        assert_eq!(told(&ReconcileError::Awaited("it".to_owned())), 1);
        assert!(!ReconcileError::Awaited("it".to_owned()).is_told(AWAITED_RUNS - 1));
        assert_eq!(told(&ReconcileError::NotYet("it".to_owned())), 1000);
    }
}
