//! What Services have together.

use super::super::{book::Book, layout::*, parts::name, *};
use crate::{
    nftables::batch::Data,
    packets::{endpoint, key, network, view_of, web},
    service::Endpoint,
};

fn with_external(last: u8, address: [u8; 4]) -> ServiceView {
    ServiceView {
        cluster_ips: vec![[10, 96, 0, last].into()],
        external_ips: vec![address.into()],
        ..web()
    }
}

/// Services that have a way from this address.
fn owners(book: &Book, address: [u8; 4]) -> Vec<String> {
    let hairpins = book.hairpins();
    let wanted = book.wanted(&hairpins);
    let of = wanted[name::SERVICES].iter();
    let of = of.filter(|(key, _)| key.first.starts_with(&address));
    of.filter_map(|(_, (_, owner))| owner.map(|key| key.name.clone()))
        .collect()
}

#[test]
fn an_address_is_one_services_until_that_leaves_it() {
    const FIRST: [u8; 4] = [203, 0, 113, 7];
    let mut book = Book::new(network());
    book.change(vec![(key("a"), Some(with_external(10, FIRST)))]);
    book.change(vec![(key("b"), Some(with_external(11, FIRST)))]);
    assert_eq!(owners(&book, FIRST), ["a"]);
    assert_eq!(owners(&book, [10, 96, 0, 11]), ["b"]);
    // It takes another; who has waited gets it.
    let elsewhere = with_external(10, [203, 0, 113, 8]);
    book.change(vec![(key("a"), Some(elsewhere))]);
    assert_eq!(owners(&book, FIRST), ["b"]);
    assert_eq!(owners(&book, [203, 0, 113, 8]), ["a"]);
    book.change(vec![(key("c"), Some(with_external(12, FIRST)))]);
    assert_eq!(owners(&book, FIRST), ["b"]);
    // Also from one that is gone, and in one change with it.
    book.change(vec![(key("c"), None)]);
    let third = with_external(12, FIRST);
    book.change(vec![(key("c"), Some(third)), (key("b"), None)]);
    assert_eq!(owners(&book, FIRST), ["c"]);
    // One that is set aside keeps it: it is tried again.
    assert!(book.set_aside(&key("c"), "no room".to_owned()).is_some());
    book.change(vec![(key("d"), Some(with_external(13, FIRST)))]);
    assert!(owners(&book, FIRST).is_empty());
    assert!(book.take_refused_back());
    assert_eq!(owners(&book, FIRST), ["c"]);
}

#[test]
fn chains_that_nobody_uses_do_not_pile_up() {
    let mut book = Book::new(network());
    let before = book.layout().chains.len();
    let endpoints = |count: u8| -> Vec<Endpoint> {
        let addresses = (0..count).map(|last| format!("10.244.2.{last}:80"));
        addresses.map(|address| endpoint(&address, false)).collect()
    };
    for count in 1..=200 {
        let mut view = web();
        view.ports[0] = view_of(view.ports[0].port.clone(), endpoints(count));
        let difference = book.change(vec![(key("web"), Some(view))]);
        let chains = book.layout().chains.len();
        assert!(chains <= before + 66, "{chains} chains with {count}");
        assert!(
            !difference
                .gone_branches
                .contains(&difference.new_branches[0])
        );
    }
    let hairpins = book.hairpins();
    let wanted = book.wanted(&hairpins);
    let (Data::Verdict(verdict), _) = wanted[name::SERVICES].values().next().unwrap() else {
        panic!("no way to it")
    };
    let layout = layout(&network(), &Default::default());
    let fixed: Vec<&String> = layout.chains.iter().map(|(name, ..)| name).collect();
    let mut chains = book.layout().chains;
    chains.retain(|(name, ..)| !fixed.contains(&name));
    // The one that is used is never among those that go.
    let used = format!("{verdict:?}");
    assert!(
        chains
            .iter()
            .any(|(name, ..)| used.contains(&format!("{name:?}")))
    );
}
