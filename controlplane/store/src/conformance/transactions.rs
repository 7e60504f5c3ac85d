//! Comparing and writing.

use std::sync::Arc;

use super::{
    Outcome, Violation, absent, at_revision, counted, delete, ensure, ensure_eq, present, put,
    write,
};
use crate::{
    backend::Backend,
    error::StoreError,
    types::{MAX_OPS, Revision, Txn, TxnOutcome},
};

const KEY: &str = "/registry/pods/ns/a";
const OTHER: &str = "/registry/pods/ns/b";

pub(super) async fn absent_key_compares_as_absent(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let create = Txn {
        compare: vec![absent(KEY)],
        ops: vec![put(KEY, "1")],
        ..Txn::default()
    };
    ensure_eq(
        &store.txn(create.clone()).await?,
        &TxnOutcome::Committed(at(1)),
        "the first create",
    )?;
    let second = store.txn(create.clone()).await?;
    ensure(matches!(second, TxnOutcome::Conflict(_)), || {
        format!("the second create ended as {second:?}")
    })?;
    write(&*store, vec![delete(KEY)]).await?;
    ensure_eq(
        &store.txn(create).await?,
        &TxnOutcome::Committed(at(3)),
        "the create after a delete",
    )
}

pub(super) async fn present_key_compares_as_present(store: Arc<dyn Backend>) -> Outcome {
    let beside = |value| Txn {
        compare: vec![present(KEY)],
        ops: vec![put(OTHER, value)],
        ..Txn::default()
    };
    let before = store.txn(beside("1")).await?;
    ensure_eq(
        &before,
        &TxnOutcome::Conflict(vec![None]),
        "beside what never was",
    )?;
    // Whatever it holds: also nothing.
    for value in ["", "1"] {
        write(&*store, vec![put(KEY, value)]).await?;
        let outcome = store.txn(beside("2")).await?;
        ensure(matches!(outcome, TxnOutcome::Committed(_)), || {
            format!("beside what is there ended as {outcome:?}")
        })?;
    }
    write(&*store, vec![delete(KEY)]).await?;
    let after = store.txn(beside("3")).await?;
    ensure_eq(
        &after,
        &TxnOutcome::Conflict(vec![None]),
        "beside what has gone",
    )
}

pub(super) async fn stale_revision_conflicts(store: Arc<dyn Backend>) -> Outcome {
    let first = write(&*store, vec![put(KEY, "1")]).await?;
    let second = write(&*store, vec![put(KEY, "2")]).await?;
    let update = |revision| Txn {
        compare: vec![at_revision(KEY, revision)],
        ops: vec![put(KEY, "3")],
        ..Txn::default()
    };
    for wrong in [first, Revision(0), Revision(second.0 + 1)] {
        let outcome = store.txn(update(wrong)).await?;
        ensure(matches!(outcome, TxnOutcome::Conflict(_)), || {
            format!("revision {wrong} ended as {outcome:?}")
        })?;
    }
    let outcome = store.txn(update(second)).await?;
    ensure(matches!(outcome, TxnOutcome::Committed(_)), || {
        format!("the present revision ended as {outcome:?}")
    })?;
    let missing = Txn {
        compare: vec![at_revision(OTHER, Revision(0))],
        ops: vec![put(OTHER, "1")],
        ..Txn::default()
    };
    let outcome = store.txn(missing).await?;
    ensure(matches!(outcome, TxnOutcome::Conflict(_)), || {
        format!("a missing key at revision 0 ended as {outcome:?}")
    })
}

pub(super) async fn conflict_writes_nothing_and_shows_the_present(
    store: Arc<dyn Backend>,
) -> Outcome {
    let at = counted(&*store).await?;
    write(&*store, vec![put(KEY, "1")]).await?;
    let present = store.get(KEY).await?;
    let txn = Txn {
        compare: vec![absent(OTHER), absent(KEY)],
        ops: vec![put(OTHER, "x"), put(KEY, "x")],
        ..Txn::default()
    };
    ensure_eq(
        &store.txn(txn).await?,
        &TxnOutcome::Conflict(vec![None, present.clone()]),
        "the conflict",
    )?;
    ensure_eq(&store.get(KEY).await?, &present, "the compared key")?;
    ensure_eq(&store.get(OTHER).await?, &None, "the other key")?;
    ensure_eq(&store.current_revision().await?, &at(1), "the revision")
}

pub(super) async fn revision_grows_by_one_for_each_change(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    for n in 1..50 {
        let revision = write(&*store, vec![put(KEY, &n.to_string()), put(OTHER, "x")]).await?;
        ensure_eq(&revision, &at(n), "the revision of a write")?;
        ensure_eq(
            &store.current_revision().await?,
            &at(n),
            "the revision after a write",
        )?;
    }
    Ok(())
}

pub(super) async fn transaction_without_change_keeps_the_revision(
    store: Arc<dyn Backend>,
) -> Outcome {
    let before = write(&*store, vec![put(KEY, "1")]).await?;
    ensure_eq(
        &write(&*store, vec![delete(OTHER)]).await?,
        &before,
        "deleting what is absent",
    )?;
    ensure_eq(&write(&*store, vec![]).await?, &before, "writing nothing")?;
    ensure_eq(
        &write(&*store, vec![put(KEY, "1")]).await?,
        &Revision(before.0 + 1),
        "writing the same value",
    )
}

pub(super) async fn invalid_transaction_is_refused(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let twice = vec![put(KEY, "1"), delete(KEY)];
    let too_many = (0..=MAX_OPS)
        .map(|n| put(&format!("{KEY}{n}"), "x"))
        .collect();
    for ops in [twice, too_many, vec![put("/registry/a\0b", "x")]] {
        let outcome = store
            .txn(Txn {
                compare: vec![],
                ops,
                ..Txn::default()
            })
            .await;
        ensure(
            matches!(outcome, Err(StoreError::InvalidTxn { .. })),
            || format!("ended as {outcome:?}"),
        )?;
    }
    let too_many = Txn {
        compare: (0..=MAX_OPS)
            .map(|n| absent(&format!("{KEY}{n}")))
            .collect(),
        ops: vec![put(KEY, "1")],
        ..Txn::default()
    };
    let outcome = store.txn(too_many).await;
    ensure(
        matches!(outcome, Err(StoreError::InvalidTxn { .. })),
        || format!("ended as {outcome:?}"),
    )?;
    let most = (0..MAX_OPS)
        .map(|n| put(&format!("{KEY}{n}"), "x"))
        .collect();
    ensure_eq(
        &write(&*store, most).await?,
        &at(1),
        "the largest transaction",
    )
}

pub(super) async fn recreated_key_has_a_new_create_revision(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    for ops in [
        vec![put(KEY, "1")],
        vec![put(KEY, "2")],
        vec![delete(KEY)],
        vec![put(KEY, "3")],
        vec![put(KEY, "4")],
    ] {
        write(&*store, ops).await?;
    }
    let found = store
        .get(KEY)
        .await?
        .map(|kv| (kv.create_revision, kv.mod_revision));
    ensure_eq(&found, &Some((at(4), at(5))), "create and mod revision")
}

pub(super) async fn concurrent_increments_are_all_counted(store: Arc<dyn Backend>) -> Outcome {
    const WRITERS: usize = 8;
    const EACH: usize = 40;
    write(&*store, vec![put(KEY, "0")]).await?;
    let tasks = (0..WRITERS)
        .map(|_| coracle_telemetry::spawn("task of a test", increment(Arc::clone(&store), EACH)));
    let mut revisions = Vec::new();
    for task in futures::future::join_all(tasks).await {
        revisions.extend(task.map_err(|error| Violation(error.to_string()))??);
    }
    let counted = store
        .get(KEY)
        .await?
        .map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    ensure_eq(&counted, &Some((WRITERS * EACH).to_string()), "the counter")?;
    revisions.sort_unstable();
    let unique = revisions.windows(2).all(|pair| pair[0] < pair[1]);
    ensure(unique, || {
        format!("two transactions had one revision: {revisions:?}")
    })
}

/// Adds one, so many times, by reading and writing with a comparison. Each writer's revisions must
/// grow.
async fn increment(store: Arc<dyn Backend>, times: usize) -> Result<Vec<Revision>, Violation> {
    let mut revisions = Vec::new();
    while revisions.len() < times {
        let kv = store
            .get(KEY)
            .await?
            .ok_or_else(|| Violation("the counter is gone".to_owned()))?;
        let count: usize = String::from_utf8_lossy(&kv.value)
            .parse()
            .map_err(|_| Violation("no number".to_owned()))?;
        let ops = vec![put(KEY, &(count + 1).to_string())];
        let txn = Txn {
            compare: vec![at_revision(KEY, kv.mod_revision)],
            ops,
            ..Txn::default()
        };
        if let TxnOutcome::Committed(revision) = store.txn(txn).await? {
            let grows =
                revisions.last().is_none_or(|last| *last < revision) && revision > kv.mod_revision;
            ensure(grows, || format!("revision {revision} after {revisions:?}"))?;
            revisions.push(revision);
        }
    }
    Ok(revisions)
}
