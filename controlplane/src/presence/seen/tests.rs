use super::*;

const OWN: &str = "apiserver-own";

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([198, 18, 0, last], 6443))
}

/// One that looks, and its clock.
struct Watcher {
    seen: Seen,
    now: Instant,
}

impl Watcher {
    fn new() -> Self {
        Self {
            seen: Seen::new(OWN.to_owned(), Some(at(1))),
            now: Instant::now(),
        }
    }

    /// Looks after `secs` seconds: names, versions, and the last number of addresses.
    fn look(&mut self, secs: u64, found: &[(&str, u32, u8)], led_to: &[u8]) -> Vec<SocketAddr> {
        self.now += Duration::from_secs(secs);
        let found: Vec<Found> = found
            .iter()
            .map(|(name, version, last)| Found {
                name: (*name).to_owned(),
                host: String::new(),
                address: (*last > 0).then(|| at(*last)),
                renewed: Revision(u64::from(*version)),
            })
            .collect();
        let led_to = led_to.iter().map(|last| at(*last)).collect();
        self.seen.look(&found, &led_to, self.now);
        self.seen.alive(self.now)
    }
}

#[test]
fn who_renews_is_alive_and_who_does_not_is_gone_after_a_while() {
    let mut watcher = Watcher::new();
    assert_eq!(watcher.look(0, &[(OWN, 1, 1)], &[]), [at(1)]);
    assert_eq!(
        watcher.look(2, &[(OWN, 1, 1), ("b", 2, 2)], &[]),
        [at(1), at(2)]
    );
    for n in 3..8 {
        let found = [(OWN, n, 1), ("b", n, 2)];
        assert_eq!(watcher.look(10, &found, &[]), [at(1), at(2)], "{n}");
    }
    assert_eq!(
        watcher.look(10, &[(OWN, 20, 1), ("b", 7, 2)], &[]),
        [at(1), at(2)]
    );
    assert_eq!(watcher.look(5, &[(OWN, 21, 1), ("b", 7, 2)], &[]), [at(1)]);
    assert!(watcher.seen.others().is_empty());
    assert_eq!(watcher.look(60, &[(OWN, 30, 1), ("b", 7, 2)], &[]), [at(1)]);
    // It is back, under another address.
    assert_eq!(
        watcher.look(2, &[(OWN, 30, 1), ("b", 9, 3)], &[]),
        [at(1), at(3)]
    );
}

#[test]
fn one_that_stops_goes_at_once() {
    let mut watcher = Watcher::new();
    watcher.look(0, &[(OWN, 1, 1)], &[]);
    watcher.look(2, &[(OWN, 1, 1), ("b", 2, 2)], &[]);
    assert_eq!(watcher.look(2, &[(OWN, 1, 1), ("b", 3, 0)], &[]), [at(1)]);
    assert_eq!(watcher.look(2, &[(OWN, 1, 1)], &[]), [at(1)]);
}

#[test]
fn a_new_server_believes_who_is_led_to_and_no_old_key() {
    let mut watcher = Watcher::new();
    let found = [("dead", 3, 4), ("b", 5, 2)];
    assert_eq!(watcher.look(0, &found, &[2]), [at(1), at(2)]);
    // Nobody renews `b` after all.
    let found = [(OWN, 8, 1), ("dead", 3, 4), ("b", 5, 2)];
    assert_eq!(watcher.look(14, &found, &[]), [at(1), at(2)]);
    assert_eq!(watcher.look(1, &found, &[]), [at(1)]);
}

#[test]
fn who_sees_nothing_holds_nobody_to_be_gone() {
    let mut watcher = Watcher::new();
    let before = [(OWN, 1, 1), ("b", 2, 2)];
    watcher.look(0, &[(OWN, 1, 1)], &[]);
    watcher.look(2, &before, &[]);
    for _ in 0..20 {
        assert_eq!(watcher.look(10, &before, &[]), [at(1), at(2)]);
    }
    // Etcd is there again, and this server was the first to renew.
    assert_eq!(
        watcher.look(2, &[(OWN, 9, 1), ("b", 2, 2)], &[]),
        [at(1), at(2)]
    );
    assert_eq!(
        watcher.look(10, &[(OWN, 10, 1), ("b", 11, 2)], &[]),
        [at(1), at(2)]
    );
    assert_eq!(
        watcher.look(10, &[(OWN, 12, 1), ("b", 11, 2)], &[]),
        [at(1), at(2)]
    );
    assert_eq!(
        watcher.look(10, &[(OWN, 13, 1), ("b", 11, 2)], &[]),
        [at(1)]
    );
}

#[test]
fn a_key_that_nobody_renews_is_forgotten_after_an_hour() {
    let mut watcher = Watcher::new();
    watcher.look(0, &[(OWN, 1, 1), ("dead", 3, 4), ("b", 2, 2)], &[2]);
    watcher.look(1800, &[(OWN, 2, 1), ("dead", 3, 4), ("b", 4, 2)], &[]);
    assert_eq!(watcher.seen.forgotten(watcher.now), []);
    watcher.look(1801, &[(OWN, 3, 1), ("dead", 3, 4), ("b", 4, 2)], &[]);
    let forgotten = watcher.seen.forgotten(watcher.now);
    assert_eq!(forgotten, [("dead".to_owned(), Revision(3))]);
    // Who sees nothing forgets nobody.
    watcher.look(3600, &[(OWN, 3, 1), ("dead", 3, 4), ("b", 4, 2)], &[]);
    assert_eq!(watcher.seen.forgotten(watcher.now), []);
}
