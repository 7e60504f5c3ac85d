//! Bad disks and bad directories: clear errors, nothing acknowledged lost, and on again when the
//! disk is good.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "crash/mount.rs"]
mod mount;

use std::path::Path;

use coracle_store::{
    Backend, Op, RangeRequest, Revision, StoreError, Txn, TxnOutcome,
    sqlite::{SqliteBackend, SqliteOptions},
};

async fn put(store: &SqliteBackend, name: u64) -> Result<Revision, StoreError> {
    let op = Op::Put {
        key: format!("/registry/pods/ns/{name:05}").into(),
        value: vec![b'x'; 2000].into(),
    };
    match store
        .txn(Txn {
            compare: vec![],
            ops: vec![op],
            ..Txn::default()
        })
        .await?
    {
        TxnOutcome::Committed(revision) => Ok(revision),
        TxnOutcome::Conflict(_) => panic!("nothing was compared"),
    }
}

/// Writes until the disk is full; how many writes were acknowledged.
async fn fill(store: &SqliteBackend) -> u64 {
    for name in 0..100_000 {
        match put(store, name).await {
            Ok(_) => {}
            Err(StoreError::DiskFull { .. }) => return name,
            Err(error) => panic!("a full disk gave {error:?}"),
        }
    }
    panic!("the disk did not fill");
}

async fn count(store: &SqliteBackend) -> u64 {
    let range = store
        .range(RangeRequest {
            prefix: "/".to_owned(),
            ..RangeRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(range.revision, store.current_revision().await.unwrap());
    range.items.len() as u64
}

fn open_error(dir: &Path) -> String {
    let error = SqliteBackend::open(dir).unwrap_err();
    eprintln!("{error}");
    format!("{error:?}")
        .split([' ', '{'])
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn full_store_refuses_writes_and_keeps_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        max_pages: Some(300),
        ..SqliteOptions::default()
    };
    let store = SqliteBackend::open_with(dir.path(), options).unwrap();
    let written = fill(&store).await;
    assert!(matches!(
        put(&store, 99_999).await,
        Err(StoreError::DiskFull { .. })
    ));
    // The disk has room for the reserve, which does not help a store that is full by its own limit.
    for _ in 0..3 {
        assert!(matches!(
            put(&store, 99_999).await,
            Err(StoreError::DiskFull { .. })
        ));
    }
    assert_eq!(
        (count(&store).await, store.current_revision().await.unwrap()),
        (written, Revision(written))
    );
    drop(store);
    // With room again, it goes on where it was.
    let store = SqliteBackend::open(dir.path()).unwrap();
    assert_eq!(
        (count(&store).await, store.current_revision().await.unwrap()),
        (written, Revision(written))
    );
    assert_eq!(put(&store, 99_999).await.unwrap(), Revision(written + 1));
}

#[tokio::test]
async fn store_goes_on_when_a_full_disk_has_room_again() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("8m", dir.path().join("mnt"));
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 2 << 20]).unwrap();
    let store = SqliteBackend::open(disk.path().join("store")).unwrap();
    let written = fill(&store).await;
    assert_eq!(count(&store).await, written);
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(put(&store, 99_999).await.unwrap(), Revision(written + 1));
    drop(store);
    let store = SqliteBackend::open(disk.path().join("store")).unwrap();
    assert_eq!(count(&store).await, written + 1);
}

async fn delete(store: &SqliteBackend, name: u64) -> Result<TxnOutcome, StoreError> {
    let op = Op::Delete {
        key: format!("/registry/pods/ns/{name:05}").into(),
    };
    store
        .txn(Txn {
            compare: vec![],
            ops: vec![op],
            may_use_disk_reserve: true,
        })
        .await
}

/// A heartbeat: no larger than before.
async fn update(store: &SqliteBackend, name: u64) -> Result<TxnOutcome, StoreError> {
    let op = Op::Put {
        key: format!("/registry/pods/ns/{name:05}").into(),
        value: vec![b'y'; 2000].into(),
    };
    store
        .txn(Txn {
            compare: vec![],
            ops: vec![op],
            may_use_disk_reserve: true,
        })
        .await
}

/// The writer takes its reserve when it has nothing else to do.
async fn reserved(store: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !store.join("reserve").exists() {
        assert!(std::time::Instant::now() < deadline, "no reserve");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Waits until there is room for one more.
async fn room_again(store: &SqliteBackend, name: u64) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while put(store, name).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "there is room again");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Leaves no byte, as a neighbour does.
fn stuff(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    let piece = [0; 4096];
    while file.write_all(&piece).is_ok() {}
}

#[tokio::test]
async fn on_a_full_disk_a_store_starts_and_deletes_and_updates() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("40m", dir.path().join("mnt"));
    let (path, junk) = (disk.path().join("store"), disk.path().join("junk"));
    let store = SqliteBackend::open(&path).unwrap();
    for name in 0..500 {
        put(&store, name).await.unwrap();
    }
    reserved(&path).await;
    assert!(!store.is_full());
    stuff(&junk);
    // A server that comes back now finds no byte: what closing gave back is taken, too.
    drop(store);
    stuff(&disk.path().join("more"));
    let store = SqliteBackend::open(&path).unwrap();
    assert_eq!(count(&store).await, 500);
    for name in 0..100 {
        delete(&store, name).await.unwrap();
    }
    // What the store's files have room for does not need the reserve yet.
    let reserve = || std::fs::metadata(path.join("reserve")).unwrap().len();
    let (whole, mut updates) = (reserve(), 0);
    while reserve() == whole {
        update(&store, 100 + updates % 400).await.unwrap();
        updates += 1;
        assert!(updates < 100_000, "the reserve is never given up");
    }
    assert!(reserve() > whole / 2, "a piece at a time");
    update(&store, 250).await.unwrap();
    delete(&store, 499).await.unwrap();
    let left = reserve();
    for _ in 0..3 {
        assert!(
            matches!(put(&store, 250).await, Err(StoreError::DiskFull { .. })),
            "an update that may not use it"
        );
    }
    assert_eq!(reserve(), left);
    assert!(
        matches!(put(&store, 9_000).await, Err(StoreError::DiskFull { .. })),
        "nothing new"
    );
    assert_eq!((count(&store).await, store.failure()), (399, None));
    assert!(store.is_full());
    std::fs::remove_file(&junk).unwrap();
    room_again(&store, 9_000).await;
    reserved(&path).await;
}

#[tokio::test]
async fn on_a_full_disk_what_is_deleted_and_forgotten_makes_room() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("40m", dir.path().join("mnt"));
    let path = disk.path();
    let store = SqliteBackend::open(path).unwrap();
    while !path.join("reserve").exists() {
        put(&store, 0).await.unwrap();
    }
    for name in 0..fill(&store).await {
        delete(&store, name).await.unwrap();
    }
    assert!(put(&store, 99_999).await.is_err(), "history is there");
    let now = store.current_revision();
    store.compact(now.await.unwrap()).await.unwrap();
    room_again(&store, 99_999).await;
}

#[tokio::test]
async fn a_store_that_cannot_write_says_so_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteBackend::open(dir.path()).unwrap();
    put(&store, 1).await.unwrap();
    assert_eq!(store.failure(), None);
    // Somebody who ignores the lock of the directory.
    let intruder = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(
        put(&store, 2).await,
        Err(StoreError::Engine { .. })
    ));
    assert!(
        store
            .failure()
            .is_some_and(|why| why.contains("cannot write to"))
    );
    assert_eq!(count(&store).await, 1);
    intruder.execute_batch("ROLLBACK").unwrap();
    put(&store, 2).await.unwrap();
    assert_eq!(store.failure(), None);
}

#[test]
fn full_disk_is_named_at_the_start() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("64k", dir.path().join("mnt"));
    let _ = std::fs::write(disk.path().join("ballast"), vec![0; 60 << 10]);
    assert_eq!(open_error(&disk.path().join("store")), "DiskFull");
}

#[test]
fn read_only_disk_is_named() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("4m", dir.path().join("mnt"));
    drop(SqliteBackend::open(disk.path().join("store")).unwrap());
    disk.make_read_only();
    assert_eq!(open_error(&disk.path().join("store")), "NotWritable");
    assert_eq!(open_error(&disk.path().join("other")), "NotWritable");
}

#[test]
fn directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(open_error(&file.path().join("store")), "NotWritable");
}

#[test]
fn second_server_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = SqliteBackend::open(dir.path()).unwrap();
    assert_eq!(open_error(dir.path()), "Locked");
    drop(first);
    SqliteBackend::open(dir.path()).unwrap();
}

#[test]
fn file_that_is_no_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    std::fs::write(&file, "not a database, but somebody's file".repeat(100)).unwrap();
    let before = std::fs::read(&file).unwrap();
    assert_eq!(open_error(dir.path()), "NotAStore");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn only_the_owner_may_read_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let _store = SqliteBackend::open(dir.path()).unwrap();
    for file in ["store.db", "store.db-wal", "store.lock"] {
        let metadata = std::fs::metadata(dir.path().join(file)).unwrap();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777,
            0o600,
            "{file}"
        );
    }
}

#[tokio::test]
async fn compaction_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteBackend::open(dir.path()).unwrap();
    let size = || {
        std::fs::metadata(dir.path().join("store.db"))
            .unwrap()
            .len()
    };
    for _ in 0..3 {
        for name in 0..1500 {
            put(&store, name % 10).await.unwrap();
        }
    }
    let before = size();
    store
        .compact(store.current_revision().await.unwrap())
        .await
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while size() > before / 2 {
        assert!(
            std::time::Instant::now() < deadline,
            "{} bytes of {before} are still there",
            size()
        );
        // The file itself shrinks when the log is moved into it, which takes some writes.
        put(&store, 0).await.unwrap();
    }
    assert_eq!(count(&store).await, 10);
}

/// What nodes write on an idle cluster, and what the compactor does beside it.
#[tokio::test]
async fn leases_of_an_idle_cluster_write_little_more_than_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteBackend::open(dir.path()).unwrap();
    for name in 0..20 {
        put(&store, name).await.unwrap();
    }
    let log = || {
        std::fs::metadata(dir.path().join("store.db-wal"))
            .unwrap()
            .len()
    };
    let before = log();
    for beat in 0..60_usize {
        let op = Op::Put {
            key: "/registry/leases/kube-node-lease/n1".into(),
            value: vec![b'x'; 600].into(),
        };
        let txn = Txn {
            ops: vec![op],
            ..Txn::default()
        };
        store.txn(txn).await.unwrap();
        if beat.is_multiple_of(3) {
            let newest = store.current_revision().await.unwrap();
            store.compact(newest).await.unwrap();
        }
    }
    let frames = (log() - before) / 4120;
    eprintln!("60 Leases: {frames} pages");
    // Two each, with the pages that the table grows by.
    assert!(frames < 150, "{frames} pages for 60 Leases");
}
