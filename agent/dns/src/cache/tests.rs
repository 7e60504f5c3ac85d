use hickory_proto::rr::rdata::A;

use super::*;
use crate::testing::{authority, name};

fn query(text: &str) -> Query {
    Query {
        name: name(text),
        record_type: RecordType::A,
        dnssec_ok: false,
    }
}

fn reply(ttls: &[u32]) -> Arc<Reply> {
    let record =
        |ttl: &u32| Record::from_rdata(name("x.org."), *ttl, RData::A(A([192, 0, 2, 1].into())));
    Arc::new(Reply {
        code: ResponseCode::NoError,
        answers: ttls.iter().map(record).collect(),
        authorities: Vec::new(),
        additionals: Vec::new(),
    })
}

fn nothing(code: ResponseCode, is_told: bool) -> Arc<Reply> {
    Arc::new(Reply {
        code,
        answers: Vec::new(),
        authorities: if is_told {
            vec![authority()]
        } else {
            Vec::new()
        },
        additionals: Vec::new(),
    })
}

#[test]
fn an_answer_is_kept_for_as_long_as_it_says_up_to_a_bound() {
    let key = Key::of(&query("x.org."));
    for (reply, holds) in [
        (reply(&[300, 10]), 10),
        (reply(&[300]), 30),
        (reply(&[0]), 0),
        (nothing(ResponseCode::NXDomain, true), 5),
        (nothing(ResponseCode::NoError, true), 5),
        (nothing(ResponseCode::NXDomain, false), 0),
        (nothing(ResponseCode::ServFail, true), 0),
        (nothing(ResponseCode::Refused, true), 0),
    ] {
        let (mut cache, start) = (Cache::default(), Instant::now());
        cache.put(key.clone(), &reply, 100, start);
        let at = |secs: f64| start + Duration::from_secs_f64(secs);
        let is_there = |secs: f64| cache.fresh(&key, at(secs)).is_some();
        assert_eq!(is_there(0.0), holds > 0, "{reply:?}");
        assert_eq!(is_there((f64::from(holds) - 0.01).max(0.0)), holds > 0);
        assert!(!is_there(f64::from(holds)), "{reply:?}");
    }
}

#[test]
fn its_time_runs_out_while_it_is_kept() {
    let (mut cache, start) = (Cache::default(), Instant::now());
    let key = Key::of(&query("X.ORG."));
    cache.put(key, &reply(&[20, 300]), 100, start);
    let later = start + Duration::from_secs(8);
    let found = cache.fresh(&Key::of(&query("x.org.")), later).unwrap();
    let ttls: Vec<u32> = found.answers.iter().map(|record| record.ttl).collect();
    assert_eq!(ttls, [12, 12]);
    let mut signed = query("x.org.");
    signed.dnssec_ok = true;
    assert!(cache.fresh(&Key::of(&signed), later).is_none());
}

#[test]
fn a_stale_one_is_there_for_an_hour() {
    let (mut cache, start) = (Cache::default(), Instant::now());
    let key = Key::of(&query("x.org."));
    cache.put(key.clone(), &reply(&[10]), 100, start);
    let at = |secs| start + Duration::from_secs(secs);
    assert_eq!(cache.stale(&key, at(3609)).unwrap().answers[0].ttl, 30);
    assert!(cache.stale(&key, at(3610)).is_none());
}

#[test]
fn the_oldest_go_when_it_is_too_much() {
    let (mut cache, start) = (Cache::default(), Instant::now());
    let key = |number: usize| Key::of(&query(&format!("n{number}.org.")));
    for number in 0..5000 {
        cache.put(key(number), &reply(&[30]), 1000, start);
        cache.put(key(0), &reply(&[30]), 1000, start);
    }
    assert!(cache.bytes <= BYTES);
    assert_eq!(cache.entries.len(), cache.order.len());
    assert_eq!(cache.entries.len(), BYTES / (1000 + BYTES_BESIDE));
    assert!(cache.fresh(&key(0), start).is_some(), "it was put in again");
    assert!(cache.fresh(&key(4999), start).is_some());
    assert!(cache.fresh(&key(1), start).is_none());
}
