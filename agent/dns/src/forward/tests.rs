use std::sync::atomic::Ordering::SeqCst;

use hickory_proto::serialize::binary::BinEncodable as _;

use super::*;
use crate::testing::{Other, name, texts};

const ME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn query(of: &str) -> Query {
    Query {
        name: name(of),
        record_type: RecordType::A,
        dnssec_ok: false,
    }
}

fn asking(servers: &[&Other]) -> Forwarder {
    Forwarder::new(Settings {
        servers: servers.iter().map(|one| one.address).collect(),
        ..Settings::default()
    })
}

async fn addresses(forwarder: &Forwarder, of: &str) -> Vec<String> {
    let reply = forwarder.resolve(ME, &query(of)).await.unwrap();
    texts(&reply.answers)
}

#[tokio::test]
async fn an_answer_is_asked_for_once() {
    let other = Other::knowing(&[("www.example.org.", "192.0.2.1")]).await;
    let forwarder = asking(&[&other]);
    for of in ["www.example.org.", "WWW.example.org."] {
        assert_eq!(
            addresses(&forwarder, of).await,
            ["www.example.org. A 192.0.2.1"]
        );
    }
    for _ in 0..2 {
        let absent = forwarder.resolve(ME, &query("absent.org.")).await.unwrap();
        assert_eq!(absent.code, ResponseCode::NXDomain);
        assert_eq!(absent.authorities.len(), 1);
    }
    assert_eq!(other.asked(), 2);
}

#[tokio::test]
async fn many_who_ask_the_same_ask_together() {
    let other = Other::knowing(&[("www.example.org.", "192.0.2.1")]).await;
    let forwarder = asking(&[&other]);
    let asked = query("www.example.org.");
    let all = (0..100).map(|_| forwarder.resolve(ME, &asked));
    let all = futures::future::join_all(all).await;
    assert!(all.iter().all(|reply| reply.is_ok()));
    assert_eq!(other.asked(), 1);
    let flights = forwarder.0.flights.lock();
    assert!(flights.by_key.is_empty() && flights.by_asker.is_empty());
    assert_eq!(flights.waiting, 0);
}

/// Whoever answers in the server's place, or to another question, is not heard.
#[tokio::test]
async fn an_answer_to_something_else_is_none() {
    let other = Other::start(std::sync::Arc::new(|question, answer| {
        let right = {
            let mut right = answer.clone();
            let data = hickory_proto::rr::RData::A([192, 0, 2, 1].into_ip());
            right.add_answer(Record::from_rdata(question.name().clone(), 60, data));
            right
        };
        let lie = |change: &dyn Fn(&mut hickory_proto::op::Message)| {
            let mut lie = right.clone();
            change(&mut lie);
            lie.answers.clear();
            lie.to_bytes().unwrap()
        };
        vec![
            lie(&|lie| lie.metadata.id ^= 1),
            lie(&|lie| lie.metadata.message_type = hickory_proto::op::MessageType::Query),
            lie(&|lie| {
                lie.queries[0].set_name(name("other.org."));
            }),
            lie(&|lie| {
                lie.queries[0].set_query_type(RecordType::AAAA);
            }),
            lie(&|lie| lie.queries.clear()),
            b"garbage".to_vec(),
            right.to_bytes().unwrap(),
        ]
    }))
    .await;
    assert_eq!(
        addresses(&asking(&[&other]), "www.example.org.").await,
        ["www.example.org. A 192.0.2.1"]
    );
    assert_eq!(other.asked(), 1);
}

trait IntoIp {
    fn into_ip(self) -> hickory_proto::rr::rdata::A;
}

impl IntoIp for [u8; 4] {
    fn into_ip(self) -> hickory_proto::rr::rdata::A {
        hickory_proto::rr::rdata::A(self.into())
    }
}

#[tokio::test]
async fn what_is_cut_is_asked_for_by_a_connection() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let other = Other::start(std::sync::Arc::new(move |question, mut answer| {
        if turn.fetch_add(1, SeqCst) == 0 {
            answer.metadata.truncation = true;
        } else {
            let data = hickory_proto::rr::RData::A([192, 0, 2, 9].into_ip());
            answer.add_answer(Record::from_rdata(question.name().clone(), 60, data));
        }
        vec![answer.to_bytes().unwrap()]
    }))
    .await;
    assert_eq!(
        addresses(&asking(&[&other]), "long.org.").await,
        ["long.org. A 192.0.2.9"]
    );
}

#[tokio::test]
async fn another_server_is_asked_where_one_is_silent() {
    let silent = Other::start(std::sync::Arc::new(|_, _| Vec::new())).await;
    let well = Other::knowing(&[("a.org.", "192.0.2.1"), ("b.org.", "192.0.2.2")]).await;
    let forwarder = asking(&[&silent, &well]);
    let start = Instant::now();
    assert_eq!(
        addresses(&forwarder, "a.org.").await,
        ["a.org. A 192.0.2.1"]
    );
    assert!(start.elapsed() >= ATTEMPT);
    let start = Instant::now();
    assert_eq!(
        addresses(&forwarder, "b.org.").await,
        ["b.org. A 192.0.2.2"]
    );
    assert!(start.elapsed() < ATTEMPT, "it is asked last now");
    assert_eq!((silent.asked(), well.asked()), (1, 2));
}

#[tokio::test]
async fn who_answers_nobody_is_named() {
    let silent = Other::start(std::sync::Arc::new(|_, _| Vec::new())).await;
    let start = Instant::now();
    let error = asking(&[&silent]).resolve(ME, &query("a.org.")).await;
    let error = error.unwrap_err();
    assert!(
        error.to_string().contains(&silent.address.to_string()),
        "{error}"
    );
    let took = start.elapsed();
    assert!(took >= DEADLINE && took < DEADLINE + ATTEMPT, "{took:?}");
    assert!(silent.asked() >= 3, "it is tried again");
    let nobody = Forwarder::new(Settings {
        servers: vec![silent.address],
        own: vec![silent.address.ip()],
        ..Settings::default()
    });
    let error = nobody.resolve(ME, &query("a.org.")).await.unwrap_err();
    assert!(matches!(error, ForwardError::NoServers), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_say_is_not_the_last_to_be_asked() {
    let unwilling = Other::start(std::sync::Arc::new(|_, mut answer| {
        answer.metadata.response_code = ResponseCode::Refused;
        vec![answer.to_bytes().unwrap()]
    }))
    .await;
    let well = Other::knowing(&[("a.org.", "192.0.2.1")]).await;
    let both = asking(&[&unwilling, &well]);
    assert_eq!(addresses(&both, "a.org.").await, ["a.org. A 192.0.2.1"]);
    let alone = asking(&[&unwilling]);
    let reply = alone.resolve(ME, &query("a.org.")).await.unwrap();
    assert_eq!(reply.code, ResponseCode::Refused);
    assert_eq!(unwilling.asked(), 2);
}

#[tokio::test]
async fn what_was_known_is_said_where_nobody_answers() {
    let is_well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let seen = std::sync::Arc::clone(&is_well);
    let other = Other::start(std::sync::Arc::new(move |question, mut answer| {
        if !seen.load(SeqCst) {
            return Vec::new();
        }
        let data = hickory_proto::rr::RData::A([192, 0, 2, 1].into_ip());
        answer.add_answer(Record::from_rdata(question.name().clone(), 1, data));
        vec![answer.to_bytes().unwrap()]
    }))
    .await;
    let forwarder = asking(&[&other]);
    addresses(&forwarder, "a.org.").await;
    is_well.store(false, SeqCst);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let reply = forwarder.resolve(ME, &query("a.org.")).await.unwrap();
    assert_eq!(reply.answers[0].ttl, 30);
}

#[tokio::test]
async fn the_longest_end_of_a_name_decides_who_is_asked() {
    let all = Other::knowing(&[("a.org.", "192.0.2.1")]).await;
    let corp = Other::knowing(&[("a.corp.org.", "192.0.2.2")]).await;
    let lab = Other::knowing(&[("a.lab.corp.org.", "192.0.2.3")]).await;
    let forwarder = Forwarder::new(Settings {
        servers: vec![all.address],
        stubs: vec![
            (name("corp.org."), vec![corp.address]),
            (name("lab.corp.org."), vec![lab.address]),
        ],
        own: Vec::new(),
    });
    for (of, last) in [("a.org.", 1), ("a.corp.org.", 2), ("a.lab.corp.org.", 3)] {
        assert_eq!(
            addresses(&forwarder, of).await,
            [format!("{of} A 192.0.2.{last}")]
        );
    }
    assert_eq!((all.asked(), corp.asked(), lab.asked()), (1, 1, 1));
}

#[tokio::test]
async fn one_who_asks_too_much_holds_up_nobody_else() {
    let silent = Other::start(std::sync::Arc::new(|_, _| Vec::new())).await;
    let forwarder = asking(&[&silent]);
    let asked: Vec<Query> = (0..MOST_EACH)
        .map(|n| query(&format!("n{n}.org.")))
        .collect();
    let mut all: Vec<_> = asked
        .iter()
        .map(|query| Box::pin(forwarder.resolve(ME, query)))
        .collect();
    for one in &mut all {
        assert!(one.as_mut().now_or_never().is_none());
    }
    let error = forwarder
        .resolve(ME, &query("more.org."))
        .await
        .unwrap_err();
    assert!(matches!(error, ForwardError::TooMany { asker } if asker == ME));
    let other: IpAddr = "192.0.2.7".parse().unwrap();
    let more = query("more.org.");
    let mut others = Box::pin(forwarder.resolve(other, &more));
    assert!(others.as_mut().now_or_never().is_none(), "it is asked");
    drop((all, others));
    assert_eq!(forwarder.0.flights.lock().waiting, 0);
}
