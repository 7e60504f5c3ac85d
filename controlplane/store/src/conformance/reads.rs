//! Reading the present.

use std::sync::Arc;

use super::{Outcome, Violation, delete, ensure, ensure_eq, put, write};
use crate::{
    backend::Backend,
    types::{RangeRequest, Revision},
};

pub(super) async fn own_write_is_read(store: Arc<dyn Backend>) -> Outcome {
    const KEY: &str = "/registry/pods/ns/a";
    for n in 0..30 {
        let value = n.to_string();
        let revision = write(&*store, vec![put(KEY, &value)]).await?;
        let got = store.get(KEY).await?;
        let ranged = store
            .range(RangeRequest {
                prefix: KEY.to_owned(),
                ..RangeRequest::default()
            })
            .await?;
        ensure(ranged.revision >= revision, || {
            format!("a range at {} after a write at {revision}", ranged.revision)
        })?;
        for found in [got.as_ref(), ranged.items.first()] {
            let found = found.map(|kv| (kv.value.to_vec(), kv.mod_revision));
            ensure_eq(
                &found,
                &Some((value.clone().into_bytes(), revision)),
                "the value just written",
            )?;
        }
    }
    write(&*store, vec![delete(KEY)]).await?;
    ensure_eq(&store.get(KEY).await?, &None, "the key just deleted")
}

pub(super) async fn range_ends_with_its_prefix(store: Arc<dyn Backend>) -> Outcome {
    let keys = [
        "/registry/pod/a",
        "/registry/pods/a",
        "/registry/pods/b/c",
        "/registry/pods0",
        "/registry/podsx/a",
    ];
    for key in keys {
        write(&*store, vec![put(key, "x")]).await?;
    }
    for (prefix, expected) in [
        ("/registry/pods/", &keys[1..3]),
        ("/registry/pods", &keys[1..5]),
        ("/registry/pods/b/c", &keys[2..3]),
        ("/registry/q", &keys[..0]),
        ("", &keys[..]),
    ] {
        let found = store
            .range(RangeRequest {
                prefix: prefix.to_owned(),
                ..RangeRequest::default()
            })
            .await?;
        let found: Vec<&str> = found.items.iter().map(|kv| &*kv.key).collect();
        ensure_eq(&found, &expected.to_vec(), prefix)?;
    }
    Ok(())
}

pub(super) async fn chunks_of_a_range_make_the_whole(store: Arc<dyn Backend>) -> Outcome {
    for n in 0..25 {
        write(
            &*store,
            vec![
                put(&format!("/registry/pods/ns/{n:02}"), "x"),
                put(&format!("/registry/q/{n}"), "x"),
            ],
        )
        .await?;
    }
    let at = store.current_revision().await?;
    let (mut start, mut keys) = (None, Vec::new());
    loop {
        let prefix = "/registry/pods/".to_owned();
        let chunk = store
            .range(RangeRequest {
                prefix,
                start,
                limit: Some(10),
                at: Some(at),
            })
            .await?;
        ensure_eq(&chunk.revision, &at, "the revision of a chunk")?;
        keys.extend(chunk.items.iter().map(|kv| kv.key.to_string()));
        ensure_eq(&chunk.remaining, &(25 - keys.len()), "what remains")?;
        // Others write between the chunks.
        write(
            &*store,
            vec![
                delete("/registry/pods/ns/13"),
                put("/registry/pods/ns/135", "new"),
            ],
        )
        .await?;
        if chunk.remaining == 0 {
            break;
        }
        start = keys.last().map(|last| format!("{last}\0"));
    }
    let expected: Vec<String> = (0..25)
        .map(|n| format!("/registry/pods/ns/{n:02}"))
        .collect();
    ensure_eq(&keys, &expected, "all chunks together")
}

/// Each transaction moves something from one account to another; no snapshot may see it twice or
/// not at all.
pub(super) async fn range_is_one_snapshot_while_others_write(store: Arc<dyn Backend>) -> Outcome {
    const ACCOUNTS: usize = 6;
    const START: u64 = 100;
    let account = |n: usize| format!("/registry/accounts/{n}");
    write(
        &*store,
        (0..ACCOUNTS)
            .map(|n| put(&account(n), &START.to_string()))
            .collect(),
    )
    .await?;
    let writer = Arc::clone(&store);
    let writing = coracle_telemetry::spawn("task of a test", async move {
        let mut balances = [START; ACCOUNTS];
        for n in 0..300 {
            let (from, to) = (n % ACCOUNTS, (n * 5 + 1) % ACCOUNTS);
            if from == to || balances[from] == 0 {
                continue;
            }
            balances[from] -= 1;
            balances[to] += 1;
            let ops = [from, to].map(|n| put(&account(n), &balances[n].to_string()));
            write(&*writer, ops.to_vec()).await?;
        }
        Ok::<_, Violation>(())
    });
    let mut last = Revision(0);
    while !writing.is_finished() {
        let request = RangeRequest {
            prefix: "/registry/accounts/".to_owned(),
            ..RangeRequest::default()
        };
        let snapshot = store.range(request).await?;
        ensure(snapshot.revision >= last, || {
            format!("a range at {} after one at {last}", snapshot.revision)
        })?;
        last = snapshot.revision;
        let total: u64 = snapshot
            .items
            .iter()
            .filter_map(|kv| String::from_utf8_lossy(&kv.value).parse::<u64>().ok())
            .sum();
        ensure_eq(&total, &(START * ACCOUNTS as u64), "the sum of a snapshot")?;
        let newest = snapshot.items.iter().map(|kv| kv.mod_revision).max();
        ensure(newest <= Some(last), || {
            format!("a snapshot at {last} shows {newest:?}")
        })?;
    }
    writing
        .await
        .map_err(|error| Violation(error.to_string()))?
}
