//! What every engine must pass, and the faults that this suite must catch.
//!
//! [`run`] puts each check on a store of its own and reports which promises were broken. The
//! promises are etcd's: transactions compare and write atomically at strictly growing revisions,
//! reads are snapshots, watches are ordered, unique, atomic, reliable and resumable, and history
//! ends with an error, never with a gap. [`mutants`] breaks each of them on purpose. What survives
//! a crash is tested beside this crate, in `tests/`.

mod compaction;
mod history;
pub mod mutants;
mod reads;
mod recorder;
mod transactions;
mod watches;

use std::{any::Any, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{
    backend::Backend,
    error::StoreError,
    memory::MemoryBackend,
    sqlite::SqliteBackend,
    types::{Compare, Op, Revision, Txn, TxnOutcome},
};

/// How long one check may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A fresh store and what must live as long as it.
pub struct Fixture {
    /// The store under test, empty.
    pub store: Arc<dyn Backend>,
    /// Such as its directory.
    pub guard: Box<dyn Any + Send + Sync>,
}

impl Fixture {
    /// A memory store.
    #[must_use]
    pub fn memory() -> Self {
        Self {
            store: Arc::new(MemoryBackend::new()),
            guard: Box::new(()),
        }
    }

    /// A SQLite store in a temporary directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("tests can make temporary directories");
        let store = SqliteBackend::open(dir.path()).expect("a store opens in an empty directory");
        Self {
            store: Arc::new(store),
            guard: Box::new(dir),
        }
    }
}

/// Makes a store for each check.
pub type MakeFixture<'a> = dyn Fn() -> BoxFuture<'a, Fixture> + Sync + 'a;

/// A broken promise, in words.
#[derive(Debug)]
pub struct Violation(pub String);

impl From<StoreError> for Violation {
    fn from(error: StoreError) -> Self {
        Self(format!("unexpected error: {error} ({error:?})"))
    }
}

/// How the checks ended.
#[derive(Debug)]
pub struct Report {
    /// Each check by name.
    pub results: Vec<(&'static str, Result<(), Violation>)>,
}

impl Report {
    /// The checks that found a violation.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.results
            .iter()
            .filter(|(_, result)| result.is_err())
            .map(|(name, _)| *name)
            .collect()
    }

    /// # Panics
    /// If a check found a violation.
    pub fn assert_passed(&self) {
        let violations: Vec<_> = self
            .results
            .iter()
            .filter_map(|(name, result)| Some((name, result.as_ref().err()?)))
            .collect();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

type Outcome = Result<(), Violation>;
type Check = fn(Arc<dyn Backend>) -> BoxFuture<'static, Outcome>;

macro_rules! checks {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$((stringify!($name), |store| Box::pin($module::$name(store)))),*]
    };
}

const CHECKS: &[(&str, Check)] = checks![
    transactions::absent_key_compares_as_absent,
    transactions::present_key_compares_as_present,
    transactions::stale_revision_conflicts,
    transactions::conflict_writes_nothing_and_shows_the_present,
    transactions::revision_grows_by_one_for_each_change,
    transactions::transaction_without_change_keeps_the_revision,
    transactions::invalid_transaction_is_refused,
    transactions::recreated_key_has_a_new_create_revision,
    transactions::concurrent_increments_are_all_counted,
    reads::own_write_is_read,
    reads::range_ends_with_its_prefix,
    reads::chunks_of_a_range_make_the_whole,
    reads::range_is_one_snapshot_while_others_write,
    history::every_past_state_is_served,
    history::future_revision_is_refused,
    watches::events_are_complete_and_in_order,
    watches::revision_is_never_split,
    watches::delete_event_shows_what_was,
    watches::watch_sees_its_prefix_only,
    watches::watch_resumes_from_every_revision,
    watches::watchers_that_join_while_others_write_miss_nothing,
    watches::all_watchers_see_one_order,
    watches::slow_watcher_is_cut_off_and_resumes,
    compaction::compacted_revision_is_refused,
    compaction::compaction_loses_no_event_and_no_key,
    compaction::compaction_does_not_disturb_a_running_watch,
];

/// Runs every check, each on its own store.
pub async fn run(make: &MakeFixture<'_>) -> Report {
    let mut results = Vec::with_capacity(CHECKS.len());
    for (name, check) in CHECKS {
        results.push((*name, run_one(make, *check).await));
    }
    Report { results }
}

/// The first check that finds a violation, if one does.
pub async fn first_violation(make: &MakeFixture<'_>) -> Option<&'static str> {
    for (name, check) in CHECKS {
        if run_one(make, *check).await.is_err() {
            return Some(name);
        }
    }
    None
}

async fn run_one(make: &MakeFixture<'_>, check: Check) -> Outcome {
    let fixture = make().await;
    let checked = tokio::time::timeout(DEADLINE, check(Arc::clone(&fixture.store))).await;
    checked.unwrap_or_else(|_| Err(Violation("took too long".to_owned())))
}

// === what the checks are written in ===

/// Fails a check unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Violation(otherwise()))
    }
}

fn ensure_eq<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T, what: &str) -> Outcome {
    ensure(found == expected, || {
        format!("{what}: found {found:?}, expected {expected:?}")
    })
}

/// Where the store is after so many changes from now on. Revisions of an engine that others use as
/// well do not begin at 0.
async fn counted(
    store: &dyn Backend,
) -> Result<impl Fn(u64) -> Revision + Copy + use<>, StoreError> {
    let start = store.current_revision().await?;
    Ok(move |changes| Revision(start.0 + changes))
}

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    }
}

fn delete(key: &str) -> Op {
    Op::Delete { key: key.into() }
}

fn absent(key: &str) -> Compare {
    Compare::Absent(key.into())
}

fn present(key: &str) -> Compare {
    Compare::Present(key.into())
}

fn at_revision(key: &str, revision: Revision) -> Compare {
    Compare::ModRevision(key.into(), revision)
}

/// Writes unconditionally.
async fn write(store: &dyn Backend, ops: Vec<Op>) -> Result<Revision, Violation> {
    match store
        .txn(Txn {
            compare: Vec::new(),
            ops,
            ..Txn::default()
        })
        .await?
    {
        TxnOutcome::Committed(revision) => Ok(revision),
        TxnOutcome::Conflict(_) => Err(Violation(
            "a transaction without comparisons conflicted".to_owned(),
        )),
    }
}

/// Lets several writers put `each` values under keys of their own, and a shared one, at the same
/// time.
async fn write_concurrently(store: &Arc<dyn Backend>, writers: usize, each: usize) -> Outcome {
    let tasks = (0..writers).map(|writer| {
        let store = Arc::clone(store);
        coracle_telemetry::spawn("task of a test", async move {
            for n in 0..each {
                let value = format!("{writer}-{n}");
                let own = format!("/registry/pods/ns/{writer}-{}", n % 7);
                let op = if n % 5 == 4 {
                    delete(&own)
                } else {
                    put(&own, &value)
                };
                write(&*store, vec![op, put("/registry/pods/ns/shared", &value)]).await?;
            }
            Ok::<_, Violation>(())
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.map_err(|error| Violation(error.to_string()))??;
    }
    Ok(())
}
