//! A disk that a neighbour has filled, and goes on filling: the store starts as often as it is
//! killed, is read, deletes, and comes back to life by what was deleted.
//!
//! The server that is killed is this test program again, told by an environment variable.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

#[path = "crash/mount.rs"]
mod mount;

use std::{
    fs::File,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use coracle_store::{
    Backend, Op, RangeRequest, StoreError, Txn, TxnOutcome, sqlite::SqliteBackend, types::MAX_OPS,
};

const DIR: &str = "CORACLE_FULL_DISK_DIR";
const STARTS: usize = 8;
const OBJECTS: usize = 8000;
const DELETED_EACH: usize = 500;
const LEASE: &str = "/registry/leases/kube-node-lease/n1";

fn put(key: &str, bytes: usize, may_use_disk_reserve: bool) -> Txn {
    let op = Op::Put {
        key: key.into(),
        value: vec![b'x'; bytes].into(),
    };
    Txn {
        compare: vec![],
        ops: vec![op],
        may_use_disk_reserve,
    }
}

fn pod(name: usize) -> String {
    format!("/registry/pods/ns/{name:05}")
}

async fn new_pod(store: &SqliteBackend, name: usize) -> Result<TxnOutcome, StoreError> {
    store.txn(put(&pod(name), 2000, false)).await
}

async fn delete(store: &SqliteBackend, names: impl Iterator<Item = usize>) {
    let ops = names
        .map(|name| Op::Delete {
            key: pod(name).into(),
        })
        .collect();
    write(store, ops, true).await;
}

/// So many at a time as one transaction takes.
async fn write(store: &SqliteBackend, ops: Vec<Op>, may_use_disk_reserve: bool) {
    for ops in ops.chunks(MAX_OPS) {
        let txn = Txn {
            compare: vec![],
            ops: ops.to_vec(),
            may_use_disk_reserve,
        };
        store.txn(txn).await.unwrap();
    }
}

async fn pods(store: &SqliteBackend) -> Vec<usize> {
    let range = RangeRequest {
        prefix: "/registry/pods/".to_owned(),
        ..RangeRequest::default()
    };
    let found = store.range(range).await.unwrap();
    found
        .items
        .iter()
        .map(|pod| pod.key.rsplit('/').next().unwrap().parse().unwrap())
        .collect()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// Not a test: the server that is killed. It says how many pods it found, then how many there are
/// when it is ready to go.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    runtime().block_on(async {
        let store = SqliteBackend::open(dir).unwrap();
        let mut found = pods(&store).await;
        println!("found {} .", found.len());
        // What fits into the store's own files is written; what does not is refused, and takes
        // nothing of the reserve.
        let mut name = 50_000;
        while new_pod(&store, name).await.is_ok() {
            found.push(name);
            name += 1;
            assert!(name < 90_000, "the disk is not full");
        }
        delete(&store, found.drain(..DELETED_EACH)).await;
        for bytes in 0..50 {
            store.txn(put(LEASE, 400 + bytes, true)).await.unwrap();
        }
        assert_eq!(pods(&store).await.len(), found.len());
        println!("left {} .", found.len());
        std::future::pending::<()>().await;
    });
}

/// Starts a server, lets it work and kills it; how many pods it found and left.
fn start_and_kill(dir: &Path) -> [usize; 2] {
    let mut server: Child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut next = |what: &str| loop {
        let line = lines
            .next()
            .unwrap_or_else(|| panic!("the server ended before it said {what}"));
        if let Some(count) = line
            .strip_prefix(what)
            .and_then(|rest| rest.strip_suffix(" ."))
        {
            break count.trim().parse().unwrap();
        }
    };
    let said = [next("found"), next("left")];
    server.kill().unwrap();
    server.wait().unwrap();
    said
}

/// A neighbour who takes whatever becomes free, at once and for ever.
struct Neighbour {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Neighbour {
    fn fills(file: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let mut file = File::create(file).unwrap();
        let (full, is_full) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let piece = [1; 4096];
            while !told.load(Ordering::Relaxed) {
                if file.write_all(&piece).is_err() {
                    let _ = full.send(());
                    std::thread::yield_now();
                }
            }
        });
        is_full.recv().unwrap();
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

async fn reserved(dir: &Path) -> u64 {
    let bytes = || std::fs::metadata(dir.join("reserve")).map_or(0, |file| file.len());
    until("there is a reserve", async || bytes() > 0).await;
    bytes()
}

/// Fills the store, then the disk around it.
fn prepare(disk: &Path) -> (PathBuf, u64) {
    let dir = disk.join("store");
    let bytes = runtime().block_on(async {
        let store = SqliteBackend::open(&dir).unwrap();
        for first in (0..OBJECTS).step_by(DELETED_EACH) {
            let names = first..first + DELETED_EACH;
            let ops = names
                .map(|name| Op::Put {
                    key: pod(name).into(),
                    value: vec![b'x'; 2000].into(),
                })
                .collect();
            write(&store, ops, false).await;
        }
        store.txn(put(LEASE, 400, false)).await.unwrap();
        reserved(&dir).await
    });
    (dir, bytes)
}

fn goes_on(disk: &Path) {
    let (dir, reserve) = prepare(disk);
    let mut left = OBJECTS;
    {
        let _neighbour = Neighbour::fills(disk.join("junk"));
        for start in 0..STARTS {
            let [found, now] = start_and_kill(&dir);
            assert_eq!(found, left, "start {start}");
            left = now;
        }
    }
    let bytes = std::fs::metadata(dir.join("reserve")).unwrap().len();
    eprintln!("{STARTS} starts on a full disk; {bytes} bytes of {reserve} are left in reserve");
    runtime().block_on(async {
        // The neighbour keeps what it has. What the store gives back is enough.
        let store = SqliteBackend::open(&dir).unwrap();
        let names = pods(&store).await;
        assert_eq!(names.len(), left);
        delete(&store, names[..1000].iter().copied()).await;
        store
            .compact(store.current_revision().await.unwrap())
            .await
            .unwrap();
        until("there is room for new objects again", async || {
            new_pod(&store, 99_999).await.is_ok()
        })
        .await;
        assert_eq!(reserved(&dir).await, reserve);
    });
}

const LARGE: usize = 900_000;
const LARGES: usize = 24;

/// As a tenant writes whose large objects wait for a finalizer, in one batch with deletions of
/// others.
async fn large_and_small(store: &SqliteBackend, first: usize) -> [usize; 2] {
    let large =
        (0..LARGES).map(|n| store.txn(put(&format!("/registry/configmaps/ns/{n}"), LARGE, true)));
    let small = (first..first + 8).map(|name| {
        let ops = vec![Op::Delete {
            key: pod(name).into(),
        }];
        store.txn(Txn {
            compare: vec![],
            ops,
            may_use_disk_reserve: true,
        })
    });
    let (large, small) = tokio::join!(
        futures::future::join_all(large),
        futures::future::join_all(small)
    );
    [large, small].map(|outcomes| outcomes.iter().filter(|outcome| outcome.is_ok()).count())
}

#[test]
fn large_writes_use_part_of_the_reserve_and_keep_no_small_ones_from_it() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    let disk = mount::Mounted::tmpfs("130m", dir.path().join("mnt"));
    let (dir, whole) = prepare(disk.path());
    runtime().block_on(async {
        let store = SqliteBackend::open(&dir).unwrap();
        for n in 0..LARGES {
            store
                .txn(put(&format!("/registry/configmaps/ns/{n}"), LARGE, false))
                .await
                .unwrap();
        }
        // Nobody else takes what becomes free.
        drop(Neighbour::fills(disk.path().join("junk")));
        let mut name = 50_000;
        while new_pod(&store, name).await.is_ok() {
            name += 1;
            assert!(name < 90_000, "the disk is not full");
        }
        store
            .txn(put("/registry/configmaps/ns/0", LARGE, true))
            .await
            .unwrap();
        let rounds = 30;
        let mut larges = 0;
        for round in 0..rounds {
            let [large, small] = large_and_small(&store, round * 8).await;
            assert_eq!(small, 8, "round {round}, after {larges} large writes");
            larges += large;
        }
        assert!(larges < rounds * LARGES, "the disk was not full");
        let left = std::fs::metadata(dir.join("reserve")).unwrap().len();
        eprintln!(
            "{larges} large writes of {}; {left} bytes of {whole} are left in reserve",
            rounds * LARGES
        );
        assert!(left >= whole / 4, "{left} of {whole}");
    });
}

#[test]
fn a_store_starts_again_and_again_on_a_full_disk() {
    if !mount::is_root_or_skip() {
        return;
    }
    let dir = mount::Ground::new();
    goes_on(mount::Mounted::tmpfs("60m", dir.path().join("mnt")).path());
    let image = dir.path().join("disk");
    mount::make_disk(&image);
    goes_on(mount::Mounted::disk(&image, dir.path().join("mnt")).path());
}
