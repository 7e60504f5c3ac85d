//! Which events are written, and as what.

use super::{
    correlator::{KEPT, REMEMBERED, SPAM_REFILL},
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
    Queued {
        note,
        at: Timestamp::now(),
        due: Instant::now(),
    }
}

#[tokio::test(start_paused = true)]
async fn repetition_raises_the_count_of_one_object() {
    let mut correlator = Correlator::default();
    let first = correlator
        .correlate(note("a", "hello"), Instant::now())
        .unwrap();
    let second = correlator
        .correlate(note("a", "hello"), Instant::now())
        .unwrap();
    assert_eq!((first.count, second.count), (1, 2));
    assert_eq!(first.name, second.name);
    assert_eq!(first.first, second.first);
}

#[tokio::test(start_paused = true)]
async fn tenth_different_message_is_combined() {
    let mut correlator = Correlator::default();
    for n in 0..9 {
        let write = correlator
            .correlate(note("a", &format!("m{n}")), Instant::now())
            .unwrap();
        assert_eq!(write.note.message, format!("m{n}"));
    }
    let combined = correlator
        .correlate(note("a", "m9"), Instant::now())
        .unwrap();
    assert_eq!(combined.note.message, "(combined from similar events): m9");
    let known = correlator
        .correlate(note("a", "m0"), Instant::now())
        .unwrap();
    assert_eq!((known.note.message.as_str(), known.count), ("m0", 2));
    let next = correlator
        .correlate(note("a", "m11"), Instant::now())
        .unwrap();
    assert_eq!((next.name, next.count), (combined.name, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_combined_is_no_longer_than_the_server_takes() {
    let mut correlator = Correlator::default();
    let long = |n: usize| note("a", &format!("{n:02}{}", "ü".repeat(MAX_MESSAGE / 2 - 1)));
    let writes: Vec<Write> = (0..10)
        .filter_map(|n| correlator.correlate(long(n), Instant::now()))
        .collect();
    assert_eq!(writes[0].note.message.len(), MAX_MESSAGE);
    let combined = &writes[9].note.message;
    assert!(
        combined.starts_with("(combined from similar events): 09ü")
            && combined.len() <= MAX_MESSAGE,
        "{combined}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_long_name_has_a_name_itself() {
    let name = format!("{}.{}", "a".repeat(219), "b".repeat(30));
    let write = Correlator::default()
        .correlate(note(&name, "x"), Instant::now())
        .unwrap();
    assert!(write.name.len() <= 253, "{}", write.name);
    assert_eq!(
        write.name.rsplit_once('.').unwrap().0,
        "a".repeat(219),
        "no two dots follow each other"
    );
}

#[tokio::test]
async fn a_writer_ends_although_the_server_does_not_answer() {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>(
        )
    });
    let (recorder, writer) = channel(Client::new(silent, "default"), None, Duration::ZERO);
    recorder.note(note("a", "x").note);
    let shutdown = CancellationToken::new();
    let mut run = std::pin::pin!(writer.run(shutdown.clone()));
    assert!(
        futures::poll!(&mut run).is_pending(),
        "a write is under way"
    );
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), run)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_object_is_silenced_after_25_and_others_are_not() {
    let mut correlator = Correlator::default();
    let written = (0..40)
        .filter(|_| {
            correlator
                .correlate(note("a", "x"), Instant::now())
                .is_some()
        })
        .count();
    assert_eq!(written, 25);
    assert!(
        correlator
            .correlate(note("b", "x"), Instant::now())
            .is_some()
    );
    tokio::time::advance(SPAM_REFILL).await;
    let later = correlator
        .correlate(note("a", "x"), Instant::now())
        .unwrap();
    assert_eq!(later.count, 41, "those that were not written count");
}

#[tokio::test(start_paused = true)]
async fn memory_stays_bounded() {
    let mut correlator = Correlator::default();
    for n in 0..10 * REMEMBERED {
        tokio::time::advance(Duration::from_millis(1)).await;
        correlator.correlate(note(&format!("pod-{n}"), "x"), Instant::now());
    }
    assert!(
        correlator.sizes().iter().all(|size| *size <= REMEMBERED),
        "{:?}",
        correlator.sizes()
    );
    // What can make no difference any more is forgotten before.
    tokio::time::advance(KEPT).await;
    correlator.correlate(note("a", "x"), Instant::now());
    assert_eq!(correlator.sizes(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_other_objects_gives_no_object_new_room() {
    let mut correlator = Correlator::default();
    for n in 0..2 * REMEMBERED {
        tokio::time::advance(Duration::from_millis(1)).await;
        correlator.correlate(note(&format!("pod-{n}"), "x"), Instant::now());
        correlator.correlate(note("loud", "x"), Instant::now());
    }
    assert_eq!(
        correlator
            .correlate(note("loud", "x"), Instant::now())
            .map(|write| write.count),
        None
    );
}

#[tokio::test]
async fn events_of_one_object_are_written_in_their_order_and_others_do_not_wait() {
    let written = tokio::sync::watch::Sender::new(Vec::<(String, String)>::new());
    let of = |all: &[(String, String)], name: &str| -> Vec<String> {
        all.iter()
            .filter(|(about, _)| about == name)
            .map(|(_, message)| message.clone())
            .collect()
    };
    let server = written.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let server = server.clone();
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let event: Event = serde_json::from_slice(&body).unwrap();
            let told = (event.involved_object.name.unwrap(), event.message.unwrap());
            if told == ("a".into(), "1".into()) {
                // Stuck until everything about the other is written.
                server
                    .subscribe()
                    .wait_for(|all| of(all, "b").len() == 3)
                    .await
                    .unwrap();
            }
            server.send_modify(|all| all.push(told));
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(
                body.to_vec(),
            )))
        }
    });
    let (recorder, mut writer) = channel(Client::new(service, "default"), None, Duration::ZERO);
    for (message, name) in ["1", "2", "3"]
        .into_iter()
        .flat_map(|message| [(message, "a"), (message, "b")])
    {
        recorder.note(note(name, message).note);
    }
    drop(recorder);
    tokio::time::timeout(Duration::from_secs(5), writer.write_all())
        .await
        .unwrap();
    let written = written.borrow();
    assert_eq!([of(&written, "a"), of(&written, "b")], [["1", "2", "3"]; 2]);
}

#[tokio::test(start_paused = true)]
async fn what_repeats_within_a_round_is_written_once() {
    let mut correlator = Correlator::default();
    let mut thrice = note("a", "x");
    thrice.note.times = 3;
    let round = [note("a", "x"), note("b", "x"), thrice].into_iter();
    let first = correlator.round(round, Instant::now());
    let told = |writes: &[Write]| -> Vec<(String, i32, bool)> {
        writes
            .iter()
            .map(|write| {
                (
                    write.note.about.name.clone().unwrap(),
                    write.count,
                    write.is_new,
                )
            })
            .collect()
    };
    assert_eq!(told(&first), [("a".into(), 4, true), ("b".into(), 1, true)]);
    let second = correlator.round([note("a", "x")].into_iter(), Instant::now());
    assert_eq!(told(&second), [("a".into(), 5, false)]);
    correlator.forget(&second[0].identity);
    assert_eq!(
        told(&correlator.round([note("a", "x")].into_iter(), Instant::now())),
        [("a".into(), 1, true)]
    );
}

#[tokio::test(start_paused = true)]
async fn containers_of_a_pod_have_events_of_their_own() {
    let mut correlator = Correlator::default();
    let of = |container: &str| {
        let mut queued = note("a", "pulled");
        queued.note.about.field_path = Some(format!("spec.containers{{{container}}}"));
        queued
    };
    let writes = correlator.round(
        [of("web"), of("log"), of("web")].into_iter(),
        Instant::now(),
    );
    assert_eq!(
        writes.iter().map(|write| write.count).collect::<Vec<_>>(),
        [2, 1]
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_waits_for_a_server_that_is_away_and_not_for_one_that_refuses() {
    use std::sync::atomic::AtomicUsize;

    let tries = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tries);
    // The first event meets no server twice; the second is refused.
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let at = seen.fetch_add(1, Ordering::SeqCst);
        let answer = |code: u16, body: serde_json::Value| {
            Ok(http::Response::builder()
                .status(code)
                .body(kube::client::Body::from(body.to_string().into_bytes()))
                .expect("valid"))
        };
        let answer = match at {
            0 | 1 => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
            2 => answer(
                201,
                json!({"metadata": {"name": "e"}, "involvedObject": {}}),
            ),
            _ => answer(
                403,
                json!({"kind": "Status", "status": "Failure", "message": "no", "code": 403}),
            ),
        };
        async move { answer }
    });
    let (recorder, writer) = channel(Client::new(service, "default"), None, Duration::ZERO);
    let shutdown = CancellationToken::new();
    let run = coracle_telemetry::spawn("event writer", writer.run(shutdown.clone()));
    recorder.note(note("a", "x").note);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    recorder.note(note("b", "y").note);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    shutdown.cancel();
    run.await.unwrap();
}
