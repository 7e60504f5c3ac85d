//! Small changes that the server makes by itself to what it keeps beside objects.

use coracle_api::status::Status;
use coracle_store::{Compare, Op, Txn, TxnOutcome};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Store, store_status};

/// So many at once: they share commits.
const AT_ONCE: usize = 64;

/// One change, and what it is for.
pub(crate) struct Amendment {
    /// What must still be so.
    pub(crate) compare: Vec<Compare>,
    /// The change.
    pub(crate) op: Op,
}

impl Store {
    /// Makes each change whose reason still holds, and says of each whether it was made. Whoever
    /// has taken away the reason of another has seen to it, or the next look does.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) async fn amend(&self, changes: Vec<Amendment>) -> Result<Vec<bool>, Status> {
        let txns = stream::iter(changes.into_iter().map(|change| {
            self.backend.txn(Txn {
                compare: change.compare,
                ops: vec![change.op],
                ..Txn::default()
            })
        }));
        txns.buffered(AT_ONCE)
            .map_ok(|outcome| matches!(outcome, TxnOutcome::Committed(_)))
            .try_collect()
            .await
            .map_err(store_status)
    }
}
