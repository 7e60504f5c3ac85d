use super::*;

const BACKOFF: Duration = Duration::from_secs(1);

/// One attempt failed at `failed`.
fn refused(priority: i32, failed: Instant) -> Backoff {
    Backoff {
        priority,
        failed,
        early_from: failed,
        until: failed + BACKOFF,
    }
}

fn error(failed: Instant) -> Backoff {
    Backoff {
        early_from: failed + BACKOFF,
        ..refused(0, failed)
    }
}

fn uid(name: &str) -> PodUid {
    PodUid(name.into())
}

fn completed(queue: &mut BackoffQueue, now: Instant) -> Vec<String> {
    let completed = queue.pop_completed(now);
    completed.iter().map(|uid| uid.0.to_string()).collect()
}

/// After `TestBackoffQueueOrdering`.
#[test]
fn priority_decides_within_a_window() {
    let epoch = Instant::now();
    let now = epoch + Duration::from_secs(10);
    let ago = |millis| now - Duration::from_millis(millis);
    let mut queue = BackoffQueue::new(epoch);
    for (name, priority, failed) in [
        ("0", 1, now),
        ("1", 1, ago(1000)),
        ("2", 2, ago(1999)),
        ("3", 1, ago(2000)),
        ("4", 2, ago(2000)),
        ("5", 1, ago(3000)),
    ] {
        // When it failed, so that it is pushed before its back-off is over.
        queue.push(&uid(name), refused(priority, failed), failed);
    }
    assert_eq!(completed(&mut queue, now), ["5", "4", "2", "3"]);
    let order = std::iter::from_fn(|| queue.pop(|_| true));
    assert_eq!(order.collect::<Vec<_>>(), [uid("1"), uid("0")]);
}

/// After `TestBackoffQueue_popAllBackoffCompleted`.
#[test]
fn what_has_failed_leaves_in_time_and_is_not_popped() {
    let epoch = Instant::now();
    let now = epoch + Duration::from_secs(10);
    let (before, later) = (now - 2 * BACKOFF, now + BACKOFF);
    let all = [
        ("refused", refused(0, before)),
        ("refused later", refused(0, later)),
        ("error", error(before)),
        ("error later", error(later)),
    ];
    for (pushed, expected) in [
        (vec![], vec![]),
        (vec![0, 1], vec!["refused"]),
        (vec![2, 3], vec!["error"]),
        (vec![0, 1, 2, 3], vec!["refused", "error"]),
        (vec![0, 2], vec!["refused", "error"]),
        (vec![1, 3], vec![]),
    ] {
        let mut queue = BackoffQueue::new(epoch);
        for number in &pushed {
            let (name, backoff) = &all[*number];
            queue.push(&uid(name), *backoff, backoff.failed);
        }
        assert_eq!(completed(&mut queue, now), expected, "{pushed:?}");
        assert_eq!(queue.len(), pushed.len() - expected.len(), "{pushed:?}");
        let early = std::iter::from_fn(|| queue.pop(|_| true)).count();
        assert_eq!(early, usize::from(pushed.contains(&1)), "{pushed:?}");
    }
}

#[test]
fn what_is_removed_is_nowhere() {
    let now = Instant::now();
    let mut queue = BackoffQueue::new(now);
    for backoff in [refused(1, now), error(now)] {
        queue.push(&uid("a"), backoff, now);
        queue.remove(&uid("a"), &backoff);
        assert_eq!((queue.len(), queue.next_completed()), (0, None));
    }
}
