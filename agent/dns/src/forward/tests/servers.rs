//! Who is asked, in what order and how long.

use std::time::Instant;

use tokio::net::UdpSocket;

use super::{fake::Fake, *};

/// A port of 127.0.0.1 at which nobody is: the kernel refuses what comes from anyone but the one it
/// is connected to, and gives the port to nobody else.
struct Closed {
    at: SocketAddr,
    _socket: UdpSocket,
}

async fn closed() -> Closed {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = socket.local_addr().unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, 1)).await.unwrap();
    Closed {
        at,
        _socket: socket,
    }
}

#[tokio::test]
async fn without_servers_there_is_nobody_to_ask() {
    let forwarder = asking(&[]);
    let reply = forwarder.resolve(ASKER, &query("a.test.")).await;
    assert!(matches!(reply, Err(ForwardError::NoServers)));
    let expected = Counts {
        asked: 1,
        failed: 1,
        ..Counts::default()
    };
    assert_eq!(forwarder.counts(), expected);
}

#[tokio::test]
async fn silence_ends_after_two_seconds() {
    let server = Fake::silent().await;
    let forwarder = asking(&[server.at]);
    let start = Instant::now();
    let error = forwarder.resolve(ASKER, &query("a.test.")).await;
    let took = start.elapsed();
    assert!((1900..3500).contains(&took.as_millis()), "{took:?}");
    let error = error.unwrap_err().to_string();
    let silent = format!("{}: no answer over UDP", server.at);
    let said = error.strip_prefix("nobody has answered a.test. A: ");
    let tries: Vec<_> = said.unwrap().split(", ").collect();
    assert!(tries.iter().all(|said| *said == silent), "{error}");
    assert!((4..=5).contains(&tries.len()), "{error}");
}

#[tokio::test]
async fn a_lost_datagram_is_sent_again() {
    let lost = AtomicU64::new(0);
    let server = Fake::start(move |question, _| {
        let first = lost.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = (!first).then(|| bytes(&address(question, 1)));
        answer.into_iter().collect()
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert_eq!(last(&reply.unwrap()), 1);
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn after_a_silent_server_the_next_is_asked() {
    let (silent, honest) = (Fake::silent().await, Fake::honest(2).await);
    let forwarder = asking(&[silent.at, honest.at]);
    let start = Instant::now();
    let reply = forwarder.resolve(ASKER, &query("a.test.")).await;
    let took = start.elapsed();
    assert_eq!(last(&reply.unwrap()), 2);
    assert!((450..2000).contains(&took.as_millis()), "{took:?}");
    // It is asked last from now on.
    let start = Instant::now();
    let reply = forwarder.resolve(ASKER, &query("b.test.")).await;
    assert_eq!(last(&reply.unwrap()), 2);
    assert!(start.elapsed().as_millis() < 400);
    assert_eq!((silent.count(), honest.count()), (1, 2));
}

#[tokio::test]
async fn one_that_is_not_there_takes_no_time() {
    let (closed, honest) = (closed().await, Fake::honest(2).await);
    let start = Instant::now();
    let reply = asking(&[closed.at, honest.at])
        .resolve(ASKER, &query("a.test."))
        .await;
    assert_eq!(last(&reply.unwrap()), 2);
    assert!(start.elapsed().as_millis() < 400);
}

#[tokio::test]
async fn one_that_is_not_there_is_named_with_the_cause() {
    let closed = closed().await;
    let reply = asking(&[closed.at]).resolve(ASKER, &query("a.test.")).await;
    let expected = format!(
        "nobody has answered a.test. A: {}: ask over UDP: Connection refused (os error 111)",
        closed.at
    );
    assert_eq!(reply.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn one_that_answers_again_is_first_again() {
    let second = Fake::honest(2).await;
    let first = closed().await;
    let forwarder = asking(&[first.at, second.at]);
    let ask = async |text: &str| last(&forwarder.resolve(ASKER, &query(text)).await.unwrap());
    assert_eq!(ask("a.test.").await, 2);
    let at = first.at;
    drop(first);
    let back = Fake::start_at(at, |question, _| vec![bytes(&address(question, 1))]).await;
    assert_eq!(ask("b.test.").await, 2);
    assert_eq!(back.count(), 0);
    pass(Duration::from_secs(1)).await;
    assert_eq!(ask("c.test.").await, 1);
    assert_eq!(ask("d.test.").await, 1);
}

#[tokio::test]
async fn one_that_is_asked_no_more_is_forgotten() {
    let (closed, honest) = (closed().await, Fake::honest(2).await);
    let forwarder = asking(&[closed.at, honest.at]);
    forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
    forwarder.set(settings(&[honest.at]));
    assert!(!forwarder.inner.health.lock().healed(closed.at));
}

#[tokio::test]
async fn where_one_cannot_find_out_the_next_is_asked() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        let at_a_loss = Fake::start(move |question, _| vec![bytes(&empty(question, code))]);
        let (at_a_loss, honest) = (at_a_loss.await, Fake::honest(2).await);
        let forwarder = asking(&[at_a_loss.at, honest.at]);
        for text in ["a.test.", "b.test."] {
            let reply = forwarder.resolve(ASKER, &query(text)).await;
            assert_eq!(last(&reply.unwrap()), 2);
        }
        // It has answered: it is well.
        assert_eq!(at_a_loss.count(), 2);
    }
}

#[tokio::test]
async fn one_from_before_edns_is_asked_without() {
    for code in [ResponseCode::FormErr, ResponseCode::NotImp] {
        let server = Fake::start(move |question, _| {
            let answer = match question.edns {
                Some(_) => empty(question, code),
                None => address(question, 1),
            };
            vec![bytes(&answer)]
        });
        let server = server.await;
        let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
        assert_eq!(last(&reply.unwrap()), 1);
        assert_eq!(server.count(), 2);
    }
}

#[tokio::test]
async fn where_all_cannot_find_out_that_is_the_reply_for_a_second() {
    let code = ResponseCode::ServFail;
    let server = Fake::start(move |question, _| vec![bytes(&empty(question, code))]).await;
    let forwarder = asking(&[server.at]);
    for _ in 0..2 {
        let reply = forwarder.resolve(ASKER, &query("a.test.")).await;
        assert_eq!(reply.unwrap().code, code);
    }
    assert_eq!(server.count(), 1);
    pass(Duration::from_secs(1)).await;
    forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn the_longest_domain_decides() {
    let [all, corp, lab] = [
        Fake::honest(1).await,
        Fake::honest(2).await,
        Fake::honest(3).await,
    ];
    let forwarder = Forwarder::new(Settings {
        servers: vec![all.at],
        stubs: vec![
            (name("corp.test."), vec![corp.at]),
            (name("Lab.Corp.test"), vec![lab.at]),
            (name("nobody.corp.test."), vec![]),
        ],
        own: vec![],
    });
    let ask = async |text: &str| forwarder.resolve(ASKER, &query(text)).await;
    for (text, server) in [
        ("test.", 1),
        ("xcorp.test.", 1),
        ("corp.test.", 2),
        ("A.CORP.test.", 2),
        ("xlab.corp.test.", 2),
        ("lab.corp.test.", 3),
        ("a.b.lab.corp.test.", 3),
    ] {
        assert_eq!(last(&ask(text).await.unwrap()), server, "{text}");
    }
    let nobody = ask("a.nobody.corp.test.").await;
    assert!(matches!(nobody, Err(ForwardError::NoServers)));
}

#[tokio::test]
async fn our_own_address_is_left_out() {
    let (own, other) = (Fake::honest(1).await, Fake::honest(2).await);
    // The same machine, by another of its addresses.
    let mut by_another = other.at;
    by_another.set_ip(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into());
    let forwarder = Forwarder::new(Settings {
        servers: vec![own.at, by_another],
        stubs: vec![(name("corp.test."), vec![own.at])],
        own: vec![Ipv4Addr::LOCALHOST.into()],
    });
    for text in ["a.test.", "corp.test."] {
        let reply = forwarder.resolve(ASKER, &query(text)).await;
        assert!(matches!(reply, Err(ForwardError::NoServers)), "{text}");
    }
    assert_eq!((own.count(), other.count()), (0, 0));
}

#[tokio::test]
async fn one_given_twice_is_asked_once() {
    let closed = closed().await;
    let reply = asking(&[closed.at, closed.at])
        .resolve(ASKER, &query("a.test."))
        .await;
    match reply {
        Err(ForwardError::NoAnswer { tried, .. }) => assert_eq!(tried.len(), 1),
        other => panic!("{other:?}"),
    }
}
