//! Forgetting the past without losing the present.

use std::sync::Arc;

use super::{
    Outcome, Violation, counted, delete, ensure, ensure_eq, history::state_at, put,
    recorder::Recorder, write, write_concurrently,
};
use crate::{backend::Backend, error::StoreError, types::Revision};

pub(super) async fn compacted_revision_is_refused(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    for n in 0..10 {
        write(&*store, vec![put("/registry/pods/ns/a", &n.to_string())]).await?;
    }
    store.compact(at(6)).await?;
    // Again, and further back: nothing happens.
    store.compact(at(6)).await?;
    store.compact(at(2)).await?;
    for asked in [at(0), at(5)] {
        let range = state_at(&*store, asked).await.err();
        let watch = store.watch("/registry/", asked).await.err();
        for error in [range, watch] {
            let refused =
                matches!(error, Some(StoreError::Compacted { oldest, .. }) if oldest == at(6));
            ensure(refused, || format!("revision {asked} gave {error:?}"))?;
        }
    }
    for asked in [at(6), at(7), at(10)] {
        let found = state_at(&*store, asked).await?;
        ensure_eq(
            &found.first().map(|kv| kv.mod_revision),
            &Some(asked),
            "the oldest states that are left",
        )?;
        drop(store.watch("/registry/", asked).await?);
    }
    Ok(())
}

pub(super) async fn compaction_loses_no_event_and_no_key(store: Arc<dyn Backend>) -> Outcome {
    let at = counted(&*store).await?;
    let mut whole = Recorder::start(&*store, at(0)).await?;
    for n in 0..60_usize {
        let key = format!("/registry/pods/ns/{}", n % 7);
        let op = if n % 4 == 3 {
            delete(&key)
        } else {
            put(&key, &n.to_string())
        };
        write(
            &*store,
            vec![op, put("/registry/pods/ns/all", &n.to_string())],
        )
        .await?;
    }
    let current = store.current_revision().await?;
    whole.record(current).await?;
    for to in (at(5).0..=current.0).step_by(5).map(Revision) {
        let expected_state = state_at(&*store, to).await?;
        store.compact(to).await?;
        // Deleting goes on behind the scenes: what is left must not change while it does.
        for _ in 0..3 {
            ensure_eq(
                &state_at(&*store, to).await?,
                &expected_state,
                &format!("the state at {to}, just compacted"),
            )?;
            let mut rest = Recorder::start(&*store, to).await?;
            rest.record(current).await?;
            let expected: Vec<_> = whole
                .events
                .iter()
                .filter(|event| event.kv.mod_revision > to)
                .cloned()
                .collect();
            ensure_eq(
                &rest.events,
                &expected,
                &format!("the events after {to}, just compacted"),
            )?;
            rest.compare(&*store).await?;
        }
    }
    Ok(())
}

pub(super) async fn compaction_does_not_disturb_a_running_watch(
    store: Arc<dyn Backend>,
) -> Outcome {
    let at = counted(&*store).await?;
    let mut watching = Recorder::start(&*store, at(0)).await?;
    let writing = {
        let store = Arc::clone(&store);
        coracle_telemetry::spawn("task of a test", async move {
            write_concurrently(&store, 4, 60).await
        })
    };
    while !writing.is_finished() {
        // What the watch has not been shown may be compacted: it is queued.
        store.compact(store.current_revision().await?).await?;
        tokio::task::yield_now().await;
    }
    writing
        .await
        .map_err(|error| Violation(error.to_string()))??;
    let current = store.current_revision().await?;
    watching.record(current).await?;
    watching.compare(&*store).await?;
    ensure_eq(
        &watching.events.first().map(|event| event.kv.mod_revision),
        &Some(at(1)),
        "the first event",
    )
}
