//! With real sockets, on 127.0.0.1 only.

mod answers;
mod fake;
mod remembering;
mod servers;

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use hickory_proto::{
    op::{Message, ResponseCode},
    rr::{Name, RData, Record, RecordType, rdata::A, rdata::SOA},
};

use super::*;

const ASKER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn query(text: &str) -> Query {
    Query {
        name: name(text),
        record_type: RecordType::A,
        dnssec_ok: false,
        checking_disabled: false,
    }
}

fn settings(servers: &[SocketAddr]) -> Settings {
    Settings {
        servers: servers.to_vec(),
        ..Settings::default()
    }
}

fn asking(servers: &[SocketAddr]) -> Forwarder {
    Forwarder::new(settings(servers))
}

/// An honest answer to `question`: 192.0.2.`last`.
fn address(question: &Message, last: u8) -> Message {
    let mut answer = empty(question, ResponseCode::NoError);
    let address = RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
    let name = question.queries[0].name.clone();
    answer.add_answer(Record::from_rdata(name, 20, address));
    answer
}

/// An answer without records.
fn empty(question: &Message, code: ResponseCode) -> Message {
    let id = question.metadata.id;
    let mut answer = Message::error_msg(id, question.metadata.op_code, code);
    answer.add_queries(question.queries.clone());
    answer
}

/// An answer that there is none, for `secs`.
fn negative(question: &Message, code: ResponseCode, secs: u32) -> Message {
    let mut answer = empty(question, code);
    let soa = SOA::new(name("ns.test."), name("admin.test."), 1, 2, 3, 4, secs);
    answer.add_authority(Record::from_rdata(name("test."), 60, RData::SOA(soa)));
    answer
}

fn bytes(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

/// The last number of the address in a reply.
fn last(reply: &Reply) -> u8 {
    match &reply.answers[0].data {
        RData::A(address) => address.0.octets()[3],
        other => panic!("{other:?}"),
    }
}

/// Moves the clock without waiting. Nothing may be under way.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
