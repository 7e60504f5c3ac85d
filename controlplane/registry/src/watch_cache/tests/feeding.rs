//! How the cache follows the store: at the start, when the watch breaks off, at the end.

use std::sync::atomic::{AtomicBool, Ordering};

use coracle_store::{KeyValue, RangeRequest, RangeResponse, StoreError, WatchStream};
use futures::StreamExt;
use tokio::sync::Notify;

use super::*;

#[tokio::test]
async fn objects_that_were_stored_before_are_loaded() {
    let store: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    for n in 0..2500 {
        write(&*store, vec![put_pod(&format!("ns/{n:04}"), "web", "n1")]).await;
    }
    let cluster = Cluster::with(store, WatchCacheLimits::default()).await;
    assert_eq!(
        (cluster.pods.len(), cluster.cache.revision()),
        (2500, Revision(2500))
    );
    assert_eq!(
        cluster
            .pods
            .get(&pod_key("ns/0042"))
            .unwrap()
            .field("spec.nodeName"),
        Some("n1")
    );
}

#[tokio::test]
async fn watch_survives_a_restart() {
    let store: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    for n in 0..5 {
        write(&*store, vec![put_pod("ns/a", &n.to_string(), "")]).await;
    }
    store.compact(Revision(2)).await.unwrap();
    let cluster = Cluster::with(store, WatchCacheLimits::default()).await;
    let mut watcher = cluster.pods.watch(everything(), Revision(2)).unwrap();
    assert_eq!(
        take(&mut watcher, 3).await,
        ["MODIFIED a@3", "MODIFIED a@4", "MODIFIED a@5"]
    );
    assert!(matches!(
        cluster.pods.watch(everything(), Revision(1)),
        Err(WatchCacheError::TooOld { .. })
    ));
}

#[tokio::test]
async fn broken_object_hides_no_other() {
    let cluster = Cluster::start().await;
    let broken = Op::Put {
        key: pod_key("ns/broken").into(),
        value: "no JSON".into(),
    };
    cluster
        .write(vec![broken, put_pod("ns/a", "web", "")])
        .await;
    assert_eq!(
        names(
            &cluster
                .pods
                .list(&ListRequest::all(everything()))
                .unwrap()
                .entries
        ),
        ["a"]
    );
}

#[tokio::test]
async fn shutdown_ends_watches_and_waits() {
    let cluster = Cluster::start().await;
    let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
    cluster.pod("ns/a", "web", "").await;
    cluster.shutdown.cancel();
    cluster.cache.stopped().await;
    // What is there is still delivered.
    assert_eq!(take(&mut watcher, 1).await, ["ADDED a@1"]);
    assert!(matches!(watcher.next().await, Err(WatchCacheError::Closed)));
    assert!(matches!(
        cluster.cache.wait_for(Revision(2)).await,
        Err(WatchCacheError::Closed)
    ));
}

/// A store whose watch breaks off when told, as if its reader had been too slow, and does not come
/// back before told.
struct Flaky {
    inner: MemoryBackend,
    cut: Arc<Notify>,
    away: AtomicBool,
}

#[async_trait::async_trait]
impl Backend for Flaky {
    async fn txn(&self, txn: Txn) -> Result<TxnOutcome, StoreError> {
        self.inner.txn(txn).await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.inner.range(request).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<WatchStream, StoreError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(StoreError::Engine {
                what: "watch".to_owned(),
                source: "away".into(),
            });
        }
        let cut = Arc::clone(&self.cut);
        let error = futures::stream::once(async move {
            cut.notified().await;
            Err(StoreError::WatcherTooSlow)
        });
        // Ends with the error, whatever is still queued.
        let both = futures::stream::select(self.inner.watch(prefix, from).await?, error);
        let ended = both.scan(false, |ended, item| {
            let item = (!*ended).then_some(item);
            *ended = matches!(item, Some(Err(_)));
            async move { item }
        });
        Ok(ended.boxed())
    }

    async fn compact(&self, to: Revision) -> Result<(), StoreError> {
        self.inner.compact(to).await
    }

    fn current_revision(&self) -> Revision {
        self.inner.current_revision()
    }
}

/// Breaks the feed of `cluster`, writes two pods and deletes one meanwhile, and lets it come back.
async fn break_feed(flaky: &Flaky, compact: bool) {
    flaky.away.store(true, Ordering::Relaxed);
    flaky.cut.notify_one();
    tokio::task::yield_now().await;
    write(
        flaky,
        vec![put_pod("ns/b", "web", ""), put_pod("ns/c", "web", "")],
    )
    .await;
    write(
        flaky,
        vec![Op::Delete {
            key: pod_key("ns/a").into(),
        }],
    )
    .await;
    if compact {
        flaky.compact(flaky.current_revision()).await.unwrap();
    }
    flaky.away.store(false, Ordering::Relaxed);
}

async fn flaky_cluster() -> (Arc<Flaky>, Cluster) {
    let flaky = Arc::new(Flaky {
        inner: MemoryBackend::new(),
        cut: Arc::default(),
        away: AtomicBool::new(false),
    });
    let cluster = Cluster::with(
        Arc::clone(&flaky) as Arc<dyn Backend>,
        WatchCacheLimits::default(),
    )
    .await;
    cluster.pod("ns/a", "web", "").await;
    (flaky, cluster)
}

#[tokio::test(start_paused = true)]
async fn broken_feed_goes_on_where_it_was() {
    let (flaky, cluster) = flaky_cluster().await;
    let mut watcher = cluster.pods.watch(everything(), Revision(1)).unwrap();
    break_feed(&flaky, false).await;
    assert_eq!(
        take(&mut watcher, 3).await,
        ["ADDED b@2", "ADDED c@2", "DELETED a@3"]
    );
    cluster.cache.catch_up().await.unwrap();
    cluster.pod("ns/d", "web", "").await;
    assert_eq!(take(&mut watcher, 1).await, ["ADDED d@4"]);
}

#[tokio::test(start_paused = true)]
async fn feed_that_lost_history_loads_again_and_cuts_watchers_off() {
    let (flaky, cluster) = flaky_cluster().await;
    let mut watcher = cluster.pods.watch(everything(), Revision(1)).unwrap();
    let mut quiet = cluster.pods.watch(namespace("other"), Revision(1)).unwrap();
    break_feed(&flaky, true).await;
    cluster.cache.catch_up().await.unwrap();
    assert_eq!(
        names(
            &cluster
                .pods
                .list(&ListRequest::all(everything()))
                .unwrap()
                .entries
        ),
        ["b", "c"]
    );
    for watcher in [&mut watcher, &mut quiet] {
        assert!(matches!(
            watcher.next().await,
            Err(WatchCacheError::TooSlow)
        ));
    }
    assert!(matches!(
        cluster.pods.watch(everything(), Revision(1)),
        Err(WatchCacheError::TooOld { .. })
    ));
    let mut again = cluster.pods.watch(everything(), Revision(3)).unwrap();
    cluster.pod("ns/d", "web", "").await;
    assert_eq!(take(&mut again, 1).await, ["ADDED d@4"]);
}
