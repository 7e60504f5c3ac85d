//! Which events are written, and as what.

use super::{
    correlator::{REMEMBERED, SPAM_REFILL},
    *,
};

fn note(name: &str, message: &str) -> Queued {
    let note = Note {
        component: "test".into(),
        about: ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("ns".into()),
            name: Some(name.into()),
            ..ObjectReference::default()
        },
        kind: EventType::Normal,
        reason: "Tested".into(),
        message: message.into(),
        times: 1,
    };
    Queued { note, at: Timestamp::now(), due: Instant::now() }
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
async fn what_is_combined_is_no_longer_than_the_server_takes() {
    let mut correlator = Correlator::default();
    let long = |n: usize| note("a", &format!("{n:02}{}", "ü".repeat(MAX_MESSAGE / 2 - 1)));
    let writes: Vec<Write> = (0..11).filter_map(|n| correlator.correlate(long(n), Instant::now())).collect();
    assert_eq!(writes[0].note.message.len(), MAX_MESSAGE);
    let combined = &writes[10].note.message;
    assert!(combined.starts_with("(combined from similar events): 10ü") && combined.len() <= MAX_MESSAGE, "{combined}");
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_long_name_has_a_name_itself() {
    let name = format!("{}.{}", "a".repeat(219), "b".repeat(30));
    let write = Correlator::default().correlate(note(&name, "x"), Instant::now()).unwrap();
    assert!(write.name.len() <= 253, "{}", write.name);
    assert_eq!(write.name.rsplit_once('.').unwrap().0, "a".repeat(219), "no two dots follow each other");
}

#[tokio::test]
async fn a_writer_ends_although_the_server_does_not_answer() {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let (recorder, writer) = channel(Client::new(silent, "default"), None, Duration::ZERO);
    recorder.note(note("a", "x").note);
    let shutdown = CancellationToken::new();
    let mut run = std::pin::pin!(writer.run(shutdown.clone()));
    assert!(futures::poll!(&mut run).is_pending(), "a write is under way");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), run).await.unwrap();
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
    assert!(correlator.sizes().iter().all(|size| *size <= REMEMBERED), "{:?}", correlator.sizes());
}

#[tokio::test(start_paused = true)]
async fn what_repeats_within_a_round_is_written_once() {
    let mut correlator = Correlator::default();
    let mut thrice = note("a", "x");
    thrice.note.times = 3;
    let round = [note("a", "x"), note("b", "x"), thrice].into_iter();
    let first = correlator.round(round, Instant::now());
    let told = |writes: &[Write]| -> Vec<(String, i32, bool)> {
        writes.iter().map(|write| (write.note.about.name.clone().unwrap(), write.count, write.is_new)).collect()
    };
    assert_eq!(told(&first), [("a".into(), 4, true), ("b".into(), 1, true)]);
    let second = correlator.round([note("a", "x")].into_iter(), Instant::now());
    assert_eq!(told(&second), [("a".into(), 5, false)]);
    correlator.forget(&second[0].identity);
    assert_eq!(told(&correlator.round([note("a", "x")].into_iter(), Instant::now())), [("a".into(), 1, true)]);
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_pod_have_events_of_their_own() {
    let mut correlator = Correlator::default();
    let of = |container: &str| {
        let mut queued = note("a", "pulled");
        queued.note.about.field_path = Some(format!("spec.containers{{{container}}}"));
        queued
    };
    let writes = correlator.round([of("web"), of("log"), of("web")].into_iter(), Instant::now());
    assert_eq!(writes.iter().map(|write| write.count).collect::<Vec<_>>(), [2, 1]);
}
