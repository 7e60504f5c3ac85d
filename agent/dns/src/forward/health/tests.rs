use super::*;

fn server(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 53).into()
}

fn after(start: Instant, secs: u64) -> Instant {
    start + Duration::from_secs(secs)
}

#[test]
fn servers_that_are_well_are_asked_as_they_are_given() {
    let servers = [3, 1, 2].map(server);
    assert_eq!(Health::default().order(&servers, Instant::now()), servers);
}

#[test]
fn one_that_has_failed_is_asked_last_for_a_second() {
    let (mut health, start) = (Health::default(), Instant::now());
    let [a, b, c] = [1, 2, 3].map(server);
    assert_eq!(health.failed(a, start), Some(Duration::from_secs(1)));
    assert_eq!(health.order(&[a, b, c], start), [b, c, a]);
    assert_eq!(health.order(&[a, b, c], after(start, 1)), [a, b, c]);
}

#[test]
fn of_those_that_have_failed_the_first_to_come_back_is_first() {
    let (mut health, start) = (Health::default(), Instant::now());
    let [a, b] = [1, 2].map(server);
    health.failed(b, start);
    health.failed(a, start + Duration::from_millis(500));
    let now = start + Duration::from_millis(600);
    assert_eq!(health.order(&[a, b], now), [b, a]);
}

#[test]
fn pauses_double_up_to_a_minute() {
    let (mut health, mut now) = (Health::default(), Instant::now());
    let a = server(1);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let pause = health.failed(a, now).unwrap();
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn failures_within_a_pause_are_one() {
    let (mut health, start) = (Health::default(), Instant::now());
    let a = server(1);
    assert!(health.failed(a, start).is_some());
    assert_eq!(health.failed(a, start), None);
    let next = health.failed(a, after(start, 1));
    assert_eq!(next, Some(Duration::from_secs(2)));
}

#[test]
fn one_question_tries_a_server_that_comes_back() {
    let (mut health, start) = (Health::default(), Instant::now());
    let [a, b] = [1, 2].map(server);
    health.failed(a, start);
    let now = after(start, 1);
    assert_eq!(health.order(&[a, b], now), [a, b]);
    assert_eq!(health.order(&[a, b], now), [b, a]);
    assert_eq!(health.failed(a, now), Some(Duration::from_secs(2)));
}

#[test]
fn an_answer_heals() {
    let (mut health, start) = (Health::default(), Instant::now());
    let [a, b] = [1, 2].map(server);
    health.failed(a, start);
    assert!(health.healed(a));
    assert!(!health.healed(a));
    assert_eq!(health.order(&[a, b], start), [a, b]);
    assert_eq!(health.failed(a, start), Some(Duration::from_secs(1)));
}

#[test]
fn those_asked_no_more_are_forgotten() {
    let (mut health, start) = (Health::default(), Instant::now());
    let [a, b] = [1, 2].map(server);
    health.failed(a, start);
    health.failed(b, start);
    health.retain(&BTreeSet::from([b]));
    assert_eq!(health.order(&[b, a], start), [a, b]);
}
