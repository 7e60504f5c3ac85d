//! Pages of the past show one state, and look through what has changed since then once.

use super::*;
use crate::{
    Backend,
    sqlite::SqliteBackend,
    types::{Op, RangeResponse, Txn, TxnOutcome},
};

const KEYS: usize = 300;
const PAGE: usize = 20;

async fn write(store: &SqliteBackend, ops: Vec<Op>) -> Revision {
    let txn = Txn {
        ops,
        ..Txn::default()
    };
    match store.txn(txn).await.unwrap() {
        TxnOutcome::Committed(revision) => revision,
        conflict @ TxnOutcome::Conflict(_) => panic!("{conflict:?}"),
    }
}

fn put(key: usize, value: &str) -> Op {
    let (key, value) = (format!("/a/{key:03}").into(), value.to_owned().into());
    Op::Put { key, value }
}

async fn page(store: &SqliteBackend, at: Revision, start: Option<String>) -> RangeResponse {
    let request = RangeRequest {
        prefix: "/a/".into(),
        start,
        limit: Some(PAGE),
        at: Some(at),
    };
    store.range(request).await.unwrap()
}

#[tokio::test]
async fn pages_show_one_state_while_all_of_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteBackend::open(dir.path()).unwrap();
    for key in 0..KEYS {
        write(&store, vec![put(key, "old")]).await;
    }
    let at = store.current_revision().await.unwrap();
    for key in (0..KEYS).step_by(3) {
        write(&store, vec![put(key, "new")]).await;
    }
    let (mut seen, mut start, mut changes) = (Vec::new(), None, KEYS / 3);
    for number in 0..KEYS / PAGE {
        let page = page(&store, at, start.take()).await;
        assert_eq!(page.revision, at);
        assert_eq!(page.remaining, KEYS - (number + 1) * PAGE);
        start = page.items.last().map(|last| format!("{}\0", last.key));
        seen.extend(page.items);
        // Before the page, in it and behind it: there, gone, and new.
        let gone = Op::Delete {
            key: format!("/a/{:03}", 7 * number).into(),
        };
        write(&store, vec![gone]).await;
        write(&store, vec![put(KEYS - 1 - number, "new")]).await;
        write(&store, vec![put(KEYS + number, "new")]).await;
        changes += 3;
    }
    let keys: Vec<_> = seen.iter().map(|one| one.key.to_string()).collect();
    let all: Vec<_> = (0..KEYS).map(|key| format!("/a/{key:03}")).collect();
    assert_eq!(keys, all);
    assert!(seen.iter().all(|one| one.value == "old"));
    let past = store.shared.pasts.of(at);
    let looked_at = past.changes.lock().looked_at;
    assert!(
        looked_at <= changes,
        "{looked_at} of {changes} changes: each once"
    );
}

#[tokio::test]
async fn what_is_compacted_or_idle_is_not_kept() {
    let pasts = Pasts::default();
    let (old, new) = (pasts.of(Revision(1)), pasts.of(Revision(2)));
    pasts.compact(Revision(2));
    assert!(!Arc::ptr_eq(&old, &pasts.of(Revision(1))));
    assert!(Arc::ptr_eq(&new, &pasts.of(Revision(2))));
    for revision in 3..3 + PASTS as u64 {
        pasts.of(Revision(revision));
    }
    assert!(!Arc::ptr_eq(&new, &pasts.of(Revision(2))), "bounded");
}
