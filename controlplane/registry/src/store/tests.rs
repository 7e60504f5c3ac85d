//! Writes through a cache that is behind: the store tells of them when it likes.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use coracle_store::{
    RangeRequest, RangeResponse, Txn, WatchStream, testing::FailingBackend as Behind,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{update::UpdateTarget, *};
use crate::{part::Part, resource::Registry};

/// Counts transactions, also those that compare in vain.
struct Counting {
    inner: Behind,
    txns: AtomicUsize,
}

#[async_trait]
impl Backend for Counting {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        self.txns.fetch_add(1, Ordering::Relaxed);
        self.inner.txn(txn).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.inner.range(request).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        self.inner.watch(prefix, from).await
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.inner.compact(to).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner.current_revision().await
    }

    async fn hasten(&self, revision: Revision) {
        self.inner.hasten(revision).await;
    }
}

fn map(text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"text": text}})
}

#[tokio::test]
async fn who_changes_what_he_has_written_loses_no_race_against_himself() {
    let backend = Arc::new(Counting {
        inner: Behind::remote(),
        txns: AtomicUsize::new(0),
    });
    let shared: Arc<dyn Backend> = backend.clone();
    let (registry, cache) = Registry::start(&shared, CancellationToken::new())
        .await
        .expect("an empty registry");
    let (store, maps) = (
        Store {
            backend: shared,
            cache,
        },
        registry.core("configmaps").expect("a kind"),
    );
    let target = UpdateTarget::own("default", "a", Part::Main);
    let created = store.create(maps, "default", map("first"), WriteOptions::default());
    created.await.expect("an object");
    // From here on nobody waits for the cache: it comes no further.
    let first = store.backend.current_revision().await.expect("a revision");
    store.cache.wait_for(first).await.expect("the first object");
    for text in ["second", "third"] {
        let updated = store.update(maps, &target, |_| Ok(map(text)));
        let json = updated.await.expect("a change").json;
        assert!(String::from_utf8_lossy(&json).contains(text));
    }
    let key = maps.key("default", "a");
    let cached = maps.cache.get(&key).expect("the first object");
    assert!(String::from_utf8_lossy(&cached.json_bytes()).contains("first"));
    assert_eq!(backend.txns.load(Ordering::Relaxed), 3);

    // What others write meanwhile is seen all the same, by losing that race.
    let others = store.backend.get(&key).await.expect("a read");
    let put = Op::Put {
        key: key.as_str().into(),
        value: String::from_utf8_lossy(&others.expect("the object").value)
            .replace("third", "of others")
            .into(),
    };
    let txn = Txn {
        ops: vec![put],
        ..Txn::default()
    };
    backend.inner.txn(txn).await.expect("a write");
    let updated = store.update(maps, &target, |present| {
        let mut new = present.clone();
        new["data"]["more"] = json!("ours");
        Ok(new)
    });
    let json = updated.await.expect("a change").json;
    let json = String::from_utf8_lossy(&json);
    assert!(
        json.contains("of others") && json.contains("ours"),
        "{json}"
    );
    assert_eq!(backend.txns.load(Ordering::Relaxed), 5);
}
