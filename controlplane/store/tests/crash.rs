//! No acknowledged write is lost: a child that writes is killed at random, the store is opened
//! again and compared with what the child was told. And what its watcher was shown is there as
//! well.
//!
//! The child is this test program again, told by environment variables. `CORACLE_CRASH_KILLS` says
//! how often it is killed (40 if unset). Power loss is played by copying a mounted disk image: what
//! was not synced is not in the copy.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

#[path = "crash/child.rs"]
mod child;
#[path = "crash/mount.rs"]
mod mount;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use coracle_store::{Backend, EventBatch, RangeRequest, Revision, sqlite::SqliteBackend};
use futures::StreamExt;
use rand::RngExt;

/// A write as parent and child speak of it: which writer, its how-manieth, at which revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Write {
    writer: usize,
    count: u64,
    revision: u64,
}

/// What a child said before it was killed.
#[derive(Default)]
struct Said {
    acknowledged: Vec<Write>,
    watched: Vec<Write>,
}

/// Not a test: what the parents below start.
#[test]
fn child() {
    if let Some(task) = child::Task::from_env() {
        child::run(&task);
    }
}

fn kills(default: usize) -> usize {
    std::env::var("CORACLE_CRASH_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(default)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// Runs a child on `dir` and kills it some time after its first write.
fn run_and_kill(dir: &Path, fault: child::Fault, alive: Duration) -> Said {
    let mut child = child::Task {
        dir: dir.to_path_buf(),
        fault,
    }
    .spawn();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut said = Said::default();
    while said.acknowledged.is_empty() {
        match lines.next() {
            Some(line) => said.note(&line),
            None => panic!(
                "the child ended before it wrote anything: {:?}",
                child.wait()
            ),
        }
    }
    let (ready, killed) = std::sync::mpsc::channel::<()>();
    let killer = std::thread::spawn(move || {
        // Being killed at an arbitrary moment is the point.
        let _ = killed.recv_timeout(alive);
        kill(&mut child);
    });
    for line in lines {
        said.note(&line);
    }
    drop(ready);
    killer.join().unwrap();
    said
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

impl Said {
    /// Takes one line of the child; the last may have been cut short.
    fn note(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, writer, count, revision, "."] = &words[..] else {
            return;
        };
        let write = Write {
            writer: writer.parse().unwrap(),
            count: count.parse().unwrap(),
            revision: revision.parse().unwrap(),
        };
        match what {
            "acknowledged" => self.acknowledged.push(write),
            "watched" => self.watched.push(write),
            _ => {}
        }
    }
}

/// What is missing in the store at `dir`, in words.
fn check(dir: &Path, said: &Said) -> Result<(), String> {
    let store =
        SqliteBackend::open(dir).map_err(|error| format!("the store does not open: {error:?}"))?;
    runtime().block_on(async {
        let current = store.current_revision().await.unwrap();
        let stored = store
            .range(RangeRequest {
                prefix: "/".to_owned(),
                ..RangeRequest::default()
            })
            .await
            .unwrap();
        let present: HashMap<usize, u64> = stored
            .items
            .iter()
            .map(|kv| child::parse(&kv.key, &kv.value))
            .collect();
        let history = history(&store).await;
        let oldest = history
            .first()
            .map_or(current.0, |write| write.revision - 1);
        let gapless = history
            .windows(2)
            .all(|pair| pair[1].revision == pair[0].revision + 1);
        if !gapless
            || history
                .last()
                .is_some_and(|last| last.revision != current.0)
        {
            return Err("history has gaps".to_owned());
        }
        for write in said.acknowledged.iter().chain(&said.watched) {
            if present
                .get(&write.writer)
                .is_none_or(|count| *count < write.count)
            {
                return Err(format!("{write:?} is lost: {present:?}"));
            }
            let in_history = usize::try_from(write.revision.saturating_sub(oldest + 1)).unwrap();
            if write.revision > oldest && history.get(in_history) != Some(write) {
                return Err(format!(
                    "{write:?} is {:?} in history",
                    history.get(in_history)
                ));
            }
        }
        Ok(())
    })
}

/// All writes that are not compacted.
async fn history(store: &SqliteBackend) -> Vec<Write> {
    let oldest = match store.watch("/", Revision(0)).await {
        Err(coracle_store::StoreError::Compacted { oldest, .. }) => oldest,
        _ => Revision(0),
    };
    let mut stream = store.watch("/", oldest).await.unwrap();
    let (mut writes, mut seen) = (Vec::new(), oldest);
    while seen < store.current_revision().await.unwrap() {
        let EventBatch { revision, events } = stream.next().await.unwrap().unwrap();
        seen = revision;
        writes.extend(events.iter().map(|event| child::write_of(&event.kv)));
    }
    writes
}

#[test]
fn no_acknowledged_write_is_lost_by_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut watched) = (0, 0);
    for n in 0..kills(40) {
        let alive = Duration::from_micros(rand::rng().random_range(0..60_000));
        let said = run_and_kill(dir.path(), child::Fault::None, alive);
        acknowledged += said.acknowledged.len();
        watched += said.watched.len();
        if let Err(lost) = check(dir.path(), &said) {
            panic!("kill {n}: {lost}");
        }
    }
    eprintln!(
        "{} kills, {acknowledged} acknowledged writes, {watched} watched, none lost",
        kills(40)
    );
}

#[test]
fn early_acknowledgement_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let caught = (0..20).any(|_| {
        let said = run_and_kill(
            dir.path(),
            child::Fault::AcknowledgesEarly,
            Duration::from_millis(20),
        );
        check(dir.path(), &said).is_err()
    });
    assert!(caught);
}

/// Lets a child write to a disk that then loses power; what is missing after the disk is back.
fn lose_power(fault: child::Fault) -> Result<usize, String> {
    let dir = mount::Ground::new();
    let (image, copy) = (dir.path().join("disk"), dir.path().join("copy"));
    mount::make_disk(&image);
    let said = {
        let disk = mount::Mounted::disk(&image, dir.path().join("mnt"));
        // The directory itself must not be what is lost.
        drop(SqliteBackend::open(disk.path().join("store")).unwrap());
        mount::sync(disk.path());
        let said = run_and_kill(
            &disk.path().join("store"),
            fault,
            Duration::from_millis(300),
        );
        std::fs::copy(&image, &copy).unwrap();
        said
    };
    let disk = mount::Mounted::disk(&copy, dir.path().join("mnt"));
    check(&disk.path().join("store"), &said).map(|()| said.acknowledged.len())
}

#[test]
fn no_acknowledged_write_is_lost_by_power_loss() {
    if !mount::is_root_or_skip() {
        return;
    }
    for _ in 0..3 {
        let acknowledged = lose_power(child::Fault::None).unwrap();
        eprintln!("power lost after {acknowledged} acknowledged writes, none lost");
    }
}

#[test]
fn skipped_fsync_is_caught() {
    if !mount::is_root_or_skip() {
        return;
    }
    let lost = lose_power(child::Fault::SkipsFsync).unwrap_err();
    eprintln!("without fsync: {lost}");
}

/// Starts this program again with a task.
impl child::Task {
    fn spawn(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .envs(self.env())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}
