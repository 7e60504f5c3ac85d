//! A store that others write to as well: it is asked how far it is, and events come after the
//! writes they are of.

use coracle_store::testing::FailingBackend;

use super::*;

async fn cluster() -> Cluster {
    let store = Arc::new(FailingBackend::remote());
    Cluster::with(store, WatchCacheLimits::default()).await
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_is_read() {
    let cluster = cluster().await;
    // Past the cache: nobody waits for it.
    write(&*cluster.store, vec![put_pod("ns/a", "web", "")]).await;
    assert!(cluster.pods.get(&pod_key("ns/a")).is_none());
    let started = Instant::now();
    cluster.cache.catch_up().await.unwrap();
    assert!(cluster.pods.get(&pod_key("ns/a")).is_some());
    assert!(started.elapsed() < WAIT);
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_read_without_a_wait() {
    let cluster = cluster().await;
    let started = Instant::now();
    for n in 0..5 {
        cluster.pod(&format!("ns/{n}"), "web", "").await;
        assert!(cluster.pods.get(&pod_key(&format!("ns/{n}"))).is_some());
    }
    assert!(started.elapsed() < WAIT);
}

#[tokio::test(start_paused = true)]
async fn the_cache_counts_as_current_for_a_second() {
    let cluster = cluster().await;
    assert!(cluster.cache.is_current());
    tokio::time::advance(super::super::current::FRESH).await;
    assert!(!cluster.cache.is_current());
    write(&*cluster.store, vec![put_pod("ns/a", "web", "")]).await;
    cluster.cache.catch_up().await.unwrap();
    assert!(cluster.cache.is_current());
    assert_eq!(cluster.cache.revision(), Revision(1));
}
