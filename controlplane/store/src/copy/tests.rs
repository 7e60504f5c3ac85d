use std::sync::Arc;

use super::*;
use crate::{
    memory::MemoryBackend,
    sqlite::{SqliteBackend, SqliteOptions},
};

async fn put(store: &dyn Backend, key: &str, value: impl Into<Bytes>) {
    let txn = Txn {
        ops: vec![Op::Put {
            key: format!("{ROOT}{key}").into(),
            value: value.into(),
        }],
        ..Txn::default()
    };
    store.txn(txn).await.unwrap();
}

/// 300 keys that were written in another order than theirs, one of them large, one deleted.
async fn filled() -> MemoryBackend {
    let store = MemoryBackend::new();
    for n in (0..300).rev() {
        put(&store, &format!("pods/ns/{n:03}"), format!("value {n}")).await;
    }
    put(&store, "configmaps/ns/large", vec![7; BATCH_BYTES + 1]).await;
    let delete = Op::Delete {
        key: format!("{ROOT}pods/ns/007").into(),
    };
    let txn = Txn {
        ops: vec![delete],
        ..Txn::default()
    };
    store.txn(txn).await.unwrap();
    store
}

fn sqlite(begin_after: Revision) -> (tempfile::TempDir, SqliteBackend) {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        begin_after,
        ..SqliteOptions::default()
    };
    let store = SqliteBackend::open_with(dir.path(), options).unwrap();
    (dir, store)
}

#[tokio::test]
async fn everything_is_there_under_greater_revisions_in_the_same_order() {
    let from = filled().await;
    let past = from.current_revision().await.unwrap();
    let (dir, to) = sqlite(past);
    let copied = copy(&from, &to).await.unwrap();
    assert_eq!((copied.keys, copied.from), (300, past));
    assert!(copied.to > past);
    drop(to);
    let to = SqliteBackend::open(dir.path()).unwrap();
    assert_eq!(to.current_revision().await.unwrap(), copied.to);
    let before = read_all(&from, past).await.unwrap();
    let after = read_all(&to, copied.to).await.unwrap();
    let (mut newest, mut last) = (Revision(0), Revision(0));
    let mut by_age: Vec<_> = before.iter().zip(&after).collect();
    by_age.sort_by_key(|(old, _)| old.mod_revision);
    for (old, new) in by_age {
        assert_eq!((&old.key, &old.value), (&new.key, &new.value));
        assert!(new.mod_revision > past && new.mod_revision >= newest);
        assert!(old.mod_revision > last);
        (newest, last) = (new.mod_revision, old.mod_revision);
    }
}

#[tokio::test]
async fn what_was_before_cannot_be_asked_for() {
    let from = filled().await;
    let past = from.current_revision().await.unwrap();
    let (_dir, to) = sqlite(past);
    let copied = copy(&from, &to).await.unwrap();
    for old in [past, Revision(past.0 - 1), Revision(copied.to.0 - 1)] {
        let watch = to.watch(ROOT, old).await.err();
        assert!(matches!(watch, Some(StoreError::Compacted { .. })), "{old}");
    }
    drop(to.watch(ROOT, copied.to).await.unwrap());
}

#[tokio::test]
async fn nothing_is_written_over_or_counted_twice() {
    let from = filled().await;
    let past = from.current_revision().await.unwrap();
    let (_dir, full) = sqlite(past);
    put(&full, "pods/ns/other", "theirs").await;
    let error = copy(&from, &full).await.unwrap_err();
    assert!(matches!(error, CopyError::NotEmpty { keys: 1 }), "{error}");
    let (_dir, fresh) = sqlite(Revision(0));
    let error = copy(&from, &fresh).await.unwrap_err();
    assert!(matches!(error, CopyError::Behind { .. }), "{error}");
    assert!(read_all(&fresh, Revision(0)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_store_with_data_keeps_its_revisions() {
    let (dir, store) = sqlite(Revision(0));
    put(&store, "pods/ns/a", "1").await;
    drop(store);
    let options = SqliteOptions {
        begin_after: Revision(1000),
        ..SqliteOptions::default()
    };
    let store: Arc<dyn Backend> = Arc::new(SqliteBackend::open_with(dir.path(), options).unwrap());
    assert_eq!(store.current_revision().await.unwrap(), Revision(1));
}

#[test]
fn a_difference_is_found_on_either_side() {
    let entry = |key: &str, value: &'static str| KeyValue {
        key: key.into(),
        value: value.into(),
        create_revision: Revision(1),
        mod_revision: Revision(1),
    };
    let two = [entry("a", "1"), entry("b", "2")];
    assert!(compare(&two, &two).is_ok());
    for (found, expected) in [
        (vec![entry("a", "1")], "b"),
        (vec![entry("a", "1"), entry("b", "3")], "b"),
        (vec![entry("a", "1"), entry("b", "2"), entry("c", "")], "c"),
    ] {
        match compare(&two, &found) {
            Err(CopyError::Differs { key }) => assert_eq!(key, expected),
            other => panic!("{other:?}"),
        }
    }
}
