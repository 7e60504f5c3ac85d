//! Backups put in the place of a store: checked before, swapped at once, and clients see no
//! revision again.
//!
//! The program that is killed is this test program again, told by an environment variable.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "crash/mount.rs"]
mod mount;
#[path = "backup/objects.rs"]
mod objects;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use coracle_store::{
    Backend, RangeRequest, Revision, StoreError,
    sqlite::{
        SqliteBackend, backup,
        pending::{Existing, PendingFile},
        restore::restore,
    },
};
use rand::RngExt as _;

use objects::{filled, kill_after, kind, put, scribble, start_child, value_of_all};

const DIR: &str = "CORACLE_RESTORE_DIR";
const OBJECTS: usize = 1000;

/// A file with objects of one value.
async fn backup_of(dir: &Path, value: &str) -> PathBuf {
    let store = dir.join(format!("of-{value}"));
    filled(&store, OBJECTS, value).await;
    let path = dir.join(format!("{value}.db"));
    let file = PendingFile::create(&path, Existing::Keep).unwrap();
    backup::of_stopped(&store, &file).unwrap();
    file.finish().unwrap();
    path
}

/// Not a test: one who restores that is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    for backup in ["a.db", "b.db"].into_iter().cycle() {
        let restored = restore(&dir.join("store"), &dir.join(backup)).unwrap();
        std::fs::remove_file(restored.kept.unwrap()).unwrap();
    }
}

#[tokio::test]
async fn what_was_backed_up_is_there_and_revisions_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let backup = backup_of(dir.path(), "then").await;
    let store = dir.path().join("store");
    let last = filled(&store, OBJECTS + 500, "now").await;
    let restored = restore(&store, &backup).unwrap();
    assert!(restored.contents.revision.0 > last.0 + 100_000_000);
    assert_eq!(restored.contents.keys, OBJECTS);
    assert_eq!(value_of_all(&store, OBJECTS).await, "then");
    let running = SqliteBackend::open(&store).unwrap();
    assert_eq!(
        running.current_revision().await.unwrap(),
        restored.contents.revision
    );
    // Whoever was there before lists anew.
    for known in [
        Revision(1),
        last,
        Revision(restored.contents.revision.0 - 1),
    ] {
        let watched = running.watch("/", known).await.err();
        assert!(
            matches!(watched, Some(StoreError::Compacted { .. })),
            "{known}"
        );
        let at = RangeRequest {
            at: Some(known),
            ..RangeRequest::default()
        };
        let listed = running.range(at).await.err();
        assert!(
            matches!(listed, Some(StoreError::Compacted { .. })),
            "{known}"
        );
    }
    let now = running.watch("/", restored.contents.revision).await;
    assert!(now.is_ok());
    assert!(put(&running, 0, "new").await > restored.contents.revision);
    drop(running);
    // What was there is a store of its own.
    let aside = dir.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    std::fs::rename(restored.kept.unwrap(), aside.join("store.db")).unwrap();
    assert_eq!(value_of_all(&aside, OBJECTS + 500).await, "now");
}

#[tokio::test]
async fn a_second_restore_goes_on_from_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let backup = backup_of(dir.path(), "then").await;
    let store = dir.path().join("store");
    let first = restore(&store, &backup).unwrap();
    assert_eq!(first.kept, None, "a new machine has nothing to keep");
    let second = restore(&store, &backup).unwrap();
    assert!(second.contents.revision > first.contents.revision);
    let third = restore(&store, &backup).unwrap();
    assert_ne!(second.kept, third.kept);
    assert!(second.kept.unwrap().exists() && third.kept.unwrap().exists());
}

#[tokio::test]
async fn a_running_server_is_not_restored_under_its_feet() {
    let dir = tempfile::tempdir().unwrap();
    let backup = backup_of(dir.path(), "then").await;
    let store = dir.path().join("store");
    filled(&store, 10, "now").await;
    let running = SqliteBackend::open(&store).unwrap();
    let error = restore(&store, &backup).unwrap_err();
    assert_eq!(kind(&error), "Locked");
    put(&running, 0, "now").await;
    drop(running);
    assert_eq!(value_of_all(&store, 10).await, "now");
}

/// Makes a database that is none of this program's.
fn sql(path: &Path, text: &str) {
    rusqlite::Connection::open(path)
        .unwrap()
        .execute_batch(text)
        .unwrap();
}

#[tokio::test]
async fn what_is_no_good_backup_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let good = backup_of(dir.path(), "then").await;
    let store = dir.path().join("store");
    filled(&store, 10, "now").await;
    let changed = |name: &str, change: &dyn Fn(&Path)| {
        let path = dir.path().join(name);
        std::fs::copy(&good, &path).unwrap();
        change(&path);
        path
    };
    let made = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let foreign = dir.path().join("foreign.db");
    sql(&foreign, "CREATE TABLE log (id INTEGER PRIMARY KEY)");
    let cut = |path: &Path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    };
    let cases = [
        (dir.path().join("absent"), "File"),
        (dir.path().to_path_buf(), "File"),
        (made("empty", b""), "NotAStore"),
        (made("text", &b"not a database ".repeat(1000)), "NotAStore"),
        (foreign, "NotAStore"),
        (
            changed("older", &|path| sql(path, "PRAGMA user_version = 0")),
            "OtherVersion",
        ),
        (
            changed("newer", &|path| sql(path, "PRAGMA user_version = 2")),
            "OtherVersion",
        ),
        (changed("cut", &cut), "Damaged"),
        (changed("scribbled", &scribble), "Damaged"),
    ];
    let names = || {
        let entries = std::fs::read_dir(&store).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for (path, expected) in cases {
        let error = restore(&store, &path).unwrap_err();
        assert_eq!(kind(&error), expected, "{}", path.display());
        assert_eq!(names(), before, "{}", path.display());
    }
    assert_eq!(value_of_all(&store, 10).await, "now");
}

#[tokio::test]
async fn a_damaged_store_is_replaced_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let backup = backup_of(dir.path(), "then").await;
    for damage in [(|path: &Path| scribble(path)) as fn(&Path), |path| {
        std::fs::write(path, "no database at all ".repeat(500)).unwrap()
    }] {
        let store = dir.path().join("store");
        filled(&store, OBJECTS, "now").await;
        let database = store.join("store.db");
        damage(&database);
        let bytes = std::fs::read(&database).unwrap();
        // A log that SQLite would take for that of whatever has the name.
        let restored = restore(&store, &backup).unwrap();
        assert_eq!(std::fs::read(restored.kept.unwrap()).unwrap(), bytes);
        assert_eq!(value_of_all(&store, OBJECTS).await, "then");
        std::fs::remove_dir_all(&store).unwrap();
    }
}

#[tokio::test]
async fn a_directory_that_was_copied_with_its_log_is_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copied) = (dir.path().join("store"), dir.path().join("copied.db"));
    let running = SqliteBackend::open(&store).unwrap();
    put(&running, 0, "now").await;
    for (from, to) in [("store.db", "copied.db"), ("store.db-wal", "copied.db-wal")] {
        std::fs::copy(store.join(from), dir.path().join(to)).unwrap();
    }
    drop(running);
    let other = dir.path().join("other");
    restore(&other, &copied).unwrap();
    assert_eq!(value_of_all(&other, 1).await, "now");
}

#[tokio::test]
async fn a_full_disk_leaves_what_is_there() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let backup = backup_of(dir.path(), "then").await;
    let disk = mount::Mounted::tmpfs("40m", dir.path().join("mnt"));
    let store = disk.path().join("store");
    filled(&store, 10, "now").await;
    let free = rustix::fs::statvfs(disk.path()).unwrap();
    let junk = usize::try_from(free.f_bavail * free.f_frsize).unwrap() - (1 << 20);
    std::fs::write(disk.path().join("junk"), vec![0; junk]).unwrap();
    let error = restore(&store, &backup).unwrap_err();
    assert_eq!(kind(&error), "NoRoomForCopy");
    assert!(!store.join("store.db.restoring").exists());
    assert_eq!(value_of_all(&store, 10).await, "now");
    std::fs::remove_file(disk.path().join("junk")).unwrap();
    restore(&store, &backup).unwrap();
    assert_eq!(value_of_all(&store, OBJECTS).await, "then");
}

#[tokio::test]
async fn a_killed_restore_leaves_one_of_the_two() {
    let dir = tempfile::tempdir().unwrap();
    backup_of(dir.path(), "a").await;
    backup_of(dir.path(), "b").await;
    let store = dir.path().join("store");
    filled(&store, OBJECTS, "first").await;
    let (mut newest, mut leftovers) = (Revision(0), 0);
    for kill in 0..15 {
        let alive = Duration::from_millis(rand::rng().random_range(10..300));
        kill_after(start_child(DIR, dir.path()), alive);
        leftovers += usize::from(store.join("store.db.restoring").exists());
        let value = value_of_all(&store, OBJECTS).await;
        assert!(["first", "a", "b"].contains(&value.as_str()), "{value}");
        assert!(!store.join("store.db.restoring").exists());
        let running = SqliteBackend::open(&store).unwrap();
        assert!(
            running.current_revision().await.unwrap() >= newest,
            "kill {kill}"
        );
        newest = put(&running, 0, &value).await;
    }
    eprintln!("15 kills, {leftovers} restores cut short, newest revision {newest}");
}
