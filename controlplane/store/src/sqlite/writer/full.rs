//! What the writer does when there is no room: it goes on with what makes some.

use std::sync::atomic::Ordering;

use coracle_telemetry::ErrorChain;
use rusqlite::ffi;

use super::Writer;
use crate::{
    error::StoreError,
    sqlite::{Reply, read::row_value, reclaim},
    types::{Op, Txn, TxnOutcome},
};

/// On a full disk an update may make an object so many bytes larger, such as by a time of deletion.
const UPDATE_GROWTH: usize = 1024;

impl Writer {
    /// Gives up what these lack of the reserve; false if there is not as much.
    pub(super) fn make_room(&mut self, txns: &[(Txn, Reply<TxnOutcome>)]) -> bool {
        // Before a piece is given up: a checkpoint cuts the database's room off.
        self.begin_log_again();
        let values = txns
            .iter()
            .flat_map(|(txn, _)| &txn.ops)
            .map(|op| match op {
                Op::Put { value, .. } => value.len() as u64,
                Op::Delete { .. } => 0,
            });
        self.reserve.give_up(values.sum())
    }

    /// Moves the log into the database, so that the log can be written from its start again.
    fn begin_log_again(&self) {
        let begun = self
            .connection
            .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        if let Err(error) = begun {
            tracing::debug!(error = %ErrorChain(&error), "could not begin the write-ahead log again");
        }
    }

    /// Gives some free pages back; says whether there may be more. They are the disk's once a
    /// checkpoint has cut them off, for which nobody writes enough while it is full.
    pub(super) fn vacuum(&self) -> rusqlite::Result<bool> {
        let is_full = self.reserve.is_given_up();
        let may_go_on = reclaim::vacuum_step(&self.connection, is_full)?;
        if is_full && !may_go_on {
            self.begin_log_again();
        }
        Ok(may_go_on)
    }

    /// Tells who decides how much history is kept.
    pub(super) fn tell_whether_full(&self) {
        let is_full = self.reserve.is_given_up();
        self.shared.is_full.store(is_full, Ordering::Relaxed);
    }

    /// What may use the reserve; the others are told that there is no room.
    pub(super) fn without_growth(
        &self,
        txns: Vec<(Txn, Reply<TxnOutcome>)>,
    ) -> Vec<(Txn, Reply<TxnOutcome>)> {
        let (stays, grows): (Vec<_>, Vec<_>) = txns
            .into_iter()
            .partition(|(txn, _)| txn.may_use_disk_reserve && !self.grows(txn));
        for (_, reply) in grows {
            // A caller that has gone needs no answer.
            let _ = reply.send(Err(StoreError::DiskFull {
                path: self.shared.dir.clone(),
            }));
        }
        stays
    }

    /// Whether it makes an object, or one much larger.
    fn grows(&self, txn: &Txn) -> bool {
        txn.ops.iter().any(|op| {
            let Op::Put { key, value } = op else {
                return false;
            };
            let live = self.shared.state.read().live.get(key).copied();
            let before = live.and_then(|live| row_value(&self.connection, live.row).ok());
            before.is_none_or(|before| value.len() > before.len() + UPDATE_GROWTH)
        })
    }

    /// Sees to room for the database as it will be once the log is moved into it: a checkpoint
    /// tells nobody of a full disk.
    pub(super) fn cover(&mut self) -> rusqlite::Result<()> {
        let pages: u32 = self
            .connection
            .prepare_cached("PRAGMA page_count")?
            .query_row([], |row| row.get(0))?;
        self.reserve
            .cover(u64::from(pages) * self.page_bytes)
            .map_err(|error| {
                let is_full = error.kind() == std::io::ErrorKind::StorageFull;
                let code = if is_full {
                    ffi::SQLITE_FULL
                } else {
                    ffi::SQLITE_IOERR
                };
                rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
            })
    }
}
