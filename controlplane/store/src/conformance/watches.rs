//! Watching: ordered, unique, atomic, reliable, resumable.

use std::sync::Arc;

use futures::StreamExt;

use super::{
    Outcome, Violation, counted, delete, ensure, ensure_eq, put, recorder::Recorder, write,
    write_concurrently,
};
use crate::{backend::Backend, types::Revision};

pub(super) async fn events_are_complete_and_in_order(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let mut live = Recorder::start(&*store, at(0)).await?;
    write_concurrently(&store, 4, 40).await?;
    let current = store.current_revision().await?;
    let mut past = Recorder::start(&*store, at(0)).await?;
    for recorder in [&mut live, &mut past] {
        recorder.record(current).await?;
        recorder.compare(&*store).await?;
    }
    let revisions = live
        .events
        .iter()
        .map(|event| event.kv.mod_revision)
        .collect::<std::collections::BTreeSet<_>>();
    ensure_eq(
        &(revisions.len() as u64),
        &(current.0 - at(0).0),
        "the number of revisions that had events",
    )?;
    ensure_eq(&past.events, &live.events, "history and the live watch")
}

pub(super) async fn revision_is_never_split(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let mut streams = vec![store.watch("/registry/", at(0)).await?];
    for n in 0..20 {
        let ops = (0..10)
            .map(|key| put(&format!("/registry/pods/ns/{key}"), &n.to_string()))
            .collect();
        write(&*store, ops).await?;
    }
    streams.push(store.watch("/registry/", at(0)).await?);
    for mut stream in streams {
        let mut seen = at(0);
        while seen < at(20) {
            let batch = stream
                .next()
                .await
                .ok_or_else(|| Violation("the watch ended".to_owned()))??;
            let first = batch
                .events
                .first()
                .map_or(batch.revision, |event| event.kv.mod_revision);
            ensure(first > seen, || {
                format!("revision {first} was split over two batches")
            })?;
            ensure(batch.events.len() % 10 == 0, || {
                format!("{} events of whole transactions", batch.events.len())
            })?;
            let keys: Vec<&str> = batch.events.iter().map(|event| &*event.kv.key).collect();
            let is_ordered = keys.chunks(10).all(|keys| keys.is_sorted());
            ensure(is_ordered, || {
                format!("events in another order than their writes: {keys:?}")
            })?;
            seen = batch.revision;
        }
    }
    Ok(())
}

pub(super) async fn delete_event_shows_what_was(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    const KEY: &str = "/registry/pods/ns/a";
    write(&*store, vec![put(KEY, "1")]).await?;
    write(&*store, vec![put(KEY, "2")]).await?;
    write(&*store, vec![delete(KEY)]).await?;
    let mut recorder = Recorder::start(&*store, at(0)).await?;
    recorder.record(at(3)).await?;
    let last = recorder
        .events
        .last()
        .ok_or_else(|| Violation("no events".to_owned()))?;
    let shown = (
        last.deleted,
        &*last.kv.value,
        last.kv.create_revision,
        last.kv.mod_revision,
    );
    ensure_eq(
        &shown,
        &(true, b"2".as_slice(), at(1), at(3)),
        "the deletion",
    )
}

pub(super) async fn watch_sees_its_prefix_only(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let live = store.watch("/registry/pods/", at(0)).await?;
    let keys = [
        "/registry/pods/a",
        "/registry/podsx/a",
        "/registry/pod/a",
        "/registry/pods/b/c",
    ];
    for _ in 0..2 {
        for key in keys {
            write(&*store, vec![put(key, "x")]).await?;
        }
    }
    let past = store.watch("/registry/pods/", at(0)).await?;
    for mut stream in [live, past] {
        let (mut seen, mut revision) = (Vec::new(), at(0));
        while revision < at(8) {
            let batch = stream
                .next()
                .await
                .ok_or_else(|| Violation("the watch ended".to_owned()))??;
            revision = batch.revision;
            seen.extend(
                batch
                    .events
                    .iter()
                    .map(|event| (event.kv.key.to_string(), event.kv.mod_revision)),
            );
        }
        let expected = [(keys[0], 1), (keys[3], 4), (keys[0], 5), (keys[3], 8)]
            .map(|(key, n)| (key.to_owned(), at(n)));
        ensure_eq(&seen, &expected.to_vec(), "the events of a prefix")?;
    }
    Ok(())
}

pub(super) async fn watch_resumes_from_every_revision(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    write_concurrently(&store, 3, 20).await?;
    let current = store.current_revision().await?;
    let mut whole = Recorder::start(&*store, at(0)).await?;
    whole.record(current).await?;
    for from in (at(0).0..=current.0).map(Revision) {
        let mut resumed = Recorder::start(&*store, from).await?;
        resumed.record(current).await?;
        let expected: Vec<_> = whole
            .events
            .iter()
            .filter(|event| event.kv.mod_revision > from)
            .cloned()
            .collect();
        ensure_eq(
            &resumed.events,
            &expected,
            &format!("the events after {from}"),
        )?;
    }
    Ok(())
}

pub(super) async fn watchers_that_join_while_others_write_miss_nothing(
    store: Arc<dyn Backend>,
) -> Outcome {
    let at = counted(&*store).await?;
    let writing = {
        let store = Arc::clone(&store);
        coracle_telemetry::spawn("task of a test", async move {
            write_concurrently(&store, 4, 60).await
        })
    };
    let mut recorders = Vec::new();
    while !writing.is_finished() {
        let current = store.current_revision().await?;
        let from = Revision(current.0.saturating_sub(recorders.len() as u64 % 9));
        recorders.push(Recorder::start(&*store, from.max(at(0))).await?);
        tokio::task::yield_now().await;
    }
    writing
        .await
        .map_err(|error| Violation(error.to_string()))??;
    let current = store.current_revision().await?;
    for mut recorder in recorders {
        recorder.record(current).await?;
        recorder.compare(&*store).await?;
    }
    Ok(())
}

pub(super) async fn all_watchers_see_one_order(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let mut recorders = Vec::new();
    for _ in 0..20 {
        recorders.push(Recorder::start(&*store, at(0)).await?);
    }
    write_concurrently(&store, 4, 40).await?;
    let current = store.current_revision().await?;
    for recorder in &mut recorders {
        recorder.record(current).await?;
    }
    for recorder in &recorders[1..] {
        ensure_eq(
            &recorder.events,
            &recorders[0].events,
            "the events of two watchers",
        )?;
    }
    Ok(())
}

/// More batches than any engine queues for one watcher.
const TOO_MUCH: u64 = 3000;

pub(super) async fn slow_watcher_is_cut_off_and_resumes(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    const KEY: &str = "/registry/pods/ns/a";
    let mut slow = Recorder::start(&*store, at(0)).await?;
    for n in 0..TOO_MUCH {
        write(&*store, vec![put(KEY, &n.to_string())]).await?;
    }
    let current = store.current_revision().await?;
    if !slow.record_until_cut_off(current).await? {
        return Err(Violation(
            "a watcher that took nothing was not cut off".to_owned(),
        ));
    }
    slow.restart(&*store).await?;
    slow.record(current).await?;
    ensure_eq(
        &(slow.events.len() as u64),
        &TOO_MUCH,
        "the events of the watcher after all",
    )?;
    slow.compare(&*store).await
}
