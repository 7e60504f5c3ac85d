//! How much is read for one list of a state that only the store has.

use super::*;

/// A cluster whose cache remembers nothing of the past.
async fn forgetful() -> Cluster {
    let limits = WatchCacheLimits {
        ring_events: 2,
        pins: 0,
        ..WatchCacheLimits::default()
    };
    Cluster::with(Arc::new(MemoryBackend::new()), limits).await
}

/// Forgets what there is, and asks for it.
async fn forget(cluster: &Cluster, limit: usize, selection: Selection) -> ListRequest {
    let then = cluster.cache.revision();
    for n in 0..10 {
        cluster.pod("zz/last", &n.to_string(), "").await;
    }
    ListRequest {
        at: ListAt::Exact(then),
        limit: Some(limit),
        ..ListRequest::all(selection)
    }
}

/// All chunks: how many objects each has.
async fn chunks(cluster: &Cluster, mut request: ListRequest) -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut seen) = (Vec::new(), Vec::new());
    loop {
        let chunk = cluster.cache.list(&cluster.pods, &request).await.unwrap();
        sizes.push(chunk.entries.len());
        seen.extend(names(&chunk.entries));
        let Some(next) = chunk.next else {
            return (sizes, seen);
        };
        request.after = Some(next.after);
    }
}

#[tokio::test]
async fn chunk_of_large_objects_ends_by_their_bytes() {
    let cluster = forgetful().await;
    let large = "x".repeat(1 << 20);
    for n in 10..30 {
        cluster.pod(&format!("ns/p{n}"), &large, "").await;
    }
    let request = forget(&cluster, 500, namespace("ns")).await;
    let first = cluster.cache.list(&cluster.pods, &request).await.unwrap();
    assert_eq!(first.next.unwrap().remaining, Some(12));
    let (sizes, seen) = chunks(&cluster, request).await;
    assert_eq!(sizes, [8, 8, 4]);
    let all: Vec<_> = (10..30).map(|n| format!("p{n}")).collect();
    assert_eq!(seen, all);
}

#[tokio::test]
async fn chunk_that_a_filter_leaves_empty_ends_by_what_was_read() {
    let cluster = forgetful().await;
    for n in 1000..2100 {
        let app = if n == 2099 { "db" } else { "web" };
        cluster.pod(&format!("ns/p{n}"), app, "").await;
    }
    let request = forget(&cluster, 1, with_app("db")).await;
    let (sizes, seen) = chunks(&cluster, request).await;
    assert_eq!((sizes, seen), (vec![0, 1], vec!["p2099".to_owned()]));
}
