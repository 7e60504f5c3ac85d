//! Turns at what takes time of an answer that is under way: a piece at a time, beside the runtime's
//! threads, as many at once as there are cores to spare.
//!
//! Who waits for a turn waits in a task of its own, and gives the turn back when the piece is made:
//! a client that takes nothing, and whose answer nobody polls by then, holds none.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    task::{JoinError, spawn_blocking},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Limits, Rank, Requester,
    share::{Flow, FlowLocks},
};

/// The turns of one requester.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    /// One piece of an identity at a time: the line for a core has as many in it as there are
    /// identities. `None` for administrators and the parts of this process.
    one_of_flow: Option<(Arc<FlowLocks>, Flow)>,
    cores: Arc<Semaphore>,
}

/// What a turn is taken for; dropping it gives up.
pub(crate) type Working<T> = AbortOnDropHandle<Result<T, JoinError>>;

impl Limits {
    /// For the pieces of the answers to one requester.
    pub(crate) fn turns(&self, requester: Requester) -> Turns {
        if requester.rank == Rank::Other {
            Turns {
                one_of_flow: Some((Arc::clone(&self.one_piece), requester.flow)),
                cores: Arc::clone(&self.large),
            }
        } else {
            Turns {
                one_of_flow: None,
                cores: Arc::clone(&self.large_of_ours),
            }
        }
    }
}

impl Turns {
    /// Does `work` when it is its turn, where it may block.
    pub(crate) fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Working<T> {
        let turns = self.clone();
        AbortOnDropHandle::new(coracle_telemetry::spawn(
            "make a piece of an answer",
            async move {
                let lock = match turns.one_of_flow {
                    Some((locks, flow)) => Some(locks.lock(flow).await),
                    None => None,
                };
                // Never closed.
                let core = turns.cores.acquire_owned().await;
                // The turn lasts as long as the work, whoever has given up meanwhile.
                spawn_blocking(move || {
                    let done = work();
                    drop((lock, core));
                    done
                })
                .await
            },
        ))
    }
}
