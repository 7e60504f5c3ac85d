//! What is asked once, what is given again, and how many may wait.

use std::pin::pin;

use futures::{future::join_all, poll};

use super::{fake::Fake, places::*, *};

#[tokio::test]
async fn an_answer_is_given_again_and_its_ttl_counts_down() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    let ttl = async |text: &str| {
        let reply = forwarder.resolve(ASKER, &query(text)).await.unwrap();
        reply.answers[0].ttl
    };
    assert_eq!(ttl("a.test.").await, 20);
    pass(Duration::from_secs(5)).await;
    assert_eq!(ttl("A.TEST").await, 15);
    pass(Duration::from_secs(14)).await;
    assert_eq!((ttl("a.test.").await, server.count()), (1, 1));
    pass(Duration::from_secs(1)).await;
    assert_eq!((ttl("a.test.").await, server.count()), (20, 2));
    let expected = Counts {
        asked: 4,
        cached: 2,
        ..Counts::default()
    };
    assert_eq!(forwarder.counts(), expected);
}

#[tokio::test]
async fn negative_answers_are_given_again() {
    for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
        let server = Fake::start(move |question, _| vec![bytes(&negative(question, code, 3))]);
        let server = server.await;
        let forwarder = asking(&[server.at]);
        let ask = async || {
            let reply = forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
            (reply.code, reply.authorities[0].ttl, server.count())
        };
        assert_eq!(ask().await, (code, 3, 1));
        pass(Duration::from_secs(2)).await;
        assert_eq!(ask().await, (code, 1, 1));
        pass(Duration::from_secs(1)).await;
        assert_eq!(ask().await, (code, 3, 2));
    }
}

#[tokio::test]
async fn when_nobody_answers_the_old_answer_is_given() {
    let server = Fake::honest(1).await;
    let (at, forwarder) = (server.at, asking(&[server.at]));
    let ask = async || forwarder.resolve(ASKER, &query("a.test.")).await;
    ask().await.unwrap();
    server.stop().await;
    pass(Duration::from_secs(20 + 3590)).await;
    let stale = ask().await.unwrap();
    assert_eq!((last(&stale), stale.answers[0].ttl), (1, 30));
    // For a moment without asking.
    let back = Fake::start_at(at, |question, _| vec![bytes(&address(question, 2))]).await;
    assert_eq!((last(&ask().await.unwrap()), back.count()), (1, 0));
    pass(Duration::from_secs(5)).await;
    assert_eq!((last(&ask().await.unwrap()), back.count()), (2, 1));
    let expected = Counts {
        asked: 4,
        stale: 2,
        ..Counts::default()
    };
    assert_eq!(forwarder.counts(), expected);
}

#[tokio::test]
async fn after_an_hour_nothing_is_given() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
    server.stop().await;
    pass(Duration::from_secs(20 + 3600)).await;
    let reply = forwarder.resolve(ASKER, &query("a.test.")).await;
    assert!(matches!(reply, Err(ForwardError::NoAnswer { .. })));
}

#[tokio::test]
async fn a_server_that_cannot_find_out_does_not_displace_the_old_answer() {
    let server = Fake::honest(1).await;
    let (at, forwarder) = (server.at, asking(&[server.at]));
    forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
    server.stop().await;
    let code = ResponseCode::ServFail;
    let _server = Fake::start_at(at, move |question, _| vec![bytes(&empty(question, code))]).await;
    for _ in 0..2 {
        pass(Duration::from_secs(100)).await;
        let reply = forwarder.resolve(ASKER, &query("a.test.")).await.unwrap();
        assert_eq!((last(&reply), reply.answers[0].ttl), (1, 30));
    }
}

#[tokio::test]
async fn those_who_ask_the_same_at_once_share_one_question() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    let query = query("a.test.");
    let replies = join_all((0..20).map(|_| forwarder.resolve(ASKER, &query))).await;
    assert!(
        replies
            .iter()
            .all(|reply| last(reply.as_ref().unwrap()) == 1)
    );
    assert_eq!(server.count(), 1);
    assert!(forwarder.inner.state.lock().flights.is_empty());
}

#[tokio::test]
async fn when_the_first_goes_away_the_others_get_their_answer() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    let query = query("a.test.");
    let mut first = Box::pin(forwarder.resolve(ASKER, &query));
    let mut second = pin!(forwarder.resolve(ASKER, &query));
    assert!(poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(last(&second.await.unwrap()), 1);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn when_all_go_away_nothing_is_left() {
    let server = Fake::silent().await;
    let forwarder = asking(&[server.at]);
    let query = query("a.test.");
    {
        let mut first = pin!(forwarder.resolve(ASKER, &query));
        let mut second = pin!(forwarder.resolve(ASKER, &query));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        assert_eq!(forwarder.inner.state.lock().flights.len(), 1);
    }
    assert!(forwarder.inner.state.lock().flights.is_empty());
    assert_eq!(forwarder.inner.places.taken_in_all(), (0, 0));
}

#[tokio::test]
async fn one_asker_waits_for_so_many_and_not_more() {
    let server = Fake::silent().await;
    let forwarder = asking(&[server.at]);
    let queries: Vec<_> = (0..=ASKER_MAX)
        .map(|number| query(&format!("{number}.test.")))
        .collect();
    let (beyond, queries) = queries.split_last().unwrap();
    let mut waiting = Vec::new();
    for query in queries {
        let mut one = Box::pin(forwarder.resolve(ASKER, query));
        assert!(poll!(&mut one).is_pending());
        waiting.push(one);
    }
    let mut refused = pin!(forwarder.resolve(ASKER, beyond));
    let refused = match poll!(&mut refused) {
        std::task::Poll::Ready(refused) => refused.unwrap_err().to_string(),
        std::task::Poll::Pending => panic!("waits"),
    };
    assert_eq!(refused, "192.0.2.7 waits for 150 answers already");
    assert_eq!(forwarder.counts().refused, 1);
    // Another is not concerned, and a place is free again when one goes away.
    let other = Ipv4Addr::new(192, 0, 2, 8).into();
    assert!(poll!(pin!(forwarder.resolve(other, beyond))).is_pending());
    waiting.pop();
    assert!(poll!(pin!(forwarder.resolve(ASKER, beyond))).is_pending());
}

#[tokio::test]
async fn all_askers_wait_for_so_many_and_not_more() {
    let server = Fake::silent().await;
    let forwarder = asking(&[server.at]);
    let query = query("a.test.");
    let askers = (0..=TOTAL_MAX).map(|number| {
        let number = u8::try_from(number / 100).unwrap();
        IpAddr::from([192, 0, 2, number])
    });
    let askers: Vec<_> = askers.collect();
    let (beyond, askers) = askers.split_last().unwrap();
    let mut waiting = Vec::new();
    for asker in askers {
        let mut one = Box::pin(forwarder.resolve(*asker, &query));
        assert!(poll!(&mut one).is_pending());
        waiting.push(one);
    }
    let refused = forwarder.resolve(*beyond, &query).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "1000 questions wait for answers already"
    );
    drop(waiting);
    assert_eq!(forwarder.inner.places.taken_in_all(), (0, 0));
}

#[tokio::test]
async fn what_is_remembered_is_given_to_one_who_waits_for_too_many() {
    let server = Fake::start(|question, _| {
        let known = question.queries[0].name == name("known.test.");
        let answer = known.then(|| bytes(&address(question, 1)));
        answer.into_iter().collect()
    });
    let server = server.await;
    let forwarder = asking(&[server.at]);
    let (known, other) = (query("known.test."), query("other.test."));
    forwarder.resolve(ASKER, &known).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..ASKER_MAX {
        let mut one = Box::pin(forwarder.resolve(ASKER, &other));
        assert!(poll!(&mut one).is_pending());
        waiting.push(one);
    }
    assert_eq!(last(&forwarder.resolve(ASKER, &known).await.unwrap()), 1);
}

#[tokio::test]
async fn other_servers_are_asked_anew_and_the_same_are_not() {
    let (first, second) = (Fake::honest(1).await, Fake::honest(2).await);
    let forwarder = asking(&[first.at]);
    let ask = async || last(&forwarder.resolve(ASKER, &query("a.test.")).await.unwrap());
    assert_eq!(ask().await, 1);
    forwarder.set(settings(&[first.at]));
    assert_eq!((ask().await, first.count()), (1, 1));
    forwarder.set(settings(&[second.at]));
    assert_eq!((ask().await, second.count()), (2, 1));
}

#[tokio::test]
async fn what_former_servers_say_is_not_remembered() {
    let (former, new) = (Fake::honest(1).await, Fake::honest(2).await);
    let forwarder = asking(&[former.at]);
    let query = query("a.test.");
    let mut under_way = pin!(forwarder.resolve(ASKER, &query));
    assert!(poll!(&mut under_way).is_pending());
    forwarder.set(settings(&[new.at]));
    assert_eq!(last(&under_way.await.unwrap()), 1);
    let reply = forwarder.resolve(ASKER, &query).await;
    assert_eq!(last(&reply.unwrap()), 2);
}
