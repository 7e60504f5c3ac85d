//! The one thread that writes. It takes what is queued, carries it out in one SQLite transaction,
//! and only when that is on disk does anybody see or hear of it.
//!
//! A batch fails or succeeds as a whole; for want of room its transactions are then tried one by
//! one. After a failure nothing of it exists: the index is changed by [`Writer::publish`] alone.
//! After an error that leaves the disk's state in doubt (a failed fsync, a damaged file) the thread
//! ends and the store is closed: what was acknowledged is on disk, and a new start finds it.

mod full;
mod stage;

use std::{
    collections::HashMap,
    fs::File,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use rusqlite::{Connection, ErrorCode, ffi};
use tokio::sync::mpsc;

use super::{
    Reply, Shared, engine_error,
    index::{Live, RowId},
    is_full, reclaim,
    reserve::Reserve,
    schema,
};
use crate::{
    error::StoreError,
    types::{Event, Revision, Txn, TxnOutcome},
};

/// Most transactions that share a commit. More would only make the first wait.
const BATCH_TXNS: usize = 256;
/// After a failure, when nobody writes, how long until space is reclaimed again.
const RECLAIMED_AGAIN: Duration = Duration::from_secs(5);

/// What the writer is asked to do.
pub(super) enum Job {
    /// See [`crate::Backend::txn`].
    Txn { txn: Txn, reply: Reply<TxnOutcome> },
    /// See [`crate::Backend::compact`].
    Compact { to: Revision, reply: Reply<()> },
}

/// The writing thread.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: mpsc::Receiver<Job>,
    /// Up to this row what compaction made garbage has been deleted.
    pub(super) reclaimed: RowId,
    /// There was enough garbage to begin with, and some is left.
    pub(super) is_reclaiming: bool,
    /// Pages may have become free since this was last looked at.
    pub(super) may_vacuum: bool,
    /// Held until the connection is closed.
    pub(super) lock: File,
    /// Room for when the disk is full.
    pub(super) reserve: Reserve,
    /// A page of the database.
    pub(super) page_bytes: u64,
    /// Nobody knows what the disk holds: nothing more is written.
    pub(super) is_in_doubt: bool,
}

/// The transactions of one commit.
#[derive(Default)]
struct Batch {
    /// What keys will be once the batch is committed.
    overlay: HashMap<Arc<str>, Option<Live>>,
    events: Vec<Event>,
    outcomes: Vec<TxnOutcome>,
    replies: Vec<Reply<TxnOutcome>>,
}

/// Whether the thread goes on.
enum Next {
    Work,
    Stop,
}

impl Writer {
    /// Works until every sender is gone or the disk is in doubt.
    pub(super) fn run(mut self) {
        while let Some(job) = self.wait() {
            if let Next::Stop = self.work(job) {
                break;
            }
        }
        self.close();
    }

    /// The next job. While none is there, garbage is removed.
    fn wait(&mut self) -> Option<Job> {
        loop {
            match self.jobs.try_recv() {
                Ok(job) => return Some(job),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            match self.idle_step() {
                Ok(true) => {}
                Ok(false) => return self.jobs.blocking_recv(),
                Err(error) if is_fatal(&error) => {
                    tracing::error!(error = %ErrorChain(&error), "closing the store: the state of the disk is in doubt");
                    self.is_in_doubt = true;
                    return None;
                }
                Err(error) => {
                    tracing::warn!(error = %ErrorChain(&error), "could not reclaim space in the store");
                    // A job tries again, too, or fails with what its caller can act on.
                    if let Some(job) = self.next_within(RECLAIMED_AGAIN) {
                        return job;
                    }
                }
            }
        }
    }

    /// What comes next, if it comes by then: a job, or that there are no more.
    fn next_within(&mut self, limit: Duration) -> Option<Option<Job>> {
        let clock = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        match clock {
            Ok(clock) => {
                clock.block_on(async { tokio::time::timeout(limit, self.jobs.recv()).await.ok() })
            }
            // Of a machine that has nothing left: whoever writes next tries again.
            Err(_) => Some(self.jobs.blocking_recv()),
        }
    }

    /// Removes a little garbage; says whether there may be more.
    fn idle_step(&mut self) -> rusqlite::Result<bool> {
        if let Some(to) = self.garbage() {
            self.reclaimed = reclaim::idle_step(&mut self.connection, self.reclaimed, to)?;
            self.may_vacuum = true;
        } else if self.may_vacuum {
            self.may_vacuum = self.vacuum()?;
        } else {
            self.reserve.ensure();
            self.tell_whether_full();
        }
        Ok(self.may_vacuum)
    }

    fn work(&mut self, job: Job) -> Next {
        let mut txns = Vec::new();
        let mut next = Some(job);
        while let Some(job) = next {
            match job {
                Job::Txn { txn, reply } => txns.push((txn, reply)),
                Job::Compact { to, reply } => {
                    // In order: what was queued before it is carried out before it.
                    if let Next::Stop = self.commit(std::mem::take(&mut txns)) {
                        return Next::Stop;
                    }
                    // A caller that has gone needs no answer.
                    let _ = reply.send(self.compact(to));
                }
            }
            next = if txns.len() < BATCH_TXNS {
                self.jobs.try_recv().ok()
            } else {
                None
            };
        }
        self.commit(txns)
    }

    fn commit(&mut self, txns: Vec<(Txn, Reply<TxnOutcome>)>) -> Next {
        let txns = if self.reserve.allows_growth() {
            txns
        } else {
            self.without_growth(txns)
        };
        let next = self.carry_out(txns);
        self.tell_whether_full();
        next
    }

    /// On a full disk it goes on with what may use the reserve, of which each round gives up some.
    /// What finds no room together is carried out one by one: a large write is not to fail small
    /// ones of others.
    fn carry_out(&mut self, mut left: Vec<(Txn, Reply<TxnOutcome>)>) -> Next {
        while !left.is_empty() {
            let (txns, replies): (Vec<Txn>, Vec<_>) = left.into_iter().unzip();
            let mut batch = Batch {
                replies,
                ..Batch::default()
            };
            let source = match self.stage_and_commit(&txns, &mut batch) {
                Ok(reclaimed) => {
                    self.may_vacuum |= reclaimed > self.reclaimed;
                    self.reclaimed = reclaimed;
                    *self.shared.failure.lock() = None;
                    self.publish(batch);
                    return Next::Work;
                }
                Err(source) => source,
            };
            if !is_full(&source) || !self.roll_back() {
                return self.fail(batch.replies, source);
            }
            self.shared
                .counters
                .times_full
                .fetch_add(1, Ordering::Relaxed);
            let all = txns.len();
            left = self.without_growth(txns.into_iter().zip(batch.replies).collect());
            // Without the others they may fit.
            if left.len() < all || self.make_room(&left) {
                continue;
            }
            if all == 1 {
                return self.fail(left.into_iter().map(|(_, reply)| reply).collect(), source);
            }
            return self.one_by_one(left);
        }
        Next::Work
    }

    fn one_by_one(&mut self, txns: Vec<(Txn, Reply<TxnOutcome>)>) -> Next {
        for one in txns {
            if let Next::Stop = self.carry_out(vec![one]) {
                return Next::Stop;
            }
        }
        Next::Work
    }

    /// Writes the whole batch to disk. Returns how far garbage was removed on the way.
    fn stage_and_commit(&mut self, txns: &[Txn], batch: &mut Batch) -> rusqlite::Result<RowId> {
        self.connection
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        let mut revision = self.shared.state.read().revision;
        for txn in txns {
            self.stage(txn, &mut revision, batch)?;
        }
        if batch.events.is_empty() {
            self.connection.prepare_cached("ROLLBACK")?.execute([])?;
            return Ok(self.reclaimed);
        }
        let reclaimed = match self.garbage() {
            Some(to) => reclaim::step(&self.connection, self.reclaimed, to, batch.events.len())?,
            None => self.reclaimed,
        };
        self.cover()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(reclaimed)
    }

    /// Makes a committed batch visible, tells the watchers, then those who wrote.
    fn publish(&self, batch: Batch) {
        let Batch {
            overlay,
            events,
            outcomes,
            replies,
        } = batch;
        self.shared
            .counters
            .txns
            .fetch_add(outcomes.len() as u64, Ordering::Relaxed);
        if let Some(last) = events.last() {
            let mut state = self.shared.state.write();
            for (key, staged) in overlay {
                match staged {
                    Some(live) => state.live.insert(key, live),
                    None => state.live.remove(&key),
                };
            }
            state.revision = last.kv.mod_revision;
            state.fanout.publish(last.kv.mod_revision, &events);
        }
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // A caller that has gone needs no answer.
            let _ = reply.send(Ok(outcome));
        }
    }

    /// Undoes the batch and tells everybody in it why.
    fn fail(&mut self, replies: Vec<Reply<TxnOutcome>>, source: rusqlite::Error) -> Next {
        let fatal = !self.roll_back() || is_fatal(&source);
        if fatal {
            tracing::error!(error = %ErrorChain(&source), "closing the store: the state of the disk is in doubt");
            self.is_in_doubt = true;
        }
        if !is_full(&source) {
            *self.shared.failure.lock() = Some(format!(
                "cannot write to {}: {source}",
                self.shared.dir.display()
            ));
        }
        let source = Arc::new(source);
        for reply in replies {
            let _ = reply.send(Err(engine_error(
                &self.shared.dir,
                "commit a batch",
                Arc::clone(&source),
            )));
        }
        if fatal { Next::Stop } else { Next::Work }
    }

    /// Leaves a failed batch behind; false if that cannot be done.
    fn roll_back(&self) -> bool {
        if self.connection.is_autocommit() {
            return true;
        }
        let undone = self.connection.execute_batch("ROLLBACK");
        if let Err(error) = &undone {
            tracing::error!(error = %ErrorChain(&error), "could not roll back a failed batch");
        }
        undone.is_ok()
    }

    /// Nothing is written: what a kill forgets of this is history that nobody has deleted yet, and
    /// whatever deletes some writes down how far it is compacted.
    fn compact(&mut self, to: Revision) -> Result<(), StoreError> {
        let mut state = self.shared.state.write();
        if to > state.revision {
            return Err(StoreError::Future {
                asked: to,
                current: state.revision,
            });
        }
        // From here on nobody begins to read what is older; then it may be deleted.
        state.compacted = state.compacted.max(to);
        drop(state);
        self.shared.pasts.compact(to);
        Ok(())
    }

    /// Up to where garbage is to be removed now. A little of it waits for more: rows that become
    /// garbage one after the other lie on the same pages, and each page is written once.
    fn garbage(&mut self) -> Option<RowId> {
        let compacted = self.shared.state.read().compacted;
        let waiting = compacted.0.saturating_sub(self.reclaimed.revision().0);
        let is_enough = waiting >= reclaim::WORTHWHILE || self.reserve.is_given_up();
        self.is_reclaiming = waiting > 0 && (self.is_reclaiming || is_enough);
        self.is_reclaiming.then(|| RowId::last_of(compacted))
    }

    /// Ends all watches and gives the directory free.
    fn close(self) {
        let Self {
            connection,
            shared,
            lock,
            jobs,
            reserve,
            is_in_doubt,
            ..
        } = self;
        let mut state = shared.state.write();
        state.closed = true;
        state.fanout.close();
        let compacted = state.compacted;
        drop(state);
        shared.readers.close();
        // Waiting callers get an answer when their job is dropped.
        drop(jobs);
        if !is_in_doubt && let Err(error) = schema::set_compacted(&connection, compacted) {
            tracing::warn!(error = %ErrorChain(&error), "could not write down how far history is compacted");
        }
        // Whoever copies the database alone gets all of it.
        if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        {
            tracing::warn!(error = %ErrorChain(&error), "could not empty the write-ahead log");
        }
        reserve.keep_log();
        if let Err((_, error)) = connection.close() {
            tracing::warn!(error = %ErrorChain(&error), "could not close the store cleanly");
        }
        drop((reserve, lock));
    }
}

/// Whether it is unknown what the disk holds.
fn is_fatal(error: &rusqlite::Error) -> bool {
    let Some(error) = error.sqlite_error() else {
        return false;
    };
    matches!(
        error.code,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase
    ) || matches!(
        error.extended_code,
        ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC
    )
}
