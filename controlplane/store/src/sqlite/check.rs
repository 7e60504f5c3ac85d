//! Whether a file is a whole store: that it is one, of this version, and that its pages hang
//! together.
//!
//! SQLite keeps no checksums: a value that has rotted is not seen, a broken tree is.

use std::{
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use coracle_telemetry::ErrorChain;
use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use super::{Shared, engine_error, schema};
use crate::{error::StoreError, types::Revision};

/// How long a start may wait for the check: some 300 MB that are in memory, and much less of a slow
/// disk. What takes longer is done beside the work.
const START_BUDGET: Duration = Duration::from_secs(1);
/// Pages and cells between two looks at the clock.
const LOOK: i32 = 1000;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// Its newest revision.
    pub revision: Revision,
    /// Live keys.
    pub keys: usize,
}

/// What a check has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Whole,
    /// What is wrong first of all.
    Damaged(String),
    /// It was given up before its end.
    Unfinished,
}

/// Looks at a file that nobody has open. Nothing is written, and nothing is made beside it.
///
/// # Errors
/// [`StoreError::NotAStore`], [`StoreError::OtherVersion`], [`StoreError::Damaged`].
pub fn verify(path: &Path) -> Result<Contents, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let opened = Connection::open_with_flags(immutable(path), flags);
    let mut connection = opened.map_err(|source| engine_error(path, "open the file", source))?;
    contents(&mut connection, path)
}

/// What is in a database, every page of which is looked at.
pub(super) fn contents(connection: &mut Connection, path: &Path) -> Result<Contents, StoreError> {
    schema::check_version(connection, path)?;
    let never = CancellationToken::new();
    let verdict = quick_check(connection, None, &never);
    judge(path, verdict)?;
    let (state, _) =
        schema::load(connection).map_err(|source| engine_error(path, "read it", source))?;
    Ok(Contents {
        revision: state.revision,
        keys: state.live.len(),
    })
}

/// The check before a store is opened; whether it came to its end.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(super) fn at_start(connection: &mut Connection, path: &Path) -> Result<bool, StoreError> {
    let deadline = Instant::now() + START_BUDGET;
    let never = CancellationToken::new();
    judge(path, quick_check(connection, Some(deadline), &never))
}

/// The same for a file that is too large for that, while the store works. What it finds is told,
/// and makes the store unwell: what is served from other pages is right, so it goes on.
pub(super) fn beside_the_work(shared: Arc<Shared>) -> Result<JoinHandle<()>, StoreError> {
    let path = schema::file(&shared.dir);
    let check = move || {
        let verdict = schema::open_reader(&path)
            .and_then(|mut reader| quick_check(&mut reader, None, &shared.closed));
        match judge(&path, verdict) {
            Ok(_) => {}
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::error!(error = %ErrorChain(&error), "the store's file is damaged");
                let _first = shared.damage.set(error.to_string());
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "could not check the store's file");
            }
        }
    };
    std::thread::Builder::new()
        .name("store-check".to_owned())
        .spawn(check)
        .map_err(|source| StoreError::Engine {
            what: "start the check of its file".to_owned(),
            source: source.into(),
        })
}

/// Follows every tree of the database, and gives up at `deadline`, if there is one, or when told
/// to.
pub(super) fn quick_check(
    connection: &mut Connection,
    deadline: Option<Instant>,
    stop: &CancellationToken,
) -> rusqlite::Result<Verdict> {
    let stop = stop.clone();
    let is_over =
        move || stop.is_cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    connection.progress_handler(LOOK, Some(is_over))?;
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    match found {
        Ok(found) if found == "ok" => Ok(Verdict::Whole),
        Ok(found) => Ok(Verdict::Damaged(found)),
        Err(error)
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
        {
            Ok(Verdict::Unfinished)
        }
        Err(error) => Err(error),
    }
}

/// Whether the check was finished.
pub(super) fn judge(path: &Path, verdict: rusqlite::Result<Verdict>) -> Result<bool, StoreError> {
    match verdict.map_err(|source| engine_error(path, "check its pages", source))? {
        Verdict::Whole => Ok(true),
        Verdict::Unfinished => Ok(false),
        Verdict::Damaged(found) => Err(StoreError::Damaged {
            path: path.to_path_buf(),
            found: found.lines().last().unwrap_or_default().to_owned(),
        }),
    }
}

/// The file as SQLite is to see it: as one that nobody changes, so that it makes no log beside it.
fn immutable(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_in_a_uri() {
        for (path, uri) in [
            ("/var/lib/a b", "file:/var/lib/a%20b?immutable=1"),
            ("/x?y#z%", "file:/x%3Fy%23z%25?immutable=1"),
            ("ä.db", "file:%C3%A4.db?immutable=1"),
        ] {
            assert_eq!(immutable(Path::new(path)), uri);
        }
    }
}
