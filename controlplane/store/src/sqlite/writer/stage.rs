//! What the transactions of a batch do, each on top of those before it: rows written in the open
//! SQLite transaction, and the keys as they will be once it is committed.

use std::sync::Arc;

use rusqlite::params;

use super::{Batch, Writer};
use crate::{
    sqlite::{
        index::{Live, RowId},
        read::row_value,
    },
    types::{Compare, Event, KeyValue, Op, Revision, Txn, TxnOutcome},
};

impl Writer {
    /// Adds what `txn` does to the batch; a comparison that does not hold is its outcome.
    pub(super) fn stage(
        &self,
        txn: &Txn,
        revision: &mut Revision,
        batch: &mut Batch,
    ) -> rusqlite::Result<()> {
        if !txn.compare.iter().all(|compare| self.holds(compare, batch)) {
            let now = txn
                .compare
                .iter()
                .map(|compare| self.present(compare.key(), batch))
                .collect::<Result<_, _>>()?;
            batch.outcomes.push(TxnOutcome::Conflict(now));
            return Ok(());
        }
        let next = Revision(revision.0 + 1);
        let events_before = batch.events.len();
        for (place, op) in txn.ops.iter().enumerate() {
            let row = RowId::new(next, place)
                .ok_or(rusqlite::Error::IntegralValueOutOfRange(0, i64::MAX))?;
            self.stage_op(op, row, batch)?;
        }
        if batch.events.len() > events_before {
            *revision = next;
        }
        batch.outcomes.push(TxnOutcome::Committed(*revision));
        Ok(())
    }

    fn stage_op(&self, op: &Op, row: RowId, batch: &mut Batch) -> rusqlite::Result<()> {
        let before = self.known(op.key(), batch);
        let (value, deleted) = match (op, &before) {
            (Op::Put { value, .. }, _) => (value.clone(), false),
            (Op::Delete { .. }, Some((_, live))) => (row_value(&self.connection, live.row)?, true),
            (Op::Delete { .. }, None) => return Ok(()),
        };
        let revision = row.revision();
        // The key that is known already, so that all share its bytes.
        let (key, prev_row, create_revision) = match before {
            Some((key, live)) => (key, live.row.0, live.create_revision),
            None => (Arc::clone(op.key()), 0, revision),
        };
        self.connection
            .prepare_cached(
                "INSERT INTO log (id, prev_id, create_revision, deleted, key, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                row.0,
                prev_row,
                create_revision.0.cast_signed(),
                deleted,
                &*key,
                (!deleted).then_some(&*value)
            ])?;
        batch.overlay.insert(
            Arc::clone(&key),
            (!deleted).then_some(Live {
                row,
                create_revision,
            }),
        );
        let kv = KeyValue {
            key,
            value,
            create_revision,
            mod_revision: revision,
        };
        batch.events.push(Event { kv, deleted });
        Ok(())
    }

    fn holds(&self, compare: &Compare, batch: &Batch) -> bool {
        match compare {
            Compare::Absent(key) => self.known(key, batch).is_none(),
            Compare::Present(key) => self.known(key, batch).is_some(),
            Compare::ModRevision(key, revision) => self
                .known(key, batch)
                .is_some_and(|(_, live)| live.row.revision() == *revision),
        }
    }

    /// A key and its state as this batch leaves it so far.
    fn known(&self, key: &Arc<str>, batch: &Batch) -> Option<(Arc<str>, Live)> {
        match batch.overlay.get_key_value(key) {
            Some((key, staged)) => staged.map(|live| (Arc::clone(key), live)),
            None => self
                .shared
                .state
                .read()
                .live
                .get_key_value(key)
                .map(|(key, live)| (Arc::clone(key), *live)),
        }
    }

    /// As [`Writer::known`], with the value.
    fn present(&self, key: &Arc<str>, batch: &Batch) -> rusqlite::Result<Option<KeyValue>> {
        let Some((key, live)) = self.known(key, batch) else {
            return Ok(None);
        };
        let value = row_value(&self.connection, live.row)?;
        let Live {
            row,
            create_revision,
        } = live;
        Ok(Some(KeyValue {
            key,
            value,
            create_revision,
            mod_revision: row.revision(),
        }))
    }
}
