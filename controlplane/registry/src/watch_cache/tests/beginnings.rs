//! What a watch begins with, and lines that are longer than a piece.

use super::*;

/// A label that makes a line of three pieces and a bit.
fn long() -> String {
    "x".repeat(3 * LINES_BYTES)
}

/// All lines that are there, and the pieces they came in.
fn all(mut next: impl FnMut() -> Vec<u8>) -> (Vec<u8>, usize) {
    let (mut lines, mut pieces) = (Vec::new(), 0);
    loop {
        let piece = next();
        assert!(piece.len() <= LINES_BYTES, "{}", piece.len());
        if piece.is_empty() {
            return (lines, pieces);
        }
        lines.extend(piece);
        pieces += 1;
    }
}

#[tokio::test]
async fn a_watch_begins_with_each_object_of_its_selection_once() {
    let cluster = Cluster::start().await;
    for n in 0..500 {
        let app = if n % 3 == 0 { "web" } else { "db" };
        cluster.pod(&format!("ns/{n:03}"), app, "").await;
    }
    cluster.pod("ns/long", &long(), "").await;
    cluster.pod("other/a", "web", "").await;
    for selection in [
        everything(),
        with_app("web"),
        namespace("ns"),
        namespace("none"),
    ] {
        let (mut beginning, _) = cluster.pods.begin_and_watch(selection.clone());
        let snapshot = cluster.pods.snapshot();
        assert_eq!(beginning.revision(), snapshot.revision());
        let expect: Vec<Arc<Entry>> = snapshot.select(&selection, PODS).cloned().collect();
        let lines = expect.iter().map(|entry| entry.line(EventKind::Added));
        let lines = lines.collect::<Vec<_>>().concat();
        let (given, pieces) = all(|| beginning.next_lines().unwrap());
        assert!(given == lines && pieces >= lines.len() / LINES_BYTES);
        let (mut beginning, _) = cluster.pods.begin_and_watch(selection);
        let entries: Vec<_> = std::iter::from_fn(|| beginning.next_entry().unwrap()).collect();
        assert_eq!(names(&entries), names(&expect));
    }
}

#[tokio::test]
async fn what_a_watch_begins_with_is_taken_back_when_too_much_of_it_is_past() {
    let limits = WatchCacheLimits {
        beginning_bytes: 100_000,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    cluster.pod("ns/a", &long(), "").await;
    let entry = Arc::downgrade(&cluster.pods.get(&pod_key("ns/a")).unwrap());
    let (mut slow, watcher) = cluster.pods.begin_and_watch(everything());
    slow.next_lines().unwrap();
    drop(watcher);
    cluster.pod("ns/a", &long(), "").await;
    slow.next_lines().unwrap();
    for _ in 0..3 {
        cluster.pod("ns/a", &long(), "").await;
    }
    let error = slow.next_lines().unwrap_err();
    assert!(matches!(error, WatchCacheError::TooSlow), "{error:?}");
    // The ring has it, and nobody else.
    assert_eq!(entry.strong_count(), 2);
}

#[tokio::test]
async fn a_long_line_comes_in_parts() {
    let cluster = Cluster::start().await;
    let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
    let mut deliveries = cluster.pods.watch(everything(), Revision(0)).unwrap();
    for (key, app) in [
        ("ns/a", "web"),
        ("ns/b", &*long()),
        ("ns/b", "web"),
        ("ns/a", "db"),
    ] {
        cluster.pod(key, app, "").await;
    }
    let deliveries = deliveries.next().await.unwrap();
    let expect = deliveries.iter().map(Delivery::line);
    let expect = expect.collect::<Vec<_>>().concat();
    let mut lines = Vec::new();
    while lines.len() < expect.len() {
        assert_eq!(watcher.progress(), None, "something waits");
        let piece = watcher.next_lines().await.unwrap();
        assert!(piece.len() <= LINES_BYTES, "{}", piece.len());
        lines.extend(piece);
    }
    assert!(lines == expect);
    assert!(watcher.progress().is_some());
}

#[tokio::test]
async fn who_has_a_part_of_a_line_that_is_gone_was_too_slow() {
    let limits = WatchCacheLimits {
        ring_events: 4,
        ..WatchCacheLimits::default()
    };
    let cluster = Cluster::with(Arc::new(MemoryBackend::new()), limits).await;
    let mut watcher = cluster.pods.watch(everything(), Revision(0)).unwrap();
    cluster.pod("ns/a", &long(), "").await;
    watcher.next_lines().await.unwrap();
    for n in 0..4 {
        cluster.pod("ns/b", &n.to_string(), "").await;
    }
    let error = watcher.next_lines().await.unwrap_err();
    assert!(matches!(error, WatchCacheError::TooSlow), "{error:?}");
}
