//! The child: eight writers, a watcher, a compactor, all talking to the parent on standard output.

use std::{io::Write as _, path::PathBuf, sync::Arc};

use coracle_store::{
    Backend, KeyValue, Op, Txn, TxnOutcome,
    conformance::mutants::{self, Mutant},
    sqlite::{SqliteBackend, SqliteOptions},
};
use futures::StreamExt;

use super::Write;

const WRITERS: usize = 8;
const DIR: &str = "CORACLE_CRASH_DIR";
const FAULT: &str = "CORACLE_CRASH_FAULT";

/// What is wrong with the child's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    AcknowledgesEarly,
    SkipsFsync,
}

/// What a child is to do.
pub(super) struct Task {
    pub(super) dir: PathBuf,
    pub(super) fault: Fault,
}

impl Task {
    pub(super) fn from_env() -> Option<Self> {
        let fault = match std::env::var(FAULT).ok()?.as_str() {
            "early" => Fault::AcknowledgesEarly,
            "fsync" => Fault::SkipsFsync,
            _ => Fault::None,
        };
        Some(Self {
            dir: std::env::var_os(DIR)?.into(),
            fault,
        })
    }

    pub(super) fn env(&self) -> [(&'static str, std::ffi::OsString); 2] {
        let fault = match self.fault {
            Fault::None => "none",
            Fault::AcknowledgesEarly => "early",
            Fault::SkipsFsync => "fsync",
        };
        [(DIR, self.dir.clone().into()), (FAULT, fault.into())]
    }
}

/// Writes until it is killed.
pub(super) fn run(task: &Task) {
    let options = SqliteOptions {
        skip_fsync: task.fault == Fault::SkipsFsync,
        ..SqliteOptions::default()
    };
    let store: Arc<dyn Backend> = Arc::new(SqliteBackend::open_with(&task.dir, options).unwrap());
    let store: Arc<dyn Backend> = match task.fault {
        Fault::AcknowledgesEarly => Arc::new(Mutant::new(store, mutants::Fault::AcknowledgesEarly)),
        _ => store,
    };
    super::runtime().block_on(async {
        let current = store.current_revision().await.unwrap();
        let watch = store.watch("/", current).await.unwrap();
        coracle_telemetry::spawn(
            "task of a test",
            watch.for_each(|batch| async move {
                for event in batch.unwrap().events {
                    say("watched", write_of(&event.kv));
                }
            }),
        );
        let writers = (0..WRITERS).map(|writer| {
            coracle_telemetry::spawn("task of a test", write(Arc::clone(&store), writer))
        });
        futures::future::join_all(writers).await;
    });
}

async fn write(store: Arc<dyn Backend>, writer: usize) {
    let key: Arc<str> = format!("/registry/writers/{writer}").into();
    let before = store
        .get(&key)
        .await
        .unwrap()
        .map_or(0, |kv| parse(&kv.key, &kv.value).1);
    for count in before + 1.. {
        let value = format!("{count} {}", "x".repeat(700));
        let txn = Txn {
            compare: vec![],
            ops: vec![Op::Put {
                key: Arc::clone(&key),
                value: value.into(),
            }],
            ..Txn::default()
        };
        let TxnOutcome::Committed(revision) = store.txn(txn).await.unwrap() else {
            panic!("nothing was compared")
        };
        say(
            "acknowledged",
            Write {
                writer,
                count,
                revision: revision.0,
            },
        );
        if writer == 0 && count % 50 == 0 {
            store
                .compact(coracle_store::Revision(revision.0.saturating_sub(200)))
                .await
                .unwrap();
        }
    }
}

/// One line, written at once: a kill leaves it whole or cut short before the full stop.
fn say(
    what: &str,
    Write {
        writer,
        count,
        revision,
    }: Write,
) {
    let line = format!("{what} {writer} {count} {revision} .\n");
    // The parent may have stopped listening.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Which writer a key is of, and its count.
pub(super) fn parse(key: &str, value: &[u8]) -> (usize, u64) {
    let writer = key.rsplit('/').next().unwrap().parse().unwrap();
    let count = std::str::from_utf8(value)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    (writer, count)
}

pub(super) fn write_of(kv: &KeyValue) -> Write {
    let (writer, count) = parse(&kv.key, &kv.value);
    Write {
        writer,
        count,
        revision: kv.mod_revision.0,
    }
}
