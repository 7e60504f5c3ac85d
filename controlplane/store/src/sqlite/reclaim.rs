//! Removes, in small steps, what compaction made garbage: superseded rows and deletions.
//!
//! Steps ride on the commits of others or, when nobody writes, make small commits of their own, so
//! that no writer ever waits for more than one step. On an idle cluster, where Leases are all that
//! is written, a step is only taken once there is enough to remove: each of its commits writes
//! pages and waits for the disk.

use rusqlite::{Connection, params};

use super::{index::RowId, schema};

/// Revisions with garbage that make a step worth its commit: ten minutes of a node's Lease.
pub(super) const WORTHWHILE: u64 = 64;
/// Rows looked at in an idle step: about a millisecond.
const IDLE_ROWS: usize = 128;
/// Pages given back to the file system in an idle step.
const VACUUM_PAGES: u32 = 64;
/// Free pages that stay for the writes to come.
const SPARE_PAGES: i64 = 512;

/// A step in an open transaction that writes `writes` rows: more than it adds, so that garbage
/// always shrinks.
///
/// Returns how far it came; the caller keeps that once the transaction is committed.
pub(super) fn step(
    connection: &Connection,
    from: RowId,
    to: RowId,
    writes: usize,
) -> rusqlite::Result<RowId> {
    remove(connection, from, to, 2 * writes + 16)
}

/// A step in a transaction of its own, for garbage that no commit takes along.
pub(super) fn idle_step(
    connection: &mut Connection,
    from: RowId,
    to: RowId,
) -> rusqlite::Result<RowId> {
    let transaction = connection.transaction()?;
    let reached = remove(&transaction, from, to, IDLE_ROWS)?;
    transaction.commit()?;
    Ok(reached)
}

/// Gives some free pages back to the file system; says whether there may be more to give. On a full
/// disk the store keeps no more than it needs.
pub(super) fn vacuum_step(connection: &Connection, is_full: bool) -> rusqlite::Result<bool> {
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if free < SPARE_PAGES.max(if is_full { 0 } else { pages / 4 }) {
        return Ok(false);
    }
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(true)
}

/// Removes what the rows in `(from, to]` superseded, and deletions among them; looks at no more
/// than `limit`.
fn remove(
    connection: &Connection,
    from: RowId,
    to: RowId,
    limit: usize,
) -> rusqlite::Result<RowId> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows: Vec<(i64, i64, bool)> = connection
        .prepare_cached(
            "SELECT id, prev_id, deleted FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT ?3",
        )?
        .query_map(params![from.0, to.0, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut delete = connection.prepare_cached("DELETE FROM log WHERE id = ?1")?;
    for &(id, prev, deleted) in &rows {
        if prev != 0 {
            delete.execute([prev])?;
        }
        if deleted {
            delete.execute([id])?;
        }
    }
    let all_seen = i64::try_from(rows.len()).unwrap_or(i64::MAX) < limit;
    let reached = match rows.last() {
        Some((last, ..)) if !all_seen => RowId(*last),
        _ => to,
    };
    connection
        .prepare_cached("UPDATE meta SET value = ?1 WHERE name = 'reclaimed'")?
        .execute([reached.0])?;
    // With it, always: without deletions that are gone now, older states would be wrong.
    schema::set_compacted(connection, to.revision())?;
    Ok(reached)
}
