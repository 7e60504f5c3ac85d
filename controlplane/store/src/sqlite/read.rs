//! Reading: the present by the index, the past by undoing what came later (`past`),
//! history for watches.
//!
//! A read holds the index just long enough to note rows and to begin a snapshot of the file. The
//! file may be ahead of the index by one batch, never behind it; and compaction deletes a row only
//! after the index has stopped pointing to it, so every noted row is in the snapshot.

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use rusqlite::{Connection, params};

use super::{
    Shared, engine_error,
    index::{Live, RowId},
    schema,
};
use crate::{
    backend::WatchStream,
    error::StoreError,
    fanout::Subscription,
    types::{Event, EventBatch, KeyValue, RangeRequest, RangeResponse, Revision},
};

/// Reader connections kept open for the next read.
const IDLE_READERS: usize = 2;
/// Events read from history at once, whole revisions.
const HISTORY_EVENTS: usize = 256;

/// Connections for reading, opened as needed.
pub(super) struct Readers {
    path: PathBuf,
    /// `None` once the store is closed.
    idle: Mutex<Option<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
        }
    }

    /// No read begins after this.
    pub(super) fn close(&self) {
        *self.idle.lock() = None;
    }

    fn take(&self) -> Result<Option<Connection>, StoreError> {
        Ok(self.idle.lock().as_mut().ok_or(StoreError::Closed)?.pop())
    }

    fn give_back(&self, connection: Connection) {
        if let Some(idle) = self
            .idle
            .lock()
            .as_mut()
            .filter(|idle| idle.len() < IDLE_READERS)
        {
            idle.push(connection);
        }
    }
}

/// Runs `read` on a connection of its own, where it may block.
pub(super) async fn on_reader<T: Send + 'static>(
    shared: Arc<Shared>,
    read: impl FnOnce(&Shared, &mut Connection) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let blocking = move || {
        let mut connection = match shared.readers.take()? {
            Some(connection) => connection,
            None => schema::open_reader(&shared.readers.path)
                .map_err(failed(&shared, "open a reader"))?,
        };
        let result = read(&shared, &mut connection);
        shared.readers.give_back(connection);
        result
    };
    // Fails only when the runtime is going down.
    tokio::task::spawn_blocking(blocking)
        .await
        .map_err(|_| StoreError::Closed)?
}

/// One key, now.
pub(super) fn get(
    shared: &Shared,
    connection: &mut Connection,
    key: &str,
) -> Result<Option<KeyValue>, StoreError> {
    let failed = failed(shared, "read a key");
    let (snapshot, found) = {
        let state = shared.state.read();
        let found = state
            .live
            .get_key_value(key)
            .map(|(key, live)| (Arc::clone(key), *live));
        (begin(connection).map_err(&failed)?, found)
    };
    found
        .map(|(key, live)| key_value(&snapshot, key, live))
        .transpose()
        .map_err(failed)
}

/// See [`crate::Backend::range`].
pub(super) fn range(
    shared: &Shared,
    connection: &mut Connection,
    request: &RangeRequest,
) -> Result<RangeResponse, StoreError> {
    let failed = failed(shared, "read a range");
    let past = match request.at {
        Some(at) => {
            shared.state.read().check(at)?;
            Some(shared.pasts.of(at))
        }
        None => None,
    };
    let outline = past.as_ref().map(|past| past.outline(request));
    let outline = outline.unwrap_or_default();
    let (snapshot, unchanged, at, current) = {
        let state = shared.state.read();
        let at = request.at.unwrap_or(state.revision);
        state.check(at)?;
        let unchanged = state.unchanged(request, at, &outline);
        let snapshot = begin(connection).map_err(&failed)?;
        (snapshot, unchanged, at, state.revision)
    };
    let (rows, left) = match past {
        Some(past) => past
            .page(&snapshot, request, (&outline, unchanged), current)
            .map_err(&failed)?,
        None => (unchanged.rows, unchanged.count),
    };
    let remaining = left.saturating_sub(rows.len());
    let items = rows
        .into_iter()
        .map(|(key, live, row)| match live {
            Some(live) => key_value(&snapshot, key, live),
            None => past_key_value(&snapshot, key, row),
        })
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    Ok(RangeResponse {
        items,
        revision: at,
        remaining,
    })
}

/// See [`crate::Backend::watch`].
pub(super) fn watch(
    shared: &Arc<Shared>,
    prefix: &str,
    from: Revision,
) -> Result<WatchStream, StoreError> {
    let (subscription, current) = {
        let mut state = shared.state.write();
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.check(from)?;
        (state.fanout.subscribe(prefix), state.revision)
    };
    // The watch does not keep the store open.
    let watch = Watch {
        shared: Arc::downgrade(shared),
        prefix: prefix.to_owned(),
        next: from,
        until: current,
        subscription,
    };
    let stream = futures::stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        let item = watch.next().await?;
        let rest = item.is_ok().then_some(watch);
        Some((item, rest))
    });
    Ok(stream.boxed())
}

/// The state of one watch: history up to `until`, then what is published.
struct Watch {
    shared: Weak<Shared>,
    prefix: String,
    next: Revision,
    until: Revision,
    subscription: Subscription,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<EventBatch, StoreError>> {
        if self.next >= self.until {
            return self.subscription.next().await;
        }
        let shared = self.shared.upgrade()?;
        let (prefix, after, until) = (self.prefix.clone(), self.next, self.until);
        let batch = on_reader(shared, move |shared, connection| {
            history(shared, connection, &prefix, after, until)
        })
        .await;
        if let Ok(batch) = &batch {
            self.next = batch.revision;
        }
        Some(batch)
    }
}

/// Events in `(after, until]` under `prefix`, or a first part of them that ends with a revision.
fn history(
    shared: &Shared,
    connection: &mut Connection,
    prefix: &str,
    after: Revision,
    until: Revision,
) -> Result<EventBatch, StoreError> {
    let failed = failed(shared, "read history");
    let snapshot = {
        let state = shared.state.read();
        state.check(after)?;
        begin(connection).map_err(&failed)?
    };
    read_history(&snapshot, prefix, after, until).map_err(failed)
}

fn read_history(
    connection: &Connection,
    prefix: &str,
    after: Revision,
    until: Revision,
) -> rusqlite::Result<EventBatch> {
    let mut statement = connection.prepare_cached(
        "SELECT id, prev_id, create_revision, deleted, key, value FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id",
    )?;
    let mut rows = statement.query(params![RowId::last_of(after).0, RowId::last_of(until).0])?;
    let mut batch = EventBatch {
        revision: after,
        events: Vec::new(),
    };
    while let Some(row) = rows.next()? {
        let revision = RowId(row.get(0)?).revision();
        // Only between two revisions: who goes on from here must not miss half of one.
        if revision > batch.revision && batch.events.len() >= HISTORY_EVENTS {
            return Ok(batch);
        }
        batch.revision = revision;
        let key = row.get_ref(4)?.as_str()?;
        if !key.starts_with(prefix) {
            continue;
        }
        let key: Arc<str> = key.into();
        let deleted = row.get(3)?;
        // A deletion has no value of its own: what it took away is in the row before.
        let value = if deleted {
            row_value(connection, RowId(row.get(1)?))?
        } else {
            Bytes::copy_from_slice(row.get_ref(5)?.as_blob()?)
        };
        let create_revision = Revision(row.get::<_, i64>(2)?.unsigned_abs());
        let kv = KeyValue {
            key,
            value,
            create_revision,
            mod_revision: revision,
        };
        batch.events.push(Event { kv, deleted });
    }
    batch.revision = until;
    Ok(batch)
}

/// A transaction whose snapshot begins now; it ends when it is dropped.
pub(super) fn begin(connection: &mut Connection) -> rusqlite::Result<rusqlite::Transaction<'_>> {
    let transaction = connection.transaction()?;
    // The first read takes the snapshot.
    transaction
        .prepare_cached("SELECT 1 FROM meta LIMIT 1")?
        .query_row([], |_| Ok(()))?;
    Ok(transaction)
}

/// The value in a row.
pub(super) fn row_value(connection: &Connection, row: RowId) -> rusqlite::Result<Bytes> {
    connection
        .prepare_cached("SELECT value FROM log WHERE id = ?1")?
        .query_row([row.0], |found| {
            Ok(Bytes::copy_from_slice(found.get_ref(0)?.as_blob()?))
        })
}

fn key_value(connection: &Connection, key: Arc<str>, live: Live) -> rusqlite::Result<KeyValue> {
    let Live {
        row,
        create_revision,
    } = live;
    Ok(KeyValue {
        key,
        value: row_value(connection, row)?,
        create_revision,
        mod_revision: row.revision(),
    })
}

fn past_key_value(
    connection: &Connection,
    key: Arc<str>,
    row: RowId,
) -> rusqlite::Result<KeyValue> {
    connection
        .prepare_cached("SELECT create_revision, value FROM log WHERE id = ?1")?
        .query_row([row.0], |found| {
            Ok(KeyValue {
                key,
                value: Bytes::copy_from_slice(found.get_ref(1)?.as_blob()?),
                create_revision: Revision(found.get::<_, i64>(0)?.unsigned_abs()),
                mod_revision: row.revision(),
            })
        })
}

fn failed<'a>(shared: &'a Shared, what: &'a str) -> impl Fn(rusqlite::Error) -> StoreError + 'a {
    move |source| engine_error(&shared.dir, what, source)
}
