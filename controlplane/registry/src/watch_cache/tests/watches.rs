//! WATCH.

use std::collections::BTreeMap;

use super::*;

#[tokio::test]
async fn watch_shows_what_happens() {
    let cluster = Cluster::start().await;
    let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
    cluster.pod("ns/a", "web", "").await;
    cluster.pod("ns/a", "web", "n1").await;
    cluster.pod("ns/b", "web", "").await;
    cluster.delete("ns/a").await;
    assert_eq!(
        take(&mut watcher, 4).await,
        ["ADDED a@1", "MODIFIED a@2", "ADDED b@3", "DELETED a@4"]
    );
}

#[tokio::test]
async fn recreated_object_is_added_again() {
    let cluster = Cluster::start().await;
    cluster.pod("ns/a", "web", "").await;
    cluster.delete("ns/a").await;
    cluster.pod("ns/a", "web", "").await;
    let mut watcher = cluster.pods.watch(everything(), Revision(1)).unwrap();
    assert_eq!(take(&mut watcher, 2).await, ["DELETED a@2", "ADDED a@3"]);
}

#[tokio::test]
async fn watch_resumes_from_every_revision() {
    let cluster = Cluster::start().await;
    for n in 0..20 {
        cluster.pod(&format!("ns/p{n}"), "web", "").await;
    }
    for from in 0..20 {
        let mut watcher = cluster.pods.watch(everything(), Revision(from)).unwrap();
        let expected: Vec<String> = (from..20)
            .map(|n| format!("ADDED p{n}@{}", n + 1))
            .collect();
        assert_eq!(take(&mut watcher, expected.len()).await, expected);
    }
}

#[tokio::test]
async fn selection_decides_what_an_event_is() {
    let cluster = Cluster::start().await;
    let mut web = cluster.pods.watch(with_app("web"), Revision(0)).unwrap();
    for app in ["db", "web", "web", "db", "db", "web"] {
        cluster.pod("ns/a", app, "").await;
    }
    cluster.delete("ns/a").await;
    cluster.pod("ns/b", "db", "").await;
    cluster.delete("ns/b").await;
    let deliveries = web.next().await.unwrap();
    let seen: Vec<String> = deliveries.iter().map(shown).collect();
    assert_eq!(
        seen,
        [
            "ADDED a@2",
            "MODIFIED a@3",
            "DELETED a@4",
            "ADDED a@6",
            "DELETED a@7"
        ]
    );
    // What leaves is shown as it was.
    assert_eq!(deliveries[2].entry.label("app"), Some("web"));
}

#[tokio::test]
async fn watch_sees_its_scope_only() {
    let cluster = Cluster::start().await;
    let mut in_a = cluster.pods.watch(namespace("a"), Revision(0)).unwrap();
    let mut one = cluster
        .pods
        .watch(Selection::of(KeyScope::Key(pod_key("b/x"))), Revision(0))
        .unwrap();
    let on_n1: Filter = Arc::new(|entry| entry.field("spec.nodeName") == Some("n1"));
    let mut node = cluster
        .pods
        .watch(
            everything()
                .filter(on_n1)
                .requires_field("spec.nodeName", "n1"),
            Revision(0),
        )
        .unwrap();
    for (key, on) in [
        ("a/x", ""),
        ("aa/x", "n1"),
        ("b/x", "n2"),
        ("a/x", "n1"),
        ("b/xx", ""),
        ("aa/x", "n2"),
        ("b/x", "n3"),
    ] {
        cluster.pod(key, "web", on).await;
    }
    assert_eq!(take(&mut in_a, 2).await, ["ADDED x@1", "MODIFIED x@4"]);
    assert_eq!(take(&mut one, 2).await, ["ADDED x@3", "MODIFIED x@7"]);
    assert_eq!(
        take(&mut node, 3).await,
        ["ADDED x@2", "ADDED x@4", "DELETED x@6"]
    );
    for watcher in [&mut in_a, &mut one, &mut node] {
        assert!(watcher.ready().unwrap().is_empty());
    }
}

#[tokio::test]
async fn revision_before_the_ring_is_too_old() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    for n in 0..10 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    let error = cluster.pods.watch(everything(), Revision(5)).unwrap_err();
    assert!(
        matches!(
            error,
            WatchCacheError::TooOld {
                asked: Revision(5),
                oldest: Revision(6)
            }
        ),
        "{error:?}"
    );
    let mut watcher = cluster.pods.watch(everything(), Revision(6)).unwrap();
    assert_eq!(take(&mut watcher, 4).await.len(), 4);
    let error = cluster.pods.watch(everything(), Revision(11)).unwrap_err();
    assert!(
        matches!(error, WatchCacheError::TooLarge { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn slow_watcher_is_cut_off() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    let mut slow = cluster.pods.watch(everything(), Revision(0)).unwrap();
    let mut quick = cluster.pods.watch(everything(), Revision(0)).unwrap();
    for n in 0..5 {
        cluster.pod("ns/a", &n.to_string(), "").await;
        assert_eq!(take(&mut quick, 1).await.len(), 1);
    }
    assert!(matches!(slow.next().await, Err(WatchCacheError::TooSlow)));
    assert_eq!(slow.progress(), None);
}

#[tokio::test]
async fn watcher_of_a_quiet_scope_outlives_the_ring() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    let mut quiet = cluster.pods.watch(namespace("quiet"), Revision(0)).unwrap();
    for n in 0..20 {
        cluster.pod("busy/a", &n.to_string(), "").await;
    }
    assert_eq!(quiet.progress(), Some(Revision(20)));
    for n in 0..20 {
        cluster.pod("busy/a", &n.to_string(), "").await;
    }
    cluster.pod("quiet/a", "web", "").await;
    assert_eq!(take(&mut quiet, 1).await, ["ADDED a@41"]);
    // An event of its own that it did not take in time is lost.
    cluster.pod("quiet/a", "db", "").await;
    for n in 0..20 {
        cluster.pod("busy/a", &n.to_string(), "").await;
    }
    assert!(matches!(quiet.next().await, Err(WatchCacheError::TooSlow)));
}

#[tokio::test]
async fn bookmark_is_safe_only_when_nothing_waits() {
    let cluster = Cluster::start().await;
    let mut watcher = cluster.pods.watch(namespace("a"), Revision(0)).unwrap();
    assert_eq!(watcher.progress(), Some(Revision(0)));
    cluster.pod("b/x", "web", "").await;
    assert_eq!(watcher.progress(), Some(Revision(1)));
    cluster.pod("a/x", "web", "").await;
    assert_eq!(watcher.progress(), None);
    take(&mut watcher, 1).await;
    assert_eq!(watcher.progress(), Some(Revision(2)));
}

#[tokio::test]
async fn bookmarks_of_a_narrowed_watch_go_on_while_only_others_change() {
    let cluster = Cluster::start().await;
    let by_field = |node: &'static str| {
        let is_there = move |entry: &Entry| entry.field("spec.nodeName") == Some(node);
        everything()
            .filter(Arc::new(is_there))
            .requires_field("spec.nodeName", node)
    };
    let mut kubelet = cluster.pods.watch(by_field("n1"), Revision(0)).unwrap();
    let mut labelled = cluster.pods.watch(with_app("db"), Revision(0)).unwrap();
    for n in 1..=20 {
        cluster.pod(&format!("ns/p{n}"), "web", "n2").await;
        assert_eq!(
            (kubelet.progress(), labelled.progress()),
            (Some(Revision(n)), Some(Revision(n)))
        );
    }
    cluster.pod("ns/own", "db", "n1").await;
    assert_eq!(
        (kubelet.progress(), labelled.progress()),
        (None, None),
        "its own waits"
    );
    for watcher in [&mut kubelet, &mut labelled] {
        assert_eq!(take(watcher, 1).await, ["ADDED own@21"]);
        assert_eq!(watcher.progress(), Some(Revision(21)));
    }
    // It leaves the selection: an event of its own.
    cluster.pod("ns/own", "web", "n2").await;
    assert_eq!(kubelet.progress(), None);
}

#[tokio::test]
async fn event_shares_its_bytes_with_all_watchers_and_the_list() {
    let cluster = Cluster::start().await;
    let mut first = cluster.pods.watch(everything(), Revision(0)).unwrap();
    let mut second = cluster.pods.watch(namespace("ns"), Revision(0)).unwrap();
    cluster.pod("ns/a", "web", "").await;
    let lines = [&mut first, &mut second].map(|watcher| watcher.ready().unwrap()[0].line());
    let listed = cluster.pods.get(&pod_key("ns/a")).unwrap();
    assert_eq!(lines[0].as_ptr(), lines[1].as_ptr());
    assert!(
        lines[0]
            .as_ptr_range()
            .contains(&listed.unmanaged().as_ptr())
    );
}

#[tokio::test]
async fn groups_go_with_their_watchers() {
    let cluster = Cluster::start().await;
    let watchers: Vec<Watcher> = ["a", "a", "b"]
        .map(|name| cluster.pods.watch(namespace(name), Revision(0)).unwrap())
        .into();
    assert_eq!(cluster.pods.narrow_groups(), 2);
    drop(watchers);
    assert_eq!(cluster.pods.narrow_groups(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_and_watch_lose_nothing_in_between() {
    let cluster = Arc::new(Cluster::start().await);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let cluster = Arc::clone(&cluster);
            coracle_telemetry::spawn("task of a test", async move {
                for n in 0..200 {
                    let key = format!("ns/{writer}-{}", n % 9);
                    if n % 5 == 4 {
                        cluster.delete(&key).await
                    } else {
                        cluster.pod(&key, &n.to_string(), "").await
                    };
                }
            })
        })
        .collect();
    let mut followers = Vec::new();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let (snapshot, watcher) = cluster.pods.snapshot_and_watch(everything());
        if followers.len() < 200 {
            followers.push((snapshot, watcher));
        }
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let state = |entries: &mut dyn Iterator<Item = Arc<Entry>>| -> BTreeMap<String, Revision> {
        entries
            .map(|entry| (entry.key().to_owned(), entry.revision()))
            .collect()
    };
    let last = state(&mut cluster.pods.snapshot().from_key("").cloned());
    for (snapshot, mut watcher) in followers {
        let mut followed = state(&mut snapshot.from_key("").cloned());
        let mut revision = snapshot.revision();
        loop {
            let deliveries = watcher.ready().unwrap();
            if deliveries.is_empty() {
                break;
            }
            for delivery in deliveries {
                assert!(
                    delivery.revision() > revision,
                    "{} after {revision}",
                    delivery.revision()
                );
                revision = delivery.revision();
                let key = delivery.entry.key().to_owned();
                match delivery.kind {
                    EventKind::Added => assert_eq!(followed.insert(key, revision), None),
                    EventKind::Modified => assert!(followed.insert(key, revision).is_some()),
                    EventKind::Deleted => assert!(followed.remove(&key).is_some()),
                }
            }
        }
        assert_eq!(followed, last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_watchers_see_one_order() {
    let cluster = Cluster::start().await;
    let watching: Vec<_> = (0..1000)
        .map(|_| {
            let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
            coracle_telemetry::spawn(
                "task of a test",
                async move { take(&mut watcher, 20).await },
            )
        })
        .collect();
    for n in 0..20 {
        cluster.pod(&format!("ns/{n}"), "web", "").await;
    }
    let expected: Vec<String> = (0..20).map(|n| format!("ADDED {n}@{}", n + 1)).collect();
    for seen in watching {
        assert_eq!(seen.await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_crowd_is_woken_less_often_and_misses_nothing() {
    let cluster = Cluster::start().await;
    let crowd: Vec<_> = (0..150)
        .map(|_| {
            let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
            coracle_telemetry::spawn(
                "task of a test",
                async move { take(&mut watcher, 50).await },
            )
        })
        .collect();
    for n in 0..50 {
        cluster.pod("ns/a", &n.to_string(), "").await;
    }
    for watcher in crowd {
        assert_eq!(watcher.await.unwrap().last().unwrap(), "MODIFIED a@50");
    }
}

#[tokio::test]
async fn lines_are_those_of_the_deliveries() {
    let cluster = Cluster::start().await;
    for selection in [everything(), with_app("web"), namespace("other")] {
        let mut lines = cluster.pods.watch(selection.clone(), Revision(0)).unwrap();
        let mut deliveries = cluster.pods.watch(selection, Revision(0)).unwrap();
        for app in ["web", "db", "web"] {
            cluster.pod("ns/a", app, "").await;
            cluster.pod("other/b", app, "").await;
        }
        cluster.delete("ns/a").await;
        cluster.delete("other/b").await;
        let mut expect = Vec::new();
        loop {
            let ready = deliveries.ready().unwrap();
            if ready.is_empty() {
                break;
            }
            expect.extend(ready.iter().flat_map(|one| one.line().to_vec()));
        }
        assert!(lines.next_lines().await.unwrap() == expect);
    }
}
