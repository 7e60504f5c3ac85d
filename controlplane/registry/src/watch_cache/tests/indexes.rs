//! LIST by a field that lists go by: the same objects as a look at all of them finds.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::*;

fn on_node(node: &str) -> Selection {
    Selection {
        fields: vec![("spec.nodeName".into(), node.to_owned())],
        ..by_filter(node)
    }
}

fn by_filter(node: &str) -> Selection {
    let wanted = node.to_owned();
    everything().filter(Arc::new(move |entry| {
        entry.field("spec.nodeName") == Some(&*wanted)
    }))
}

fn list(cluster: &Cluster, at: ListAt, selection: Selection) -> Vec<(String, Revision)> {
    let request = ListRequest {
        at,
        ..ListRequest::all(selection)
    };
    let list = cluster.pods.list(&request).unwrap();
    let entries = list.entries.iter();
    entries
        .map(|entry| (entry.key().to_owned(), entry.revision()))
        .collect()
}

#[tokio::test]
async fn only_objects_with_the_value_are_looked_at() {
    let cluster = Cluster::start().await;
    for n in 0..30 {
        let node = ["n1", "n2", ""][n % 3];
        cluster.pod(&format!("ns/p{n:02}"), "web", node).await;
    }
    let looked_at = |selection: &Selection| {
        let snapshot = cluster.pods.snapshot();
        snapshot.objects.candidates(selection, "").count()
    };
    assert_eq!(looked_at(&on_node("n1")), 10);
    assert_eq!(looked_at(&on_node("")), 10);
    assert_eq!(looked_at(&on_node("n3")), 0);
    assert_eq!(looked_at(&by_filter("n1")), 30);
    cluster.pod("ns/p00", "web", "n3").await;
    cluster.delete("ns/p03").await;
    assert_eq!(looked_at(&on_node("n1")), 8);
    assert_eq!(looked_at(&on_node("n3")), 1);
    assert_eq!(looked_at(&on_node("n1").requires_field("unknown", "x")), 8);
    // What a watch begins with, too.
    let (mut beginning, _) = cluster.pods.begin_and_watch(on_node("n3"));
    assert_eq!(beginning.next_entry().unwrap().unwrap().name(), "p00");
    assert!(beginning.next_entry().unwrap().is_none());
}

#[tokio::test]
async fn every_state_is_listed_as_by_a_filter() {
    let cluster = Cluster::start().await;
    let mut random = StdRng::seed_from_u64(11);
    let nodes = ["", "n1", "n2"];
    for _ in 0..200 {
        let key = format!(
            "{}/p{}",
            ["a", "b"][random.random_range(0..2)],
            random.random_range(0..6)
        );
        let node = nodes[random.random_range(0..nodes.len())];
        if random.random_range(0..4) == 0 {
            cluster.delete(&key).await;
        } else {
            cluster.pod(&key, "web", node).await;
        }
        let at = ListAt::Exact(Revision(
            random.random_range(0..=cluster.cache.revision().0),
        ));
        for node in nodes {
            for at in [ListAt::Latest, at] {
                let found = list(&cluster, at, on_node(node));
                assert_eq!(found, list(&cluster, at, by_filter(node)), "{at:?}");
                let in_b = |selection| Selection {
                    scope: KeyScope::Namespace("b".to_owned()),
                    ..selection
                };
                assert_eq!(
                    list(&cluster, at, in_b(on_node(node))),
                    list(&cluster, at, in_b(by_filter(node))),
                    "{at:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn chunks_by_a_field_are_one_state() {
    let cluster = Cluster::start().await;
    for n in 0..10 {
        cluster
            .pod(&format!("ns/p{n}"), "web", ["n1", "n2"][n % 2])
            .await;
    }
    let mut request = ListRequest {
        limit: Some(2),
        ..ListRequest::all(on_node("n1"))
    };
    let mut seen = Vec::new();
    loop {
        let chunk = cluster.pods.list(&request).unwrap();
        assert_eq!(chunk.revision, Revision(10));
        seen.push(names(&chunk.entries));
        let Some(next) = chunk.next else { break };
        assert_eq!(next.remaining, None, "as of every filtered list");
        request.at = ListAt::Exact(next.revision);
        request.after = Some(next.after);
        // Both change: what comes to the node, and what goes from it.
        cluster.pod("ns/p9", "web", "n1").await;
        cluster.pod("ns/p4", "web", "n2").await;
    }
    assert_eq!(seen, [vec!["p0", "p2"], vec!["p4", "p6"], vec!["p8"]]);
}

#[tokio::test]
async fn what_is_loaded_anew_is_indexed_anew() {
    let cluster = Cluster::start().await;
    cluster.pod("ns/a", "web", "n1").await;
    let stored = cluster.store.range(coracle_store::RangeRequest {
        prefix: PODS.to_owned(),
        ..Default::default()
    });
    let objects = stored.await.unwrap().items;
    cluster.pod("ns/b", "web", "n1").await;
    let mut watcher = cluster.pods.watch(on_node("n1"), Revision(0)).unwrap();
    cluster.pods.reset(&objects, Revision(2)).wake();
    let left = list(&cluster, ListAt::Latest, on_node("n1"));
    assert_eq!(left, [(pod_key("ns/a"), Revision(1))]);
    assert!(matches!(
        watcher.next().await,
        Err(WatchCacheError::TooSlow)
    ));
    let mut watcher = cluster.pods.watch(on_node("n1"), Revision(2)).unwrap();
    cluster.pod("ns/c", "web", "n1").await;
    assert_eq!(take(&mut watcher, 1).await, ["ADDED c@3"]);
}
