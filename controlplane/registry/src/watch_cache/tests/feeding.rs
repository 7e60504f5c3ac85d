//! How the cache follows the store: at the start, when the watch breaks off, at the end.

use coracle_store::testing::FailingBackend;

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

/// Breaks the feed of `cluster`, writes two pods and deletes one meanwhile, and lets it come back.
async fn break_feed(flaky: &FailingBackend, compact: bool) {
    flaky.set_away(true);
    flaky.cut_watch();
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
        let current = flaky.current_revision().await.unwrap();
        flaky.compact(current).await.unwrap();
    }
    flaky.set_away(false);
}

async fn flaky_cluster() -> (Arc<FailingBackend>, Cluster) {
    let flaky = Arc::new(FailingBackend::default());
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
