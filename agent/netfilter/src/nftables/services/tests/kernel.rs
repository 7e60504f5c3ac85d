//! The table in a real kernel, in a network namespace of the test's own. Needs root; skips visibly
//! without, fails if `REQUIRE_ROOT` is set.

mod random;

use std::{collections::BTreeMap, time::Instant};

use super::super::{parts::name, *};
use crate::{
    generation,
    ground::{nft, note, on_ground},
    nftables::batch::{Data, Key},
    packets::{endpoint, exposed, key, network, view_of, web},
    service::Endpoint,
};

fn engine() -> Services {
    Services::new(Iptables::find().ok(), network())
}

/// What the kernel has is what the book says, no more and no less.
fn assert_kernel_has(engine: &Services, when: &str) {
    let present = kernel::present(&TABLE).unwrap().expect("a table");
    let layout = engine.book.layout();
    let mut names: Vec<&String> = layout.sets.iter().map(|set| &set.name).collect();
    names.sort();
    assert_eq!(present.sets.keys().collect::<Vec<_>>(), names, "{when}");
    let rules = layout.chains.iter();
    let rules: BTreeMap<&String, usize> =
        rules.map(|(name, _, rules)| (name, rules.len())).collect();
    let held = present.chains.iter();
    let held: BTreeMap<&String, usize> = held.map(|(name, rules)| (name, rules.len())).collect();
    assert_eq!(held, rules, "{when}");
    let hairpins = engine.book.hairpins();
    let mut wanted = engine.book.wanted(&hairpins);
    for set in names.into_iter().filter(|set| *set != name::STICKY) {
        let held = kernel::elements(&TABLE, set).unwrap();
        let wanted = wanted.remove(&**set).unwrap_or_default().into_iter();
        let wanted: BTreeMap<Key, Data> = wanted
            .map(|(key, (data, _))| (key.clone(), data.clone()))
            .collect();
        assert!(held == wanted, "{when}, {set}: {held:?} is not {wanted:?}");
    }
}

/// What the keys of Services are, as `nft` says it.
const VIP: &str = "ipv4_addr . inet_proto . inet_service";

/// Endpoints with these numbers.
fn endpoints(numbers: impl IntoIterator<Item = u16>) -> Vec<Endpoint> {
    let address = |number: u16| format!("10.244.{}.{}:8080", 2 + number / 250, 1 + number % 250);
    let one = |number| endpoint(&address(number), false);
    numbers.into_iter().map(one).collect()
}

fn view_with(numbers: impl IntoIterator<Item = u16>) -> ServiceView {
    let mut view = web();
    view.ports[0] = view_of(view.ports[0].port.clone(), endpoints(numbers));
    view
}

/// The n-th of very many Services, with three endpoints.
fn numbered(number: u16) -> (ServiceKey, Option<ServiceView>) {
    let mut view = web();
    let [high, low] = number.to_be_bytes();
    view.cluster_ips = vec![[10, 96, high, low].into()];
    (key(&format!("s{number}")), Some(view))
}

#[test]
fn what_others_change_is_repaired() {
    on_ground("repair", || {
        let mut engine = engine();
        let services = vec![(key("web"), Some(exposed())), numbered(300)];
        engine.apply(services).unwrap();
        assert!(!engine.reconcile().unwrap());
        for damage in [
            "flush ruleset",
            "delete table ip coracle",
            "flush map ip coracle services",
            "flush map ip coracle endpoints",
            "delete element ip coracle services { 10.96.0.10 . tcp . 80 }",
            "add element ip coracle services { 10.96.0.99 . tcp . 80 : drop }",
            "add element ip coracle hairpins { 10.0.0.1 . 10.0.0.2 }",
            "add chain ip coracle foreign; add rule ip coracle foreign drop",
            "add set ip coracle foreign { type ipv4_addr; }",
            "insert rule ip coracle nat-prerouting accept",
            "flush chain ip coracle pick-3",
            "flush chain ip coracle filter-forward",
            "chain ip coracle filter-forward { policy drop; }",
            "delete chain ip coracle filter-input; add chain ip coracle filter-input",
        ] {
            nft(damage);
            assert!(engine.is_disturbed(), "{damage}");
            assert!(engine.reconcile().unwrap(), "{damage}");
            assert_kernel_has(&engine, damage);
            assert!(!engine.reconcile().unwrap(), "{damage}: once is enough");
            assert!(!engine.is_disturbed(), "{damage}");
        }
        nft("add table ip other");
        assert!(engine.is_disturbed());
        assert!(!engine.reconcile().unwrap(), "it was not about our table");
        nft("list table ip other");
    });
}

#[test]
fn an_endpoint_roll_writes_three_elements_an_event() {
    on_ground("roll", || {
        let mut engine = engine();
        let mut is: Vec<u16> = (0..1000).collect();
        let view = |is: &[u16]| vec![(key("web"), Some(view_with(is.to_vec())))];
        engine.apply(view(&is)).unwrap();
        let mut most = 0;
        let mut write = |engine: &mut Services, is: &[u16]| {
            let difference = engine.book.change(view(is));
            most = most.max(difference.len());
            engine.write(&difference).unwrap();
            assert!(!engine.suspect, "a change was refused");
        };
        // One by one: the new one comes, an old one goes.
        for new in 1000..1150_u16 {
            is.push(new);
            write(&mut engine, &is);
            is.remove(usize::from(new * 37) % is.len());
            write(&mut engine, &is);
        }
        // In place.
        for new in 1150..1250 {
            is[500] = new;
            write(&mut engine, &is);
        }
        // Down to few.
        while is.len() > 900 {
            is.remove(is.len() / 2);
            write(&mut engine, &is);
        }
        assert!((1..=3).contains(&most), "{most} elements at once");
        assert_kernel_has(&engine, "after the roll");
    });
}

#[test]
fn a_service_that_the_kernel_refuses_stops_no_other() {
    on_ground("refused", || {
        // A kernel that has room for two.
        nft("add table ip coracle");
        nft(&format!(
            "add map ip coracle services {{ type {VIP} : verdict; size 2; }}"
        ));
        let mut engine = engine();
        engine.apply(vec![numbered(1), numbered(2)]).unwrap();
        assert_eq!(engine.refused().len(), 0);
        engine.apply(vec![numbered(3)]).unwrap();
        let told = engine.take_refusals();
        let services: Vec<_> = told.iter().map(|told| &told.service).collect();
        assert_eq!((services, engine.refused().len()), (vec![&key("s3")], 1));
        assert!(!told[0].why.is_empty());
        assert_kernel_has(&engine, "two of three");
        assert!(
            !engine.reconcile().unwrap(),
            "what is refused is not missed"
        );
        // Who makes room, and what changes after it.
        engine.apply(vec![(key("s1"), None), numbered(3)]).unwrap();
        assert_eq!(engine.refused().len(), 0);
        assert_kernel_has(&engine, "room for the third");
        // Several at once, among others.
        let all = (1..6).map(numbered).collect();
        engine.apply(all).unwrap();
        assert_eq!(engine.refused().len(), 3);
        assert_kernel_has(&engine, "two of five");
    });
}

#[test]
fn a_successor_takes_the_table_and_its_numbers_over() {
    on_ground("takeover", || {
        let mut views = BTreeMap::from([
            (key("web"), exposed()),
            (key("many"), view_with(0..20)),
            (key("gone"), numbered(300).1.unwrap()),
        ]);
        let mut many = views[&key("many")].clone();
        many.cluster_ips = vec![[10, 96, 0, 12].into()];
        views.insert(key("many"), many);
        let mut first = engine();
        let of = |views: &BTreeMap<ServiceKey, ServiceView>| {
            let all = views.iter();
            all.map(|(key, view)| (key.clone(), Some(view.clone())))
                .collect::<Vec<_>>()
        };
        first.apply(of(&views)).unwrap();
        // So that the order is not that of the addresses.
        let ports = &mut views.get_mut(&key("many")).unwrap().ports;
        ports[0] = view_of(ports[0].port.clone(), endpoints((5..20).chain(30..33)));
        first.apply(of(&views)).unwrap();
        let order = inherited_order().unwrap();
        let endpoints = || kernel::elements(&TABLE, name::ENDPOINTS).unwrap();
        let before = endpoints();
        drop(first);
        let mut second = engine();
        second.apply(of(&views)).unwrap();
        assert_kernel_has(&second, "taken over");
        assert_eq!(inherited_order().unwrap(), order);
        assert_eq!(endpoints(), before);
        assert!(!second.reconcile().unwrap());
        // Somebody went while nobody looked.
        drop(second);
        views.remove(&key("gone"));
        let mut third = engine();
        third.apply(of(&views)).unwrap();
        assert_kernel_has(&third, "taken over without one");
        // Another release's table.
        nft("add map ip coracle services2 { type ipv4_addr : verdict; }");
        nft("delete table ip coracle; add table ip coracle");
        nft("add map ip coracle services { type ipv4_addr : verdict; }");
        let mut fourth = engine();
        fourth.apply(of(&views)).unwrap();
        assert_kernel_has(&fourth, "another release's");
    });
}

#[test]
fn ten_thousand_services_are_one_transaction() {
    on_ground("many", || {
        let mut engine = engine();
        engine.apply(Vec::new()).unwrap();
        let before = generation::read().unwrap();
        let started = Instant::now();
        engine.apply((1..=10_000).map(numbered).collect()).unwrap();
        note(&format!("10,000 Services, added: {:?}", started.elapsed()));
        assert_eq!(generation::read().unwrap(), before + 1);
        nft("delete table ip coracle");
        let started = Instant::now();
        assert!(engine.reconcile().unwrap());
        note(&format!(
            "10,000 Services, from nothing: {:?}",
            started.elapsed()
        ));
        assert_eq!(generation::read().unwrap(), before + 3);
        assert_kernel_has(&engine, "ten thousand");
        let started = Instant::now();
        engine.suspect = true;
        assert!(!engine.reconcile().unwrap());
        note(&format!(
            "10,000 Services, compared: {:?}",
            started.elapsed()
        ));
        let started = Instant::now();
        engine.apply(vec![numbered(10_001)]).unwrap();
        note(&format!("one more beside 10,000: {:?}", started.elapsed()));
        assert_eq!(engine.refused().len(), 0);
    });
}

#[test]
fn asking_the_kernel_leaves_nothing() {
    on_ground("probe", || {
        probe(&network()).unwrap();
        assert_eq!(nft("list ruleset"), "");
        // Beside a table that is there, too.
        let mut engine = engine();
        engine.apply(vec![(key("web"), Some(exposed()))]).unwrap();
        probe(&network()).unwrap();
        assert!(!engine.reconcile().unwrap());
        assert!(!nft("list tables").contains("probe"));
        remove().unwrap();
        remove().unwrap();
        assert_eq!(kernel::present(&TABLE).unwrap(), None);
    });
}

#[test]
fn the_program_nft_lists_every_kind_of_rule() {
    on_ground("list", || {
        let mut engine = engine();
        let mut guarded = exposed();
        guarded.source_ranges = Some(vec!["198.51.100.0/24".parse().unwrap()]);
        let mut local = exposed();
        local.cluster_ips = vec![[10, 96, 0, 11].into()];
        (local.external_ips, local.balancer_ips) = (vec![[203, 0, 113, 9].into()], Vec::new());
        local.ports[0].port.node_port = Some(30081);
        (local.external_local, local.affinity_secs) = (true, Some(60));
        let services = vec![(key("guarded"), Some(guarded)), (key("local"), Some(local))];
        engine.apply(services).unwrap();
        let text = nft("list ruleset");
        for expected in [
            "10.96.0.10 . tcp . 80 : goto pick-3",
            "0.0.0.0 . tcp . 30081 : goto node-external-local",
            "10.96.0.10 . tcp . 80 . 0x00000001 : 10.244.2.2 . 8080",
            "203.0.113.8 . tcp . 80 . 198.51.100.0/24",
            "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints",
            "dnat ip to ip saddr . ip daddr . meta l4proto . th dport map @sticky",
            "ct original ip daddr . meta l4proto . ct original proto-dst vmap @affinity",
            "timeout 1m : ip daddr . th dport }",
            "ct status dnat ip saddr . ip daddr @hairpins masquerade fully-random",
            "type nat hook output priority -105; policy accept;",
        ] {
            assert!(text.contains(expected), "no {expected} in {text}");
        }
        assert!(nft("-j list ruleset").contains("10.244.2.2"));
    });
}
