//! An etcd that has just become full. It looks how large it is before a transaction and once more
//! after it: of what was one too many it says that there is no room, and has carried it out.
//!
//! Source: `quotaApplierV3` in `etcd/server/etcdserver/apply` at v3.6.

use coracle_store::{Backend as _, Op, Revision, StoreError, Txn, TxnOutcome};

use super::EtcdBackend;
use crate::error::{CallError, write_failed};

impl EtcdBackend {
    /// What came of a transaction that etcd says it has no room for, sent when `known` was the
    /// newest revision.
    ///
    /// # Errors
    /// [`StoreError::Full`]: it is not there. [`StoreError::Unsure`]: that cannot be seen.
    pub(super) async fn without_room(
        &self,
        txn: &Txn,
        known: Revision,
        error: CallError,
    ) -> Result<TxnOutcome, StoreError> {
        let put = txn.ops.iter().find_map(|op| match op {
            Op::Put { key, value } => Some((key, value)),
            Op::Delete { .. } => None,
        });
        let Some((key, value)) = put else {
            return Err(write_failed(error));
        };
        match self.get(key).await {
            Ok(Some(found)) if found.value == *value && found.mod_revision > known => {
                Ok(TxnOutcome::Committed(found.mod_revision))
            }
            Ok(_) => Err(write_failed(error)),
            Err(_) => Err(StoreError::Unsure {
                source: Box::new(error),
            }),
        }
    }
}
