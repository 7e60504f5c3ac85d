//! Backups of a store that works: whole, of one moment, and never half there.
//!
//! The program that is killed is this test program again, told by an environment variable.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "crash/mount.rs"]
mod mount;
#[path = "backup/objects.rs"]
mod objects;

use std::{
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use coracle_store::{
    Backend, StoreError,
    memory::MemoryBackend,
    sqlite::{
        SqliteBackend, SqliteOptions, backup, check,
        pending::{Existing, PendingFile},
        restore,
    },
};
use rand::RngExt as _;

use objects::{filled, kill_after, kind, put, scribble, start_child, value_of_all, values};

const DIR: &str = "CORACLE_BACKUP_DIR";
const OBJECTS: usize = 2000;

/// What the server and its client do together.
async fn back_up(store: &SqliteBackend, to: &Path) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    store.backup().await?.read_to_end(&mut bytes).unwrap();
    let mut file = PendingFile::create(to, Existing::Replace)?;
    file.write(&bytes)?;
    file.finish()
}

/// Not a test: the server that is killed while it is backed up.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = SqliteBackend::open(dir.join("store")).unwrap();
        for round in 0.. {
            put(&store, round % OBJECTS, "same").await;
            back_up(&store, &dir.join("backup.db")).await.unwrap();
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_the_store_at_one_moment_while_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteBackend::open(dir.path().join("store")).unwrap());
    // Writer n writes its number of rounds, one object after the other.
    let rounds = Arc::new(AtomicUsize::new(0));
    let writer = {
        let (store, rounds) = (Arc::clone(&store), Arc::clone(&rounds));
        coracle_telemetry::spawn("a writer", async move {
            for round in 0.. {
                for name in 0..OBJECTS {
                    put(&store, name, &round.to_string()).await;
                    rounds.store(round, Ordering::Relaxed);
                }
            }
        })
    };
    let backup = dir.path().join("backup.db");
    for nth in 1..=3 {
        while rounds.load(Ordering::Relaxed) < nth {
            tokio::task::yield_now().await;
        }
        let before = store.current_revision().await.unwrap();
        back_up(&store, &backup).await.unwrap();
        let contents = check::verify(&backup).unwrap();
        assert!(
            before <= contents.revision
                && contents.revision <= store.current_revision().await.unwrap()
        );
        let other = dir.path().join(format!("restored{nth}"));
        restore::restore(&other, &backup).unwrap();
        // At one moment the first objects are of one round, and the others of the one before.
        let found: Vec<usize> = values(&SqliteBackend::open(&other).unwrap())
            .await
            .iter()
            .map(|value| value.parse().unwrap())
            .collect();
        assert_eq!(found.len(), OBJECTS);
        assert!(
            found[0] >= nth && found.is_sorted_by(|a, b| a >= b),
            "a mixture"
        );
        assert!(found[0] - found[OBJECTS - 1] <= 1, "a mixture");
    }
    writer.abort();
    let mode = std::fs::metadata(&backup).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names = std::fs::read_dir(dir.path().join("store")).unwrap();
    let left: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "store.db.copy"), "{left:?}");
}

#[tokio::test]
async fn a_killed_backup_leaves_a_whole_one_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let (store, backup) = (dir.path().join("store"), dir.path().join("backup.db"));
    filled(&store, OBJECTS, "same").await;
    let (mut found, mut leftovers) = (0, 0);
    for _ in 0..12 {
        let _ = std::fs::remove_file(&backup);
        let alive = Duration::from_millis(rand::rng().random_range(20..400));
        kill_after(start_child(DIR, dir.path()), alive);
        leftovers += usize::from(store.join("store.db.copy").exists());
        if backup.exists() {
            assert_eq!(check::verify(&backup).unwrap().keys, OBJECTS);
            found += 1;
        }
        assert_eq!(value_of_all(&store, OBJECTS).await, "same");
        assert!(!store.join("store.db.copy").exists());
    }
    eprintln!("12 kills, {found} backups, {leftovers} copies cut short");
    let running = SqliteBackend::open(&store).unwrap();
    back_up(&running, &backup).await.unwrap();
}

#[tokio::test]
async fn a_stopped_store_is_backed_up_with_what_is_in_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    filled(&store, 50, "old").await;
    // Killed: nobody has moved the log into the database.
    let child = start_child(DIR, dir.path());
    while !dir.path().join("backup.db").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    kill_after(child, Duration::ZERO);
    let target = dir.path().join("stopped.db");
    let file = PendingFile::create(&target, Existing::Keep).unwrap();
    backup::of_stopped(&store, &file).unwrap();
    file.finish().unwrap();
    let contents = check::verify(&target).unwrap();
    let running = SqliteBackend::open(&store).unwrap();
    assert_eq!(contents.revision, running.current_revision().await.unwrap());
    let refused = PendingFile::create(&dir.path().join("other.db"), Existing::Keep).unwrap();
    let error = backup::of_stopped(&store, &refused).unwrap_err();
    assert_eq!(kind(&error), "Locked");
}

#[tokio::test]
async fn who_goes_away_ends_the_backup_and_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), OBJECTS, "same").await;
    let store = SqliteBackend::open(dir.path()).unwrap();
    for _ in 0..20 {
        tokio::select! {
            biased;
            _ = store.backup() => {}
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    store.backup().await.unwrap();
    assert!(!dir.path().join("store.db.copy").exists());
}

#[tokio::test]
async fn a_backup_that_the_disk_has_no_room_for_takes_none() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("60m", dir.path().join("mnt"));
    let path = disk.path().join("store");
    filled(&path, OBJECTS, "same").await;
    let store = SqliteBackend::open(&path).unwrap();
    let junk = disk.path().join("junk");
    let free = rustix::fs::statvfs(disk.path()).unwrap();
    let all_but_little = usize::try_from(free.f_bavail * free.f_frsize).unwrap() - (18 << 20);
    std::fs::write(&junk, vec![0; all_but_little]).unwrap();
    let error = store.backup().await.unwrap_err();
    assert_eq!(kind(&error), "NoRoomForCopy");
    put(&store, 1, "same").await;
    std::fs::remove_file(&junk).unwrap();
    store.backup().await.unwrap();
    // The other disk is full.
    let small = mount::Mounted::tmpfs("1m", dir.path().join("small"));
    let target = small.path().join("backup.db");
    let error = back_up(&store, &target).await.unwrap_err();
    assert_eq!(kind(&error), "File");
    assert_eq!(std::fs::read_dir(small.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_engine_without_files_says_so() {
    let error = MemoryBackend::new().backup().await.unwrap_err();
    assert_eq!(kind(&error), "NoBackup");
}

#[tokio::test]
async fn a_damaged_store_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), OBJECTS, "same").await;
    let database = dir.path().join("store.db");
    scribble(&database);
    let before = std::fs::read(&database).unwrap();
    let error = SqliteBackend::open(dir.path()).unwrap_err();
    assert_eq!(kind(&error), "Damaged");
    assert!(error.to_string().contains("coracle store restore"));
    assert_eq!(std::fs::read(&database).unwrap(), before, "left alone");
}

#[tokio::test]
async fn damage_of_a_large_store_is_told_once_it_is_found() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = SqliteBackend::open(dir.path()).unwrap();
        put(&store, 0, "same").await;
        // One value on many pages: the index is built without them.
        let large = coracle_store::Op::Put {
            key: "/registry/large".into(),
            value: vec![b'x'; 1 << 20].into(),
        };
        let txn = coracle_store::Txn {
            ops: vec![large],
            ..coracle_store::Txn::default()
        };
        store.txn(txn).await.unwrap();
    }
    scribble(&dir.path().join("store.db"));
    let options = SqliteOptions {
        is_large: true,
        ..SqliteOptions::default()
    };
    let store = SqliteBackend::open_with(dir.path(), options).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while store.failure().is_none() {
        assert!(
            std::time::Instant::now() < deadline,
            "the damage is not told"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(store.failure().unwrap().contains("is damaged"));
    put(&store, 0, "same").await;
}
