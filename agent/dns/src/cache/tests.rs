use std::net::Ipv4Addr;

use hickory_proto::rr::{
    Name,
    rdata::{A, CNAME, SOA, TXT},
};

use super::*;

const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn query(text: &str) -> Arc<Query> {
    let query = Query {
        name: name(text),
        record_type: RecordType::A,
        dnssec_ok: false,
        checking_disabled: false,
    };
    Arc::new(query.normalized())
}

fn address(of: &str, ttl: u32) -> Record {
    Record::from_rdata(name(of), ttl, RData::A(A(Ipv4Addr::new(192, 0, 2, 1))))
}

fn soa(ttl: u32, minimum: u32) -> Record {
    let soa = SOA::new(name("ns.test."), name("admin.test."), 1, 2, 3, 4, minimum);
    Record::from_rdata(name("test."), ttl, RData::SOA(soa))
}

fn reply(answers: Vec<Record>) -> Reply {
    Reply {
        code: ResponseCode::NoError,
        answers,
        authorities: vec![],
        additionals: vec![],
        authentic: true,
    }
}

fn negative(code: ResponseCode, authorities: Vec<Record>) -> Reply {
    Reply {
        code,
        authorities,
        ..reply(vec![])
    }
}

fn after(start: Instant, secs: u64) -> Instant {
    start + Duration::from_secs(secs)
}

fn ttls(reply: &Reply) -> Vec<u32> {
    reply.records().map(|record| record.ttl).collect()
}

/// TTLs of what is found fresh.
fn fresh(cache: &Cache, query: &Query, now: Instant) -> Option<Vec<u32>> {
    match cache.get(query, now)? {
        Found::Fresh(reply) => Some(ttls(&reply)),
        Found::Stale(_) => None,
    }
}

#[test]
fn ttls_count_down_until_the_least_is_over() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    let answers = vec![address("a.test.", 10), address("a.test.", 20)];
    let told = cache.put(POD, &query, reply(answers), start);
    assert_eq!(ttls(&told), [10, 10]);
    assert_eq!(fresh(&cache, &query, start), Some(vec![10, 10]));
    assert_eq!(fresh(&cache, &query, after(start, 4)), Some(vec![6, 6]));
    assert_eq!(fresh(&cache, &query, after(start, 9)), Some(vec![1, 1]));
    assert_eq!(cache.get(&query, after(start, 10)), None);
}

#[test]
fn an_answer_is_fresh_for_half_a_minute_at_most() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    let told = cache.put(POD, &query, reply(vec![address("a.test.", 3600)]), start);
    assert_eq!(ttls(&told), [30]);
    assert_eq!(fresh(&cache, &query, after(start, 29)), Some(vec![1]));
    assert_eq!(cache.get(&query, after(start, 30)), None);
}

#[test]
fn what_is_found_is_what_was_put() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    let text = RData::TXT(TXT::new(vec!["v=1".to_owned(), "x".repeat(255)]));
    let put = Reply {
        additionals: vec![Record::from_rdata(name("b.test."), 30, text)],
        authorities: vec![soa(30, 30)],
        ..reply(vec![address("a.test.", 30)])
    };
    cache.put(POD, &query, put.clone(), start);
    assert_eq!(cache.get(&query, start), Some(Found::Fresh(put)));
}

#[test]
fn questions_differ_by_type_do_and_cd_and_not_by_case() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    cache.put(POD, &query, reply(vec![address("a.test.", 30)]), start);
    let upper = Query {
        name: name("A.TEST"),
        ..(*query).clone()
    };
    assert!(cache.get(&upper.normalized(), start).is_some());
    let other_type = Query {
        record_type: RecordType::AAAA,
        ..(*query).clone()
    };
    assert_eq!(cache.get(&other_type, start), None);
    let signed = Query {
        dnssec_ok: true,
        ..(*query).clone()
    };
    assert_eq!(cache.get(&signed, start), None);
    let unchecked = Query {
        checking_disabled: true,
        ..(*query).clone()
    };
    assert_eq!(cache.get(&unchecked, start), None);
}

#[test]
fn negative_answers_live_as_long_as_their_soa_says() {
    /// The reply, and for how many seconds it is fresh.
    fn check(put: &Reply, secs: u64) {
        let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
        cache.put(POD, &query, put.clone(), start);
        if let Some(last) = secs.checked_sub(1) {
            let found = cache.get(&query, after(start, last));
            assert!(matches!(found, Some(Found::Fresh(_))), "{put:?}");
        }
        assert_eq!(cache.get(&query, after(start, secs)), None, "{put:?}");
    }
    let (none, no_name) = (ResponseCode::NoError, ResponseCode::NXDomain);
    let alias = RData::CNAME(CNAME(name("b.test.")));
    let alias = Record::from_rdata(name("a.test."), 60, alias);
    for code in [none, no_name] {
        check(&negative(code, vec![soa(60, 3)]), 3);
        check(&negative(code, vec![soa(2, 60)]), 2);
        check(&negative(code, vec![soa(60, 60)]), 5);
        check(&negative(code, vec![soa(60, 0)]), 0);
        check(&negative(code, vec![]), 0);
        let of_alias = Reply {
            answers: vec![alias.clone()],
            ..negative(code, vec![soa(60, 60)])
        };
        check(&of_alias, 5);
    }
    check(&reply(vec![alias]), 0);
}

#[test]
fn a_negative_answer_tells_how_long_it_lives() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    let put = negative(ResponseCode::NXDomain, vec![soa(60, 4)]);
    assert_eq!(ttls(&cache.put(POD, &query, put, start)), [4]);
    assert_eq!(fresh(&cache, &query, after(start, 1)), Some(vec![3]));
}

#[test]
fn a_ttl_of_zero_is_not_remembered_and_ends_the_answer_before() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    cache.put(POD, &query, reply(vec![address("a.test.", 30)]), start);
    cache.put(POD, &query, reply(vec![address("a.test.", 0)]), start);
    assert_eq!(cache.get(&query, start), None);
    assert_eq!(cache.stale(&query, start), None);
    assert_eq!((cache.shares.bytes(), cache.shares.len()), (0, 0));
}

#[test]
fn a_failure_is_repeated_for_a_second() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
        cache.put(POD, &query, negative(code, vec![]), start);
        let found = cache.get(&query, start + Duration::from_millis(999));
        assert_eq!(found, Some(Found::Fresh(negative(code, vec![]))));
        assert_eq!(cache.get(&query, after(start, 1)), None);
        assert_eq!(cache.stale(&query, after(start, 1)), None);
    }
}

#[test]
fn what_is_stale_is_given_for_an_hour_with_a_ttl_of_its_own() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    cache.put(POD, &query, reply(vec![address("a.test.", 10)]), start);
    let late = after(start, 10 + 3599);
    assert_eq!(cache.get(&query, late), None);
    let stale = cache.stale(&query, late).unwrap();
    assert_eq!((ttls(&stale), stale.authentic), (vec![30], false));
    assert_eq!(cache.stale(&query, after(start, 10 + 3600)), None);
    assert_eq!(cache.get(&query, after(start, 10 + 3600)), None);
}

#[test]
fn what_is_stale_is_repeated_for_a_moment_without_asking() {
    let (mut cache, start, query) = (Cache::new(), Instant::now(), query("a.test."));
    cache.put(POD, &query, reply(vec![address("a.test.", 10)]), start);
    let stale = cache.stale(&query, after(start, 20)).unwrap();
    let found = cache.get(&query, after(start, 24));
    assert_eq!(found, Some(Found::Stale(stale)));
    assert_eq!(cache.get(&query, after(start, 25)), None);
}

#[test]
fn the_oldest_go_first_when_there_are_too_many() {
    let limits = Limits {
        bytes: 1024 * 1024,
        entries: 2,
    };
    let (mut cache, now) = (Cache::with_limits(limits), Instant::now());
    let [a, b, c] = ["a.test.", "b.test.", "c.test."].map(query);
    for query in [&a, &b, &a, &c] {
        cache.put(POD, query, reply(vec![address("a.test.", 30)]), now);
    }
    let there = [&a, &b, &c].map(|query| cache.get(query, now).is_some());
    assert_eq!(there, [true, false, true]);
}

#[test]
fn bytes_are_bounded() {
    let (mut cache, now) = (Cache::new(), Instant::now());
    for number in 0..100 {
        let text = TXT::new(vec!["x".repeat(255); 100]);
        let record = Record::from_rdata(name("a.test."), 30, RData::TXT(text));
        let query = Query {
            record_type: RecordType::TXT,
            ..(*query(&format!("{number}.test."))).clone()
        };
        cache.put(POD, &Arc::new(query), reply(vec![record]), now);
        let held: usize = cache.entries.iter().map(|(q, entry)| size(q, entry)).sum();
        assert_eq!(held, cache.shares.bytes());
        assert!(held <= LIMITS.bytes, "{held} bytes");
    }
    assert_eq!(cache.entries.len(), LIMITS.bytes / 26_000);
    assert_eq!(cache.shares.len(), cache.entries.len());
}

#[test]
fn what_is_larger_than_all_room_is_not_held() {
    let limits = Limits {
        bytes: OVERHEAD + 10,
        entries: 2,
    };
    let (mut cache, now) = (Cache::with_limits(limits), Instant::now());
    let query = query("a.test.");
    cache.put(POD, &query, reply(vec![address("a.test.", 30)]), now);
    assert_eq!(cache.get(&query, now), None);
    assert_eq!((cache.shares.bytes(), cache.shares.len()), (0, 0));
}

#[test]
fn what_does_not_fit_a_message_is_told_whole_and_not_held() {
    let (mut cache, now) = (Cache::new(), Instant::now());
    let text = TXT::new(vec!["x".repeat(255); 250]);
    let record = Record::from_rdata(name("a.test."), 30, RData::TXT(text));
    let query = Query {
        record_type: RecordType::TXT,
        ..(*query("a.test.")).clone()
    };
    let query = Arc::new(query);
    let long = reply(vec![record.clone(), record]);
    assert_eq!(cache.put(POD, &query, long.clone(), now), long);
    assert_eq!(cache.get(&query, now), None);
}

#[test]
fn who_asks_for_very_much_pushes_out_its_own() {
    let (mut cache, now) = (Cache::new(), Instant::now());
    let answer = || reply(vec![address("a.test.", 30)]);
    let few: Vec<_> = (0..100).map(|n| query(&format!("{n}.few.test."))).collect();
    for query in &few {
        cache.put(OTHER, query, answer(), now);
    }
    for number in 0..20_000 {
        cache.put(POD, &query(&format!("{number}.flood.test.")), answer(), now);
    }
    let there = |query: &Arc<Query>| cache.get(query, now).is_some();
    assert!(few.iter().all(there));
    assert!(there(&query("19999.flood.test.")) && !there(&query("0.flood.test.")));
    let (held, share) = (cache.shares.bytes(), LIMITS.bytes - 1024);
    assert!(held <= LIMITS.bytes && held > share, "{held}");
    // Who shares with another gets half, and no more.
    for number in 0..20_000 {
        cache.put(
            OTHER,
            &query(&format!("{number}.more.test.")),
            answer(),
            now,
        );
    }
    let of = |asker: IpAddr| {
        let own = cache.entries.iter().filter(|(_, one)| one.asker == asker);
        own.map(|(query, entry)| size(query, entry)).sum::<usize>()
    };
    let half = LIMITS.bytes / 2;
    for asker in [POD, OTHER] {
        assert!(of(asker).abs_diff(half) < 2048, "{}", of(asker));
    }
}
