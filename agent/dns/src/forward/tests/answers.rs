//! Which answers count.

use std::{collections::BTreeSet, sync::OnceLock};

use hickory_proto::{
    op::{MessageType, OpCode},
    rr::{DNSClass, rdata::TXT},
};
use tokio::net::UdpSocket;

use super::{
    fake::{Fake, Over},
    *,
};

/// The honest answer as `forge` changes it, and then the honest one: only the second counts, and
/// nobody waits long for it.
async fn ignored(forge: impl Fn(&mut Message) + Send + Sync + 'static) {
    let server = Fake::start(move |question, _| {
        let mut forged = address(question, 66);
        forge(&mut forged);
        vec![bytes(&forged), bytes(&address(question, 1))]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert_eq!(last(&reply.unwrap()), 1);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn an_honest_answer_is_given() {
    let server = Fake::start(|question, _| {
        let mut answer = address(question, 1);
        answer.metadata.authentic_data = true;
        answer.set_edns(question.edns.clone().unwrap());
        vec![bytes(&answer)]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    let reply = reply.unwrap();
    assert_eq!((last(&reply), reply.code), (1, ResponseCode::NoError));
    assert_eq!((reply.answers.len(), reply.additionals.len()), (1, 0));
    assert!(reply.authentic);
}

#[tokio::test]
async fn a_question_has_edns_and_passes_do_and_cd_on() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    let all = [(false, false), (true, false), (true, true)];
    for (dnssec_ok, checking_disabled) in all {
        let query = Query {
            name: name("A.Test"),
            dnssec_ok,
            checking_disabled,
            ..query("")
        };
        forwarder.resolve(ASKER, &query).await.unwrap();
    }
    let asked = server.asked();
    let flags = asked.iter().map(|(question, _)| {
        let edns = question.edns.as_ref().unwrap();
        assert_eq!(edns.max_payload(), 1232);
        let checking_disabled = question.metadata.checking_disabled;
        (edns.flags().dnssec_ok, checking_disabled)
    });
    assert_eq!(flags.collect::<Vec<_>>(), all);
    for (question, _) in &asked {
        assert!(question.metadata.recursion_desired);
        assert_eq!(question.queries[0].name.to_string(), "a.test.");
    }
}

#[tokio::test]
async fn each_question_has_an_id_and_a_port_of_its_own() {
    let server = Fake::honest(1).await;
    let forwarder = asking(&[server.at]);
    for number in 0..20 {
        let query = query(&format!("{number}.test."));
        forwarder.resolve(ASKER, &query).await.unwrap();
    }
    let asked = server.asked();
    let ids: BTreeSet<_> = asked.iter().map(|(asked, _)| asked.metadata.id).collect();
    let ports: BTreeSet<_> = server.askers.lock().iter().map(SocketAddr::port).collect();
    assert!(ids.len() > 15, "{ids:?}");
    assert!(ports.len() > 15, "{ports:?}");
}

#[tokio::test]
async fn a_wrong_id_is_ignored() {
    ignored(|forged| forged.metadata.id ^= 1).await;
}

#[tokio::test]
async fn a_wrong_name_is_ignored() {
    ignored(|forged| forged.queries[0].name = name("b.test.")).await;
}

#[tokio::test]
async fn a_wrong_type_is_ignored() {
    ignored(|forged| forged.queries[0].query_type = RecordType::AAAA).await;
}

#[tokio::test]
async fn a_wrong_class_is_ignored() {
    ignored(|forged| forged.queries[0].query_class = DNSClass::CH).await;
}

#[tokio::test]
async fn a_question_is_no_answer() {
    ignored(|forged| forged.metadata.message_type = MessageType::Query).await;
}

#[tokio::test]
async fn another_operation_is_ignored() {
    ignored(|forged| forged.metadata.op_code = OpCode::Status).await;
}

#[tokio::test]
async fn an_answer_without_or_with_two_questions_is_ignored() {
    ignored(|forged| forged.queries.clear()).await;
    ignored(|forged| forged.queries.push(forged.queries[0].clone())).await;
}

#[tokio::test]
async fn a_wrong_truncated_answer_is_ignored() {
    ignored(|forged| {
        forged.metadata.truncation = true;
        forged.metadata.id ^= 1;
    })
    .await;
}

#[tokio::test]
async fn garbage_is_ignored() {
    let server = Fake::start(|question, _| {
        let honest = bytes(&address(question, 1));
        // Counts of records that are not there.
        let mut cut = honest.clone();
        cut.truncate(20);
        let mut counts = honest[..12].to_vec();
        counts[4..12].fill(0xff);
        vec![vec![], vec![0xff; 300], cut, counts, honest]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert_eq!(last(&reply.unwrap()), 1);
    assert_eq!(server.count(), 1);
}

/// Nothing better would come, and the server is well.
#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_the_try() {
    let server = Fake::start(|question, _| {
        let mut answer = bytes(&address(question, 1));
        if question.queries[0].name == name("a.test.") {
            answer.truncate(30);
        }
        vec![answer]
    });
    let (server, other) = (server.await, Fake::honest(2).await);
    let forwarder = asking(&[server.at, other.at]);
    for (text, from) in [("a.test.", 2), ("b.test.", 1)] {
        let reply = forwarder.resolve(ASKER, &query(text)).await;
        assert_eq!(last(&reply.unwrap()), from);
    }
    assert_eq!((server.count(), other.count()), (2, 1));
}

#[tokio::test]
async fn what_is_cut_within_a_record_is_asked_over_tcp() {
    let server = Fake::start(|question, over| {
        let mut answer = address(question, 1);
        answer.metadata.truncation = over == Over::Udp;
        let mut answer = bytes(&answer);
        if over == Over::Udp {
            answer.truncate(30);
        }
        vec![answer]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert_eq!(last(&reply.unwrap()), 1);
}

#[tokio::test]
async fn case_does_not_matter_in_an_answer() {
    let server = Fake::start(|question, _| {
        let mut answer = address(question, 1);
        answer.queries[0].name = name("A.TeSt.");
        vec![bytes(&answer)]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert_eq!(last(&reply.unwrap()), 1);
}

/// What the other sends is perfect but for where it comes from.
#[tokio::test]
async fn an_answer_from_elsewhere_is_ignored() {
    let server = Fake::silent().await;
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let forwarder = asking(&[server.at]);
    let query = query("a.test.");
    let mut answer = std::pin::pin!(forwarder.resolve(ASKER, &query));
    let mut sent = BTreeSet::new();
    let forge = async {
        loop {
            let asked = server.asked().into_iter().map(|(question, _)| question);
            let askers = server.askers.lock().clone();
            for (question, asker) in asked.zip(askers) {
                if sent.insert(asker) {
                    let forged = bytes(&address(&question, 66));
                    other.send_to(&forged, asker).await.unwrap();
                }
            }
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::select! {
        answer = &mut answer => answer,
        () = forge => unreachable!(),
    };
    assert!(matches!(answer, Err(ForwardError::NoAnswer { .. })));
    assert_eq!(sent.len(), server.count());
}

#[tokio::test]
async fn what_is_truncated_is_asked_over_tcp() {
    let server = Fake::start(|question, over| {
        let mut answer = empty(question, ResponseCode::NoError);
        match over {
            Over::Udp => answer.metadata.truncation = true,
            // Some 60 KB.
            Over::Tcp => {
                let text = RData::TXT(TXT::new(vec!["x".repeat(255); 4]));
                let record = Record::from_rdata(question.queries[0].name.clone(), 20, text);
                answer.insert_answers(vec![record; 58]);
            }
        }
        vec![bytes(&answer)]
    });
    let server = server.await;
    let forwarder = asking(&[server.at]);
    let query = Query {
        record_type: RecordType::TXT,
        ..query("a.test.")
    };
    let reply = forwarder.resolve(ASKER, &query).await.unwrap();
    assert_eq!(reply.answers.len(), 58);
    // And from the cache.
    assert_eq!(forwarder.resolve(ASKER, &query).await.unwrap(), reply);
    let over: Vec<_> = server.asked().iter().map(|(_, over)| *over).collect();
    assert_eq!(over, [Over::Udp, Over::Tcp]);
}

/// Truncated over UDP; over TCP what `answer` makes of it. Returns what is said of the server.
async fn over_tcp(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> String {
    let server = Fake::start(move |question, over| {
        let mut truncated = empty(question, ResponseCode::NoError);
        truncated.metadata.truncation = true;
        match over {
            Over::Udp => vec![bytes(&truncated)],
            Over::Tcp => vec![answer(question)],
        }
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    let error = reply.unwrap_err().to_string();
    assert_eq!(server.count(), 2);
    let said = format!("nobody has answered a.test. A: {}: ", server.at);
    error.strip_prefix(&said).unwrap().to_owned()
}

#[tokio::test]
async fn over_tcp_the_same_answers_count() {
    let mismatch = "the answer over TCP is of another question or not whole";
    let wrong_id = over_tcp(|question| {
        let mut answer = address(question, 66);
        answer.metadata.id ^= 1;
        bytes(&answer)
    });
    assert_eq!(wrong_id.await, mismatch);
    let wrong_name = over_tcp(|question| {
        let mut answer = address(question, 66);
        answer.queries[0].name = name("b.test.");
        bytes(&answer)
    });
    assert_eq!(wrong_name.await, mismatch);
    let truncated = over_tcp(|question| {
        let mut answer = address(question, 66);
        answer.metadata.truncation = true;
        bytes(&answer)
    });
    assert_eq!(truncated.await, mismatch);
    let cut = over_tcp(|question| {
        let mut answer = bytes(&address(question, 66));
        answer.truncate(30);
        answer
    });
    let cut = cut.await;
    assert!(cut.starts_with("read the answer: "), "{cut}");
}

/// The id that it knows ends nothing: the socket of the next try is another.
#[tokio::test]
async fn ids_are_not_used_again() {
    let first: OnceLock<u16> = OnceLock::new();
    let server = Fake::start(move |question, _| {
        let mut answer = address(question, 66);
        answer.metadata.id = *first.get_or_init(|| !question.metadata.id);
        vec![bytes(&answer)]
    });
    let server = server.await;
    let reply = asking(&[server.at]).resolve(ASKER, &query("a.test.")).await;
    assert!(matches!(reply, Err(ForwardError::NoAnswer { .. })));
    assert!(server.count() >= 4, "{}", server.count());
}
