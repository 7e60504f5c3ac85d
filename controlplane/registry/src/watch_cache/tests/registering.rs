//! Resources that come and go while others are read.

use coracle_store::testing::FailingBackend;

use super::*;

const THINGS: &str = "/registry/example.com/things/";

fn things() -> ResourceConfig {
    ResourceConfig {
        prefix: THINGS.to_owned(),
        namespaced: true,
        index: None,
        is_transient: false,
        convert: None,
    }
}

fn thing(name: &str) -> Op {
    Op::Put {
        key: format!("{THINGS}ns/{name}").into(),
        value: r#"{"metadata":{}}"#.into(),
    }
}

#[tokio::test]
async fn a_resource_can_be_added_later() {
    let cluster = Cluster::start().await;
    cluster.write(vec![thing("a")]).await;
    let things = cluster.cache.register(things()).await.unwrap();
    assert_eq!(things.len(), 1);
    cluster.write(vec![thing("b")]).await;
    assert_eq!(things.len(), 2);
    assert!(Arc::ptr_eq(
        &things,
        &cluster.cache.resource(THINGS).unwrap()
    ));
}

#[tokio::test]
async fn nobody_waits_while_a_resource_is_loaded() {
    let store = Arc::new(FailingBackend::holding(THINGS));
    let cluster = Cluster::with(
        Arc::clone(&store) as Arc<dyn Backend>,
        WatchCacheLimits::default(),
    )
    .await;
    cluster.write(vec![thing("a"), thing("gone")]).await;
    let register = async {
        let things = cluster.cache.register(things()).await.unwrap();
        (
            names(
                &things
                    .list(&ListRequest::all(everything()))
                    .unwrap()
                    .entries,
            ),
            things,
        )
    };
    let meanwhile = async {
        store.held().await;
        // Reads of one's own writes, the others' events, and what happens to the resource itself.
        let mut watcher = cluster
            .pods
            .watch(everything(), cluster.cache.revision())
            .unwrap();
        let revision = cluster.pod("ns/p", "web", "").await;
        assert_eq!(take(&mut watcher, 1).await, [format!("ADDED p@{revision}")]);
        cluster.write(vec![thing("b")]).await;
        cluster
            .write(vec![Op::Delete {
                key: format!("{THINGS}ns/gone").into(),
            }])
            .await;
        cluster.cache.catch_up().await.unwrap();
        assert!(cluster.cache.resource(THINGS).is_none());
        store.release(1);
    };
    let ((found, things), ()) = tokio::join!(register, meanwhile);
    assert_eq!(found, ["a", "b"]);
    // Watches can begin with what happened while it was loaded.
    let mut watcher = things.watch(everything(), Revision(1)).unwrap();
    let deliveries = watcher.next().await.unwrap();
    let seen =
        |delivery: &Delivery| format!("{} {}", delivery.kind.as_str(), delivery.entry.name());
    assert_eq!(
        deliveries.iter().map(seen).collect::<Vec<_>>(),
        ["ADDED b", "DELETED gone"]
    );
}

#[tokio::test]
async fn what_takes_the_place_of_another_ends_its_watches() {
    let cluster = Cluster::start().await;
    let before = cluster.cache.register(things()).await.unwrap();
    let mut watcher = before
        .watch(everything(), cluster.cache.revision())
        .unwrap();
    let revision = cluster.write(vec![thing("a")]).await;
    let after = cluster.cache.register(things()).await.unwrap();
    cluster.write(vec![thing("b")]).await;
    assert_eq!(
        (before.len(), after.len()),
        (1, 2),
        "the one before is fed no more"
    );
    assert_eq!(watcher.next().await.unwrap().len(), 1);
    assert!(matches!(watcher.next().await, Err(WatchCacheError::Closed)));
    let mut again = after.watch(everything(), revision).unwrap();
    assert_eq!(again.next().await.unwrap()[0].entry.name(), "b");
}

#[tokio::test]
async fn what_is_taken_out_ends_its_watches_and_is_found_no_more() {
    let cluster = Cluster::start().await;
    let things = cluster.cache.register(things()).await.unwrap();
    let mut watcher = things
        .watch(everything(), cluster.cache.revision())
        .unwrap();
    cluster.write(vec![thing("a")]).await;
    cluster.cache.unregister(THINGS).await;
    assert_eq!(watcher.next().await.unwrap().len(), 1);
    assert!(matches!(watcher.next().await, Err(WatchCacheError::Closed)));
    assert!(cluster.cache.resource(THINGS).is_none());
    assert!(cluster.cache.get(&format!("{THINGS}ns/a")).is_none());
    // Events that are nobody's disturb no others.
    cluster
        .write(vec![thing("b"), put_pod("ns/p", "web", "")])
        .await;
    assert_eq!(cluster.pods.len(), 1);
}

#[tokio::test]
async fn keys_of_one_resource_do_not_lie_among_those_of_another() {
    let cluster = Cluster::start().await;
    for prefix in ["/registry/pods/default/", "/registry/"] {
        let config = ResourceConfig {
            prefix: prefix.to_owned(),
            namespaced: false,
            index: None,
            is_transient: false,
            convert: None,
        };
        let refused = cluster.cache.register(config).await;
        assert!(
            matches!(refused, Err(WatchCacheError::PrefixTaken { .. })),
            "{prefix}: {refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_the_store_has_forgotten_is_loaded_anew() {
    let store = Arc::new(FailingBackend::holding(THINGS));
    let cluster = Cluster::with(
        Arc::clone(&store) as Arc<dyn Backend>,
        WatchCacheLimits::default(),
    )
    .await;
    cluster.write(vec![thing("a")]).await;
    let meanwhile = async {
        store.held().await;
        let revision = cluster.write(vec![thing("b")]).await;
        store.compact(revision).await.unwrap();
        store.release(2);
    };
    let (things, ()) = tokio::join!(cluster.cache.register(things()), meanwhile);
    assert_eq!(things.unwrap().len(), 2);
}

#[tokio::test]
async fn who_gives_up_leaves_nothing_behind() {
    let store = Arc::new(FailingBackend::holding(THINGS));
    let cluster = Cluster::with(
        Arc::clone(&store) as Arc<dyn Backend>,
        WatchCacheLimits::default(),
    )
    .await;
    tokio::select! {
        _ = cluster.cache.register(things()) => panic!("nothing was loaded"),
        () = store.held() => {}
    }
    cluster.write(vec![thing("a")]).await;
    store.release(1);
    assert_eq!(cluster.cache.register(things()).await.unwrap().len(), 1);
}
