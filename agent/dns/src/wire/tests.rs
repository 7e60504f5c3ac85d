use hickory_proto::{
    op::Message,
    rr::{Name, RData, RecordType, rdata::A},
};

use super::*;
use crate::testing::request;

const NAME: &str = "web.shop.svc.cluster.local.";

fn bytes(change: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = request(NAME, RecordType::A);
    change(&mut message);
    message.to_bytes().unwrap()
}

fn code(bytes: &[u8]) -> ResponseCode {
    match read(bytes) {
        Err(Unread::Error(answer)) => {
            let answer = Message::from_vec(&answer).unwrap();
            assert_eq!(answer.metadata.id, 7);
            assert_eq!(answer.metadata.message_type, MessageType::Response);
            answer.metadata.response_code
        }
        other => panic!("{other:?}"),
    }
}

fn many(count: u8) -> Answer {
    let addresses = (0..count).map(|last| RData::A(A([10, 0, 0, last].into())));
    let name = Name::from_ascii(NAME).unwrap();
    Answer {
        answers: addresses
            .map(|data| Record::from_rdata(name.clone(), 5, data))
            .collect(),
        ..Answer::default()
    }
}

#[test]
fn what_is_no_question_is_told_so_or_dropped() {
    assert_eq!(read(b"").unwrap_err(), Unread::Drop);
    assert_eq!(read(&[0; 11]).unwrap_err(), Unread::Drop);
    // An answer, whatever is in it.
    let answer = bytes(|message| message.metadata.message_type = MessageType::Response);
    assert_eq!(read(&answer).unwrap_err(), Unread::Drop);
    let status = bytes(|message| message.metadata.op_code = OpCode::Status);
    assert_eq!(code(&status), ResponseCode::NotImp);
    let none = bytes(|message| message.queries.clear());
    assert_eq!(code(&none), ResponseCode::FormErr);
    let two = bytes(|message| message.queries.push(message.queries[0].clone()));
    assert_eq!(code(&two), ResponseCode::FormErr);
    let mut boast = bytes(|_| {});
    boast[4..6].fill(0xff);
    assert_eq!(code(&boast), ResponseCode::FormErr);
    let mut torn = bytes(|_| {});
    torn.truncate(20);
    assert_eq!(code(&torn), ResponseCode::FormErr);
    let chaos = bytes(|message| {
        message.queries[0].set_query_class(DNSClass::CH);
    });
    assert_eq!(code(&chaos), ResponseCode::Refused);
    let newer = bytes(|message| {
        let mut edns = Edns::new();
        edns.set_version(1);
        message.edns = Some(edns);
    });
    // 16 has two names.
    assert_eq!(code(&newer).high(), ResponseCode::BADVERS.high());
}

#[test]
fn a_datagram_is_as_long_as_its_reader_takes() {
    for (payload, expected) in [
        (None, 512),
        (Some(100), 512),
        (Some(900), 900),
        (Some(4096), 1232),
    ] {
        let asked = bytes(|message| {
            message.edns = payload.map(|payload| {
                let mut edns = Edns::new();
                edns.set_max_payload(payload);
                edns
            });
        });
        assert_eq!(read(&asked).unwrap().most_bytes(), expected);
    }
}

#[test]
fn what_is_too_long_is_cut_and_told_so() {
    let asked = read(&bytes(|_| {})).unwrap();
    let short = write(&asked, many(5), 512).unwrap();
    let short = Message::from_vec(&short).unwrap();
    assert_eq!((short.answers.len(), short.metadata.truncation), (5, false));
    for most in [512, 513, 900, 1232] {
        let cut = write(&asked, many(200), most).unwrap();
        assert!(cut.len() <= most && cut.len() + 16 > most, "{}", cut.len());
        let cut = Message::from_vec(&cut).unwrap();
        assert!(cut.metadata.truncation && !cut.answers.is_empty());
    }
    let mut courteous = many(5);
    courteous.additionals = many(200).answers;
    let bytes = write(&asked, courteous, 512).unwrap();
    let bytes = Message::from_vec(&bytes).unwrap();
    assert_eq!(
        (
            bytes.answers.len(),
            bytes.additionals.len(),
            bytes.metadata.truncation
        ),
        (5, 0, false)
    );
}

#[test]
fn a_request_does_not_say_that_its_answer_is_cut() {
    let asked = read(&bytes(|message| message.metadata.truncation = true)).unwrap();
    let whole = write(&asked, many(1), 512).unwrap();
    assert!(!Message::from_vec(&whole).unwrap().metadata.truncation);
}

/// Whatever comes: it is read or not, and nothing happens.
#[test]
fn garbage_is_read_to_its_end() {
    let whole = bytes(|message| message.edns = Some(Edns::new()));
    for cut in 0..whole.len() {
        crate::fuzzing::packet(&whole[..cut]);
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut turned = whole.clone();
            turned[at] ^= 1 << bit;
            crate::fuzzing::packet(&turned);
        }
    }
}
