//! Which events are written, and as what.

use super::*;

fn note(name: &str, message: &str) -> Note {
    Note {
        component: "test",
        about: ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("ns".into()),
            name: Some(name.into()),
            ..ObjectReference::default()
        },
        kind: EventType::Normal,
        reason: "Tested",
        message: message.into(),
        at: Timestamp::now(),
    }
}

#[tokio::test(start_paused = true)]
async fn repetition_raises_the_count_of_one_object() {
    let mut correlator = Correlator::default();
    let first = correlator.correlate(note("a", "hello"), Instant::now()).unwrap();
    let second = correlator.correlate(note("a", "hello"), Instant::now()).unwrap();
    assert_eq!((first.count, second.count), (1, 2));
    assert_eq!(first.name, second.name);
    assert_eq!(first.first, second.first);
}

#[tokio::test(start_paused = true)]
async fn eleventh_different_message_is_combined() {
    let mut correlator = Correlator::default();
    for n in 0..10 {
        let write = correlator.correlate(note("a", &format!("m{n}")), Instant::now()).unwrap();
        assert_eq!(write.note.message, format!("m{n}"));
    }
    let combined = correlator.correlate(note("a", "m10"), Instant::now()).unwrap();
    assert_eq!(combined.note.message, "(combined from similar events): m10");
    let next = correlator.correlate(note("a", "m11"), Instant::now()).unwrap();
    assert_eq!((next.name, next.count), (combined.name, 2));
}

#[tokio::test(start_paused = true)]
async fn one_object_is_silenced_after_25_and_others_are_not() {
    let mut correlator = Correlator::default();
    let written = (0..40).filter(|_| correlator.correlate(note("a", "x"), Instant::now()).is_some()).count();
    assert_eq!(written, 25);
    assert!(correlator.correlate(note("b", "x"), Instant::now()).is_some());
    tokio::time::advance(SPAM_REFILL).await;
    assert!(correlator.correlate(note("a", "x"), Instant::now()).is_some());
}

#[tokio::test(start_paused = true)]
async fn memory_stays_bounded() {
    let mut correlator = Correlator::default();
    for n in 0..10 * REMEMBERED {
        tokio::time::advance(Duration::from_millis(1)).await;
        correlator.correlate(note(&format!("pod-{n}"), "x"), Instant::now());
    }
    assert!(correlator.seen.len() <= REMEMBERED);
    assert!(correlator.similar.len() <= REMEMBERED);
    assert!(correlator.budgets.len() <= REMEMBERED);
}
