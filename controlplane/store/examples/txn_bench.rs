//! Durable transactions a second of the SQLite engine, by number of writers:
//! `cargo run --release --example txn_bench [DIR]`.
//!
//! Each writer waits for its transaction to be durable before it sends the next; values are 1 KB.
//! No API server, no TLS: the ceiling of what stands above.
#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use coracle_store::{Backend, Compare, Op, Revision, Txn, TxnOutcome, sqlite::SqliteBackend};

const RUN: Duration = Duration::from_secs(3);
const VALUE_BYTES: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).map_or_else(
        || std::env::temp_dir().join("coracle-txn-bench"),
        PathBuf::from,
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "writers", "what", "txn/s", "p50 us", "p99 us", "txn/sync"
    );
    for writers in [1, 8, 32, 128] {
        runtime.block_on(run(&dir, writers))?;
    }
    Ok(())
}

async fn run(dir: &Path, writers: usize) -> Result<(), Box<dyn std::error::Error>> {
    let dir = dir.join(writers.to_string());
    let store = Arc::new(SqliteBackend::open(&dir)?);
    // Somebody watches, as the cache does.
    let mut watch = store
        .watch("/registry/", store.current_revision().await?)
        .await?;
    let watcher = coracle_telemetry::spawn("task of a test", async move {
        while let Some(Ok(_)) = futures::StreamExt::next(&mut watch).await {}
    });
    for what in ["create", "update"] {
        let before = store.stats();
        let start = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                coracle_telemetry::spawn("task of a test", write(Arc::clone(&store), writer, what))
            })
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await?);
        }
        let seconds = start.elapsed().as_secs_f64();
        latencies.sort_unstable();
        let after = store.stats();
        let count = latencies.len();
        let shared = (after.txns - before.txns) / (after.commits - before.commits).max(1);
        println!(
            "{writers:>8} {what:>8} {:>10.0} {:>10} {:>10} {shared:>10}",
            f64::from(u32::try_from(count)?) / seconds,
            latencies[count / 2].as_micros(),
            latencies[count * 99 / 100].as_micros(),
        );
    }
    drop(store);
    watcher.await?;
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Creates new keys, or updates one key by its revision.
async fn write(store: Arc<SqliteBackend>, writer: usize, what: &'static str) -> Vec<Duration> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut last: Option<Revision> = None;
    for n in 0.. {
        if start.elapsed() > RUN {
            break;
        }
        let name = if what == "create" {
            format!("{n}")
        } else {
            "same".to_owned()
        };
        let key: Arc<str> = format!("/registry/configmaps/default/{what}-{writer}-{name}").into();
        let compare = match last.filter(|_| what == "update") {
            Some(revision) => Compare::ModRevision(Arc::clone(&key), revision),
            None => Compare::Absent(Arc::clone(&key)),
        };
        let begun = Instant::now();
        let txn = Txn {
            compare: vec![compare],
            ops: vec![Op::Put {
                key,
                value: value.clone(),
            }],
            ..Txn::default()
        };
        match store.txn(txn).await {
            Ok(TxnOutcome::Committed(revision)) => last = Some(revision),
            other => panic!("a write failed: {other:?}"),
        }
        latencies.push(begun.elapsed());
    }
    latencies
}
