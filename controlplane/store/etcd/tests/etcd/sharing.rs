//! An etcd that others write to as well.

use futures::StreamExt as _;

use super::*;

/// Watches until everything up to `revision` was shown; how many events there were.
async fn follow(stream: &mut coracle_store::WatchStream, revision: Revision) -> usize {
    let mut events = 0;
    loop {
        let next = tokio::time::timeout(SOON, stream.next()).await;
        let batch = next.expect("it comes on").expect("it goes on").unwrap();
        events += batch.events.len();
        if batch.revision >= revision {
            return events;
        }
    }
}

#[tokio::test]
async fn a_watch_comes_to_a_revision_of_somebody_elses() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    let start = store.current_revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    let mut outside = client(&etcd).await;
    for round in 0..3 {
        put(&store, "a", &round.to_string()).await.unwrap();
        outside.put("/other", "x", None).await.unwrap();
        let current = store.current_revision().await.unwrap();
        let events = tokio::select! {
            events = follow(&mut watch, current) => events,
            () = store.hasten(current) => panic!("it gave up"),
        };
        assert_eq!(events, 1);
    }
}

/// How far a watch is brought by asking, and by writing: by the members' version, or against it.
async fn is_written_for_a_watch(etcd: &Etcd, store: EtcdBackend) -> bool {
    let start = store.current_revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    let mut outside = client(etcd).await;
    outside.put("/other", "x", None).await.unwrap();
    let current = store.current_revision().await.unwrap();
    let events = tokio::select! {
        events = follow(&mut watch, current) => events,
        () = store.hasten(current) => panic!("it gave up"),
    };
    assert_eq!(events, 0);
    store.current_revision().await.unwrap() > current
}

#[tokio::test]
async fn a_member_that_can_be_believed_is_asked_and_nothing_is_written() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    let status = coracle_store_etcd::status::status(&etcd.config()).await;
    let facts = status.unwrap().members.remove(0).said.unwrap();
    eprintln!("{}: {}", facts.version, facts.tells_progress);
    let is_written = is_written_for_a_watch(&etcd, store).await;
    assert_eq!(is_written, !facts.tells_progress, "by its version");
    // With one watch, which is in step, an old one tells the truth, too.
    let believing = EtcdBackend::open_believing(&etcd.config(), OWNER).await;
    assert!(!is_written_for_a_watch(&etcd, believing.unwrap()).await);
}

#[tokio::test]
async fn a_new_watch_shows_the_past_and_goes_on() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    let start = store.current_revision().await.unwrap();
    for n in 0..3000 {
        put(&store, &(n % 10).to_string(), &n.to_string())
            .await
            .unwrap();
    }
    let current = store.current_revision().await.unwrap();
    let mut watch = store.watch("/registry/", start).await.unwrap();
    // More than the queue holds: history waits for its reader.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(follow(&mut watch, current).await, 3000);
    let next = put(&store, "a", "now").await.unwrap();
    assert_eq!(follow(&mut watch, next).await, 1);
}

#[tokio::test]
async fn who_asks_at_one_time_asks_once() {
    let Some(etcd) = Etcd::start(1) else { return };
    let store = open(&etcd).await;
    let written = put(&store, "a", "1").await.unwrap();
    let asked = (0..500).map(|_| store.current_revision());
    for revision in futures::future::join_all(asked).await {
        assert!(revision.unwrap() >= written);
    }
}
