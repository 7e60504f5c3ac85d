use std::collections::BTreeSet;

use super::*;

/// A node and its servers `a`, `b`..., in this node's own order, all given.
struct Ground {
    servers: Servers,
    now: Instant,
}

fn address(name: &str) -> ServerAddress {
    ServerAddress::of_text(&format!("{name}:6443")).expect(name)
}

/// Names of servers in the order of node `n`, so that `names[0]` is its first choice.
fn names(count: usize) -> Vec<ServerAddress> {
    let mut names: Vec<_> = (0..count).map(|k| address(&format!("s{k}"))).collect();
    names.sort_by_key(|one| weight("n", one));
    names
}

impl Ground {
    fn given(given: &[ServerAddress]) -> Self {
        Self::new(given, Vec::new())
    }

    fn new(given: &[ServerAddress], kept: Vec<ServerAddress>) -> Self {
        let now = Instant::now();
        let servers = Servers::new("n", given, kept, now).expect("one is given");
        Self { servers, now }
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
        self.servers.tick(self.now);
    }

    fn say(&mut self, server: &ServerAddress, answer: Answer) {
        self.servers.answered(server, answer, self.now);
    }

    fn all_ready(&mut self, servers: &[ServerAddress]) {
        for server in servers {
            self.say(server, Answer::Ready);
        }
    }

    fn list(&mut self, listed: &[ServerAddress]) {
        self.servers.set_listed(listed, self.now);
    }

    fn known(&self) -> BTreeSet<ServerAddress> {
        self.servers.addresses().cloned().collect()
    }

    /// The order in which a connection is tried.
    fn order(&self) -> Vec<ServerAddress> {
        let mut tried = Vec::new();
        while let Some(next) = self.servers.next(|one| tried.contains(one), self.now) {
            tried.push(next);
        }
        tried
    }

    fn unwanted(&self, among: &[ServerAddress]) -> Vec<ServerAddress> {
        let unwanted = among
            .iter()
            .filter(|one| self.servers.is_unwanted(one, self.now));
        unwanted.cloned().collect()
    }
}

#[test]
fn each_server_is_tried_once_and_the_better_before_the_worse() {
    let names = names(4);
    let mut ground = Ground::given(&names);
    assert_eq!(ground.order(), names);
    ground.servers.unreachable(&names[0], ground.now);
    for _ in 0..MISSES {
        ground.say(&names[1], Answer::NotReady);
    }
    ground.say(&names[3], Answer::Ready);
    let expected = [3, 2, 1, 0].map(|at: usize| names[at].clone());
    assert_eq!(ground.order(), expected, "in use, ready, not ready, failed");
}

#[test]
fn nodes_are_spread_over_the_servers() {
    let servers: Vec<_> = (1..=3).map(|k| address(&format!("198.18.0.{k}"))).collect();
    let first = |node: usize| {
        let servers = Servers::new(&format!("n{node}"), &servers, Vec::new(), Instant::now());
        servers.expect("given").current().clone()
    };
    let firsts: Vec<_> = (0..300).map(first).collect();
    for server in &servers {
        let share = firsts.iter().filter(|one| *one == server).count();
        assert!((60..=140).contains(&share), "{server} has {share} of 300");
    }
}

#[test]
fn one_answer_may_be_missing() {
    let names = names(2);
    for answer in [Answer::Silence, Answer::NotReady] {
        let mut ground = Ground::given(&names);
        ground.all_ready(&names);
        ground.say(&names[0], answer);
        assert_eq!(*ground.servers.current(), names[0]);
        assert_eq!(ground.unwanted(&names), []);
        ground.say(&names[0], answer);
        assert_eq!(*ground.servers.current(), names[1], "{answer:?}");
        assert_eq!(ground.unwanted(&names), names[..1]);
    }
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    for _ in 0..10 {
        ground.say(&names[0], Answer::Silence);
        ground.say(&names[0], Answer::Ready);
    }
    assert_eq!(
        *ground.servers.current(),
        names[0],
        "not one after the other"
    );
}

#[test]
fn one_that_cannot_be_connected_to_is_left_at_once() {
    let names = names(2);
    let mut ground = Ground::given(&names);
    ground.servers.unreachable(&names[0], ground.now);
    assert_eq!(ground.order(), [names[1].clone(), names[0].clone()]);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    ground.say(&names[0], Answer::Refusal);
    assert_eq!(*ground.servers.current(), names[1]);
}

#[test]
fn a_connection_does_not_make_a_stopped_server_well() {
    let names = names(2);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    for _ in 0..MISSES {
        ground.say(&names[0], Answer::Silence);
    }
    ground.servers.reached(&names[0], ground.now);
    assert_eq!(*ground.servers.current(), names[1]);
    assert_eq!(ground.unwanted(&names), names[..1]);
    ground.say(&names[0], Answer::Ready);
    assert_eq!(ground.unwanted(&names), []);
}

#[test]
fn a_single_server_is_kept_whatever_it_says_and_is_not_asked() {
    let names = names(1);
    let mut ground = Ground::given(&names);
    assert_eq!(ground.servers.take_due(ground.now), []);
    assert_eq!(ground.servers.next_due(ground.now), None);
    ground.servers.unreachable(&names[0], ground.now);
    for answer in [Answer::Silence, Answer::NotReady, Answer::Refusal] {
        ground.say(&names[0], answer);
        ground.say(&names[0], answer);
    }
    ground.list(&[address("elsewhere")]);
    ground.later(REMOVED_AFTER);
    assert!(ground.known().contains(&names[0]), "it was given");
    assert!(ground.order().contains(&names[0]));
}

#[test]
fn where_all_have_failed_none_is_cut_and_the_first_that_is_back_is_used() {
    let names = names(3);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    for name in &names {
        ground.servers.unreachable(name, ground.now);
    }
    assert_eq!(ground.unwanted(&names).len(), 0);
    assert_eq!(ground.order().len(), 3, "each is still tried");
    ground.servers.reached(&names[2], ground.now);
    assert_eq!(*ground.servers.current(), names[2]);
    ground.say(&names[1], Answer::Ready);
    assert_eq!(*ground.servers.current(), names[2], "as good as it");
}

#[test]
fn a_server_is_removed_after_a_while_and_only_for_one_that_is_well() {
    let names = names(3);
    let mut ground = Ground::new(&names[1..2], vec![names[0].clone()]);
    ground.servers.reached(&names[0], ground.now);
    ground.list(&names[2..]);
    assert_eq!(ground.known().len(), 3);
    ground.later(REMOVED_AFTER);
    assert_eq!(ground.known().len(), 3, "nobody knows how the new one is");
    assert_eq!(ground.unwanted(&names), []);
    ground.say(&names[2], Answer::Ready);
    assert_eq!(*ground.servers.current(), names[2]);
    let left: BTreeSet<_> = names[1..].iter().cloned().collect();
    assert_eq!(ground.known(), left, "what was given stays");
    assert_eq!(ground.unwanted(&names), names[..2]);
}

#[test]
fn servers_that_take_each_other_out_for_a_moment_are_not_left() {
    let names = names(2);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    for turn in 0..20 {
        ground.list(&names[turn % 2..=turn % 2]);
        ground.later(REMOVED_AFTER / 3);
        assert_eq!(*ground.servers.current(), names[0]);
        assert_eq!(ground.unwanted(&names), []);
    }
}

#[test]
fn an_empty_list_is_no_news() {
    let names = names(2);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    ground.list(&[]);
    ground.later(REMOVED_AFTER * 2);
    assert_eq!(ground.known().len(), 2);
    assert_eq!(ground.unwanted(&names), []);
}

#[test]
fn a_server_gets_its_nodes_back_when_it_has_been_well_for_long() {
    let names = names(2);
    let mut ground = Ground::given(&names);
    ground.all_ready(&names);
    ground.servers.unreachable(&names[0], ground.now);
    ground.say(&names[0], Answer::Ready);
    ground.later(STEADY / 2);
    assert_eq!(*ground.servers.current(), names[1]);
    ground.later(STEADY);
    assert_eq!(*ground.servers.current(), names[0]);
    assert_eq!(ground.unwanted(&names), [], "what hangs on the other stays");
}

#[test]
fn the_list_has_a_bound() {
    let names = names(MOST * 3);
    let mut ground = Ground::given(&names[..1]);
    ground.list(&names[1..]);
    assert_eq!(ground.known().len(), MOST);
    assert!(ground.known().contains(&names[0]));
}

#[test]
fn the_one_in_use_is_asked_soon_and_one_at_a_time() {
    let names = names(3);
    let mut ground = Ground::given(&names);
    let due = ground.servers.take_due(ground.now);
    assert_eq!(due.len(), 3, "nobody knows how they are");
    assert_eq!(ground.servers.take_due(ground.now), [], "they are asked");
    ground.all_ready(&names);
    ground.later(IN_USE.after(0));
    let due = ground.servers.take_due(ground.now);
    assert_eq!(due, [(names[0].clone(), true)]);
    ground.say(&names[0], Answer::Silence);
    ground.later(UNWELL.after(0));
    let again = ground.servers.take_due(ground.now);
    assert_eq!(again, [(names[0].clone(), true)]);
    ground.say(&names[0], Answer::Silence);
    // The next one is in use now, and has not been asked for a moment.
    ground.later(IN_USE.after(0));
    let due: BTreeSet<_> = ground.servers.take_due(ground.now).into_iter().collect();
    let expected = [(names[0].clone(), false), (names[1].clone(), true)];
    assert_eq!(due, expected.into());
    ground.later(IN_RESERVE.after(0));
    let last = ground.servers.take_due(ground.now);
    assert_eq!(last, [(names[2].clone(), false)]);
}
