//! A worker that panics is told of, and another takes its place after a pause.
//!
//! All that a worker has is memory: what holds is in the runtime, the API and its channel, and the
//! next one reads it there, as it does after a restart of the agent. Without one the pod would
//! never be synced, restarted or deleted again.

use std::{sync::Arc, time::Duration};

use coracle_telemetry::{Backoff, caught};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Desired, PodWorker};
use crate::{context::NodeContext, runtime::types::PodUid};

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A worker that has lived this long was well: the pause after it is the shortest again.
const STEADY: Duration = Duration::from_secs(600);

/// What every worker of one pod is made with.
pub(super) struct Revived {
    pub(super) ctx: Arc<NodeContext>,
    pub(super) uid: PodUid,
    pub(super) desired: watch::Receiver<Desired>,
    pub(super) wake: Arc<Notify>,
    pub(super) shutdown: CancellationToken,
}

impl Revived {
    /// Whether the pod has ended for good (and not just the agent).
    pub(super) async fn run(self) -> bool {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let begun = Instant::now();
            let panic = match caught(Box::pin(self.work())).await {
                Ok(ended) => return ended,
                Err(panic) => panic,
            };
            if begun.elapsed() >= STEADY {
                backoff.reset();
            }
            tracing::error!(
                uid = %self.uid.0,
                panic = panic.text(),
                "a pod's worker has panicked; starting another"
            );
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                () = tokio::time::sleep(backoff.pause()) => {}
            }
        }
    }

    async fn work(&self) -> bool {
        let worker = PodWorker::new(
            Arc::clone(&self.ctx),
            self.uid.clone(),
            self.desired.clone(),
            Arc::clone(&self.wake),
            self.shutdown.clone(),
        );
        worker.run().await
    }
}
