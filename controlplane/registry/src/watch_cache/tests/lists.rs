//! GET and LIST.

use super::*;

#[tokio::test]
async fn own_write_is_read() {
    let cluster = Cluster::start().await;
    for n in 1..50 {
        let revision = write(&*cluster.store, vec![put_pod("ns/a", &n.to_string(), "")]).await;
        cluster.cache.wait_for(revision).await.unwrap();
        let entry = cluster.cache.get("/registry/pods/ns/a").unwrap();
        assert_eq!(
            (entry.revision(), entry.label("app")),
            (revision, Some(&*n.to_string()))
        );
        assert_eq!(
            object(&entry)["metadata"]["resourceVersion"],
            revision.to_string()
        );
    }
    cluster.delete("ns/a").await;
    assert!(cluster.pods.get("/registry/pods/ns/a").is_none());
}

#[tokio::test]
async fn list_has_the_selection_in_key_order() {
    let cluster = Cluster::start().await;
    for (key, app, node) in [
        ("b/z", "web", "n1"),
        ("a/y", "db", "n1"),
        ("b/x", "db", "n2"),
        ("bb/w", "web", "n2"),
    ] {
        cluster.pod(key, app, node).await;
    }
    let node: Filter = Arc::new(|entry| entry.field("spec.nodeName") == Some("n2"));
    for (selection, expected) in [
        (everything(), vec!["y", "x", "z", "w"]),
        (namespace("b"), vec!["x", "z"]),
        (namespace("c"), vec![]),
        (with_app("web"), vec!["z", "w"]),
        (everything().filter(node), vec!["x", "w"]),
        (Selection::of(KeyScope::Key(pod_key("b/x"))), vec!["x"]),
        (Selection::of(KeyScope::Key(pod_key("b/none"))), vec![]),
    ] {
        let list = cluster
            .pods
            .list(&ListRequest::all(selection.clone()))
            .unwrap();
        assert_eq!(names(&list.entries), expected, "{selection:?}");
        assert_eq!((list.revision, list.next), (Revision(4), None));
        let selected: Vec<_> = cluster
            .pods
            .snapshot()
            .select(&selection, PODS)
            .cloned()
            .collect();
        assert_eq!(names(&selected), expected, "{selection:?}");
    }
}

#[tokio::test]
async fn list_revision_counts_writes_to_other_resources() {
    let cluster = Cluster::start().await;
    cluster.pod("ns/a", "web", "").await;
    let other = Op::Put {
        key: "/registry/nodes/n1".into(),
        value: metadata(&json!({})).to_string().into(),
    };
    let revision = cluster.write(vec![other]).await;
    assert_eq!(cluster.pods.snapshot().revision(), revision);
    assert_eq!(cluster.cache.revision(), revision);
}

/// Lists in chunks of `limit` while a pod is written and another deleted after each.
async fn chunks(
    cluster: &Cluster,
    selection: Selection,
    limit: usize,
) -> Vec<(Vec<String>, Option<Option<usize>>)> {
    let mut request = ListRequest {
        limit: Some(limit),
        ..ListRequest::all(selection)
    };
    let mut chunks = Vec::new();
    loop {
        let list = cluster.pods.list(&request).unwrap();
        let next = list.next.clone();
        chunks.push((
            names(&list.entries),
            next.as_ref().map(|next| next.remaining),
        ));
        let Some(next) = next else { return chunks };
        assert_eq!(next.revision, list.revision);
        request.at = ListAt::Exact(next.revision);
        request.after = Some(next.after);
        request.remaining = next.remaining;
        cluster
            .pod(&format!("ns/new-{}", chunks.len()), "web", "")
            .await;
        cluster.delete("ns/p3").await;
    }
}

#[tokio::test]
async fn chunks_are_one_snapshot() {
    let cluster = Cluster::start().await;
    for n in 0..5 {
        cluster.pod(&format!("ns/p{n}"), "web", "").await;
    }
    let expected = |rest: [Option<Option<usize>>; 3]| {
        [vec!["p0", "p1"], vec!["p2", "p3"], vec!["p4"]]
            .into_iter()
            .map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
            .zip(rest)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        chunks(&cluster, everything(), 2).await,
        expected([Some(Some(3)), Some(Some(1)), None])
    );
}

#[tokio::test]
async fn filtered_chunks_do_not_count_the_rest() {
    let cluster = Cluster::start().await;
    for n in 0..4 {
        cluster
            .pod(&format!("ns/p{n}"), ["web", "db"][n % 2], "")
            .await;
    }
    let list = cluster
        .pods
        .list(&ListRequest {
            limit: Some(1),
            ..ListRequest::all(with_app("web"))
        })
        .unwrap();
    assert_eq!(list.next.unwrap().remaining, None);
}

#[tokio::test]
async fn limit_that_fits_exactly_leaves_nothing() {
    let cluster = Cluster::start().await;
    cluster.pod("ns/a", "web", "").await;
    let list = cluster
        .pods
        .list(&ListRequest {
            limit: Some(1),
            ..ListRequest::all(namespace("ns"))
        })
        .unwrap();
    assert_eq!((list.entries.len(), list.next), (1, None));
}

#[tokio::test]
async fn past_states_are_served_while_the_ring_reaches_back() {
    let cluster = Cluster::start().await;
    let mut states = vec![Vec::new()];
    for n in 0..60_usize {
        if n % 4 == 3 {
            cluster.delete(&format!("ns/p{}", (n - 1) % 5)).await
        } else {
            cluster
                .pod(&format!("ns/p{}", n % 5), &n.to_string(), "")
                .await
        };
        let list = cluster.pods.list(&ListRequest::all(everything())).unwrap();
        if list.revision == Revision(states.len() as u64) {
            states.push(
                list.entries
                    .iter()
                    .map(|entry| (entry.name().to_owned(), entry.revision()))
                    .collect(),
            );
        }
    }
    for (revision, expected) in (0..).zip(&states) {
        let request = ListRequest {
            at: ListAt::Exact(Revision(revision)),
            ..ListRequest::all(everything())
        };
        let list = cluster.pods.list(&request).unwrap();
        let found: Vec<_> = list
            .entries
            .iter()
            .map(|entry| (entry.name().to_owned(), entry.revision()))
            .collect();
        assert_eq!((&found, list.revision), (expected, Revision(revision)));
    }
}

#[tokio::test]
async fn forgotten_state_is_too_old() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        pins: 1,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    for n in 0..3 {
        cluster.pod(&format!("ns/p{n}"), "web", "").await;
    }
    let first = cluster
        .pods
        .list(&ListRequest {
            limit: Some(1),
            ..ListRequest::all(everything())
        })
        .unwrap();
    let rest = |at| ListRequest {
        at: ListAt::Exact(at),
        ..ListRequest::all(everything())
    };
    for n in 0..10 {
        cluster.pod("ns/p0", &n.to_string(), "").await;
    }
    // The ring has moved on; the state is kept for its token.
    assert_eq!(
        cluster
            .pods
            .list(&rest(first.revision))
            .unwrap()
            .entries
            .len(),
        3
    );
    cluster
        .pods
        .list(&ListRequest {
            limit: Some(1),
            ..ListRequest::all(everything())
        })
        .unwrap();
    let error = cluster.pods.list(&rest(first.revision)).unwrap_err();
    assert!(
        matches!(
            error,
            WatchCacheError::TooOld {
                asked: Revision(3),
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn forgotten_state_is_read_from_the_store_in_chunks() {
    let limits = WatchCacheLimits {
        ring_events: 2,
        pins: 0,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    for name in ["a/p0", "ns/p0", "ns/p1", "ns/p2", "ns/p3", "nz/p0"] {
        cluster.pod(name, "web", "").await;
    }
    let then = cluster.cache.revision();
    cluster.delete("ns/p1").await;
    for n in 0..10 {
        cluster.pod("ns/p2", &n.to_string(), "").await;
    }
    let mut request = ListRequest {
        at: ListAt::Exact(then),
        limit: Some(2),
        ..ListRequest::all(namespace("ns"))
    };
    let (mut seen, mut left) = (Vec::new(), Vec::new());
    loop {
        let chunk = cluster.cache.list(&cluster.pods, &request).await.unwrap();
        assert_eq!(chunk.revision, then);
        seen.extend(chunk.entries.iter().map(|entry| entry.name().to_owned()));
        let Some(next) = chunk.next else { break };
        left.push(next.remaining);
        request.after = Some(next.after);
    }
    assert_eq!(seen, ["p0", "p1", "p2", "p3"]);
    assert_eq!(left, [Some(2)]);
    request.limit = None;
    let whole = cluster.cache.list(&cluster.pods, &request).await;
    assert!(
        matches!(whole, Err(WatchCacheError::TooOld { .. })),
        "{whole:?}"
    );
}

#[tokio::test]
async fn state_that_keeps_too_much_alive_is_forgotten() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        pin_bytes: 1000,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    cluster.pod("ns/a", "web", "").await;
    cluster.pod("ns/b", "web", "").await;
    let first = cluster
        .pods
        .list(&ListRequest {
            limit: Some(1),
            ..ListRequest::all(everything())
        })
        .unwrap();
    let rest = ListRequest {
        at: ListAt::Exact(first.revision),
        ..ListRequest::all(everything())
    };
    let mut kept = 0;
    while cluster.pods.list(&rest).is_ok() {
        cluster.pod("ns/a", "web", "").await;
        kept += cluster.pods.get(&pod_key("ns/a")).unwrap().json_len();
    }
    // The limit counts watch lines, which are a little longer.
    assert!((800..2000).contains(&kept), "{kept}");
}

#[tokio::test(start_paused = true)]
async fn future_revision_is_waited_for_and_then_too_large() {
    let cluster = Cluster::start().await;
    let current = cluster.pod("ns/a", "web", "").await;
    let ahead = Revision(current.0 + 1);
    let error = cluster.cache.wait_for(ahead).await.unwrap_err();
    assert!(
        matches!(error, WatchCacheError::TooLarge { asked, current: at } if asked == ahead && at == current)
    );
    let request = ListRequest {
        at: ListAt::Exact(ahead),
        ..ListRequest::all(everything())
    };
    assert!(matches!(
        cluster.pods.list(&request),
        Err(WatchCacheError::TooLarge { .. })
    ));
    let (reached, _) = tokio::join!(
        cluster.cache.wait_for(ahead),
        cluster.pod("ns/b", "web", "")
    );
    reached.unwrap();
}
