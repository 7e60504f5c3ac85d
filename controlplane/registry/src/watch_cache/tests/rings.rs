//! How much of the past stays.

use std::sync::atomic::Ordering;

use super::*;

fn limits() -> WatchCacheLimits {
    WatchCacheLimits {
        ring_events: 100,
        ring_events_at_any_age: 4,
        ..WatchCacheLimits::default()
    }
}

async fn cluster(limits: WatchCacheLimits) -> Cluster {
    Cluster::with(Arc::new(MemoryBackend::new()), limits).await
}

/// The first revision that a watch can go on from.
fn oldest(resource: &Arc<ResourceCache>) -> Revision {
    match resource.watch(everything(), Revision(0)) {
        Ok(_) => Revision(0),
        Err(WatchCacheError::TooOld { oldest, .. }) => oldest,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_young_stays_and_little_of_what_is_old() {
    let cluster = cluster(limits()).await;
    for n in 0..20 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    assert_eq!(oldest(&cluster.pods), Revision(0));
    tokio::time::advance(Duration::from_secs(60)).await;
    for n in 0..10 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    assert_eq!(oldest(&cluster.pods), Revision(0));
    // The first twenty have become too old, the ten have not.
    tokio::time::advance(Duration::from_secs(16)).await;
    cluster.pod("ns/a", "web", "").await;
    assert_eq!(oldest(&cluster.pods), Revision(20));
    tokio::time::advance(Duration::from_secs(100)).await;
    cluster.pod("ns/a", "web", "").await;
    assert_eq!(oldest(&cluster.pods), Revision(28));
    assert_eq!(cluster.pods.queued(), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn what_a_burst_left_goes_though_nothing_follows() {
    let cluster = cluster(limits()).await;
    for n in 0..50 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    assert_eq!(cluster.pods.queued(), (0, 50));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.pods.queued(), (0, 4));
}

#[tokio::test]
async fn a_ring_has_a_bound_whatever_its_age() {
    let cluster = cluster(limits()).await;
    for n in 0..150 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    assert_eq!(oldest(&cluster.pods), Revision(50));
    let limits = WatchCacheLimits {
        ring_bytes: 100_000,
        ..limits()
    };
    let bounded = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    for _ in 0..100 {
        bounded.pod("ns/a", &"x".repeat(2000), "").await;
    }
    // It keeps some though they are larger.
    assert_eq!(bounded.pods.queued(), (0, 64));
}

#[tokio::test]
async fn all_rings_together_have_a_bound() {
    let limits = WatchCacheLimits {
        all_rings_bytes: 30_000,
        ..limits()
    };
    let cluster = cluster(limits).await;
    let bytes = || cluster.cache.shared.ring_bytes.load(Ordering::Relaxed);
    for n in 0..40 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    let (_, kept) = cluster.pods.queued();
    assert!(kept > 20 && bytes() <= 30_000, "{kept}, {}", bytes());
    let node = |n: usize| Op::Put {
        key: format!("{NODES}n").into(),
        value: metadata(&json!({"labels": {"n": n.to_string()}}))
            .to_string()
            .into(),
    };
    let nodes = cluster.cache.resource(NODES).unwrap();
    for n in 0..200 {
        cluster.write(vec![node(n)]).await;
    }
    // What nodes have beyond the little goes first: pods' had been there. Then both share.
    assert!(nodes.queued().1 >= 4);
    cluster.pod("ns/a", "web", "").await;
    assert!(bytes() <= 31_000, "{}", bytes());
    cluster.cache.unregister(NODES).await;
    let with_nodes = bytes();
    drop(nodes);
    assert!(bytes() < with_nodes);
}

#[tokio::test(start_paused = true)]
async fn what_is_transient_stays_no_longer_for_being_young() {
    let config = ResourceConfig {
        prefix: "/registry/coordination.k8s.io/leases/".to_owned(),
        namespaced: true,
        index: None,
        is_transient: true,
        convert: None,
    };
    let cluster = cluster(limits()).await;
    let leases = cluster.cache.register(config).await.unwrap();
    let key = |name: &str| format!("/registry/coordination.k8s.io/leases/ns/{name}");
    let renew = |name: &str, n: usize| Op::Put {
        key: key(name).into(),
        value: metadata(&json!({"labels": {"n": n.to_string()}}))
            .to_string()
            .into(),
    };
    let of = |name: &str| Selection::of(KeyScope::Key(key(name)));
    let now = cluster.cache.revision();
    let mut one = leases.watch(of("n1"), now).unwrap();
    for n in 0..20 {
        cluster.write(vec![renew("n2", n), renew("n3", n)]).await;
    }
    assert_eq!(leases.queued(), (0, 4));
    assert!(!one.has_news(), "others' renewals wake nobody");
    assert_eq!(one.progress(), Some(cluster.cache.revision()));
    cluster.write(vec![renew("n1", 0)]).await;
    assert!(one.has_news());
    assert_eq!(one.ready().unwrap().len(), 1);
}

#[tokio::test]
async fn watches_survive_a_restart_as_far_as_the_store_goes_back() {
    let store: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
    for n in 0..3000 {
        write(&*store, vec![put_pod("ns/a", &n.to_string(), "")]).await;
    }
    let cluster = Cluster::with(Arc::clone(&store), WatchCacheLimits::default()).await;
    assert_eq!(cluster.cache.revision(), Revision(3000));
    let mut watcher = cluster.pods.watch(everything(), Revision(1)).unwrap();
    assert_eq!(take(&mut watcher, 2999).await[0], "MODIFIED a@2");
    cluster.shutdown.cancel();
    store.compact(Revision(2000)).await.unwrap();
    let cluster = Cluster::with(Arc::clone(&store), WatchCacheLimits::default()).await;
    assert_eq!(oldest(&cluster.pods), Revision(2000));
    let limits = WatchCacheLimits {
        warm_revisions: 100,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(store, limits).await;
    assert_eq!(oldest(&cluster.pods), Revision(2900));
}
