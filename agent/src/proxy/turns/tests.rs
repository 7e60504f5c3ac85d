use std::net::IpAddr;

use coracle_netfilter::service::{Port, PortView, Protocol};

use super::*;
use crate::proxy::node_ports::NodePortRanges;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2));
const API_SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 9));
const NOBODY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "t1".to_owned(),
        name: name.to_owned(),
    }
}

fn view(ports: impl Iterator<Item = u16>, external_ips: &[IpAddr]) -> Option<ServiceView> {
    let port = |port| PortView {
        port: Port {
            name: String::new(),
            protocol: Protocol::Tcp,
            port,
            node_port: None,
        },
        cluster: Vec::new(),
        local: Vec::new(),
        serving: Vec::new(),
    };
    let cluster_ips = vec![IpAddr::from([10, 96, 0, 1])];
    Some(ServiceView {
        cluster_ips,
        ports: ports.map(port).collect(),
        external_ips: external_ips.to_vec(),
        ..ServiceView::default()
    })
}

fn holdings(listening: &[u16]) -> Holdings {
    Holdings {
        own: [HERE].into(),
        listening: listening
            .iter()
            .map(|port| (None, Protocol::Tcp, *port))
            .collect(),
        nodes: [HERE, THERE].into(),
        api_servers: [(API_SERVER, Protocol::Tcp, 6443)].into(),
        api_port: Some(10250),
        ..Holdings::default()
    }
}

fn names(turn: &[Changed]) -> Vec<&str> {
    turn.iter().map(|(key, _)| key.name.as_str()).collect()
}

#[test]
fn no_service_takes_what_nodes_and_the_api_server_are_reached_under() {
    let ports = [22, 80, 6443, 10250];
    let cases: [(IpAddr, &[u16]); 4] = [
        (HERE, &[22, 10250]),
        (THERE, &ports),
        (API_SERVER, &[6443, 10250]),
        (NOBODY, &[10250]),
    ];
    for (address, expected) in cases {
        let mut turns = Turns::default();
        turns.set_holdings(holdings(&[22, 10250]));
        turns.add(vec![(key("mitm"), view(ports.into_iter(), &[address]))]);
        let taken = turns.take();
        let [(_, Some(view))] = &taken[..] else {
            panic!("{taken:?}")
        };
        let withheld: Vec<u16> = view.withheld.iter().map(|(_, _, port)| *port).collect();
        assert_eq!(withheld, expected, "{address}");
        let news = turns.take_news();
        assert!(
            matches!(&news[..], [News::Withheld(told)] if told.service == key("mitm")),
            "{news:?}"
        );
        turns.add(vec![(key("mitm"), Some(view.clone()))]);
        assert_eq!(turns.take_news(), [], "told once");
    }
}

#[test]
fn a_port_is_given_back_to_whoever_listens_there_later() {
    let mut turns = Turns::default();
    turns.set_holdings(holdings(&[22]));
    turns.add(vec![
        (key("web"), view([80].into_iter(), &[HERE])),
        (key("inner"), view([80].into_iter(), &[])),
    ]);
    let taken = turns.take();
    assert!(
        taken
            .iter()
            .flat_map(|(_, view)| view)
            .all(|view| view.withheld.is_empty()),
        "{taken:?}"
    );
    turns.set_holdings(holdings(&[22, 80]));
    let taken = turns.take();
    assert_eq!(names(&taken), ["web"]);
    assert!(
        taken[0]
            .1
            .as_ref()
            .is_some_and(|view| view.withheld.contains(&(HERE, Protocol::Tcp, 80)))
    );
    turns.set_holdings(holdings(&[22, 80]));
    assert!(turns.is_empty());
    turns.set_holdings(holdings(&[22]));
    assert_eq!(names(&turns.take()), ["web"]);
    turns.add(vec![(key("web"), None)]);
    turns.take();
    turns.set_holdings(holdings(&[80]));
    assert!(turns.is_empty(), "it is gone");
}

#[test]
fn a_service_of_many_rules_goes_after_the_others_and_not_for_ever() {
    let mut turns = Turns::default();
    turns.add(vec![
        (key("a-wide"), view(1..2_000, &[])),
        (key("narrow"), view([80].into_iter(), &[])),
        (key("other-wide"), view(1..2_000, &[])),
    ]);
    assert_eq!(names(&turns.take()), ["narrow"]);
    assert_eq!(names(&turns.take()), ["a-wide"]);
    assert_eq!(names(&turns.take()), ["other-wide"]);
    turns.add(vec![(key("a-wide"), None), (key("narrow"), None)]);
    assert_eq!(
        names(&turns.take()),
        ["narrow"],
        "what goes has many rules, too"
    );
    for turn in 1..MOST_WAITS {
        turns.add(vec![(key("narrow"), view([80].into_iter(), &[]))]);
        assert_eq!(names(&turns.take()), ["narrow"], "{turn}");
    }
    turns.add(vec![(key("narrow"), None)]);
    assert_eq!(names(&turns.take()), ["a-wide"]);
    assert_eq!(names(&turns.take()), ["narrow"]);
    assert!(turns.is_empty());
}

#[test]
fn a_service_of_too_many_ports_has_no_rules_and_hears_of_it() {
    for (ports, addresses, fits) in [
        (5_000, 0, true),
        (5_001, 0, false),
        (2_500, 1, true),
        (2_501, 1, false),
    ] {
        let mut turns = Turns::default();
        turns.add(vec![(
            key("sink"),
            view(1..=ports, &[NOBODY; 1][..addresses]),
        )]);
        assert_eq!(turns.take()[0].1.is_some(), fits, "{ports}");
        assert_eq!(
            turns
                .take_news()
                .iter()
                .any(|news| matches!(news, News::Refused(_))),
            !fits,
            "{ports}"
        );
    }
}

fn withheld_of(turn: &[Changed], name: &str) -> Vec<u16> {
    let found = turn.iter().find(|(key, _)| key.name == name);
    let view = found.and_then(|(_, view)| view.as_ref()).unwrap();
    view.withheld.iter().map(|(_, _, port)| *port).collect()
}

#[test]
fn what_pods_publish_is_no_services_to_take() {
    let mut turns = Turns::default();
    let mut balanced = view([80, 443].into_iter(), &[]).unwrap();
    balanced.balancer_ips = vec![HERE];
    turns.set_holdings(holdings(&[]));
    turns.add(vec![(key("mitm"), Some(balanced))]);
    assert_eq!(withheld_of(&turns.take(), "mitm"), [0; 0]);
    let published = |address| Holdings {
        published: [(address, Protocol::Tcp, 443)].into(),
        ..holdings(&[])
    };
    for (address, expected) in [
        (None, &[443][..]),
        (Some(NOBODY), &[]),
        (Some(HERE), &[443]),
    ] {
        turns.set_holdings(published(address));
        assert_eq!(withheld_of(&turns.take(), "mitm"), expected, "{address:?}");
    }
}

#[test]
fn another_services_node_port_is_no_services_to_take() {
    let mut turns = Turns::default();
    turns.set_holdings(holdings(&[]));
    let mut own = view([30_080, 30_443].into_iter(), &[HERE]).unwrap();
    own.ports[0].port.node_port = Some(30_080);
    turns.add(vec![(key("mitm"), Some(own))]);
    assert_eq!(withheld_of(&turns.take(), "mitm"), [0; 0], "its own it has");
    let mut other = view([443].into_iter(), &[]).unwrap();
    other.ports[0].port.node_port = Some(30_443);
    turns.add(vec![(key("web"), Some(other))]);
    assert_eq!(withheld_of(&turns.take(), "mitm"), [30_443]);
    let elsewhere = Holdings {
        node_port_ranges: NodePortRanges::new(&["203.0.113.0/24".parse().unwrap()]),
        ..holdings(&[])
    };
    turns.set_holdings(elsewhere);
    assert_eq!(
        withheld_of(&turns.take(), "mitm"),
        [0; 0],
        "no node ports there"
    );
    turns.set_holdings(holdings(&[]));
    assert_eq!(withheld_of(&turns.take(), "mitm"), [30_443]);
    turns.add(vec![(key("web"), None)]);
    assert_eq!(withheld_of(&turns.take(), "mitm"), [0; 0], "given back");
}

/// A Service at the addresses of 100 nodes, of which this is one.
fn on_many_nodes(ports: u16) -> (Holdings, ServiceView) {
    let there = (2..=100).map(|last| IpAddr::from([198, 18, 0, last]));
    let nodes: BTreeSet<IpAddr> = [HERE].into_iter().chain(there).collect();
    let mut balanced = view(1..=ports, &[]).unwrap();
    balanced.balancer_ips = nodes.iter().copied().collect();
    let holdings = Holdings {
        nodes,
        ..holdings(&[])
    };
    (holdings, balanced)
}

#[test]
fn rules_are_counted_that_are_written_here() {
    let (holdings, balanced) = on_many_nodes(100);
    let mut turns = Turns::default();
    turns.set_holdings(holdings);
    turns.add(vec![
        (key("balanced"), Some(balanced)),
        (key("narrow"), view([80].into_iter(), &[])),
    ]);
    let taken = turns.take();
    assert_eq!(names(&taken), ["balanced", "narrow"]);
    assert!(taken[0].1.is_some());
}

#[test]
fn a_service_that_was_too_large_gets_rules_once_others_are_known() {
    let (holdings, balanced) = on_many_nodes(100);
    let mut turns = Turns::default();
    turns.add(vec![(key("balanced"), Some(balanced))]);
    assert!(turns.take()[0].1.is_none(), "all addresses may be here");
    turns.set_holdings(holdings.clone());
    let taken = turns.take();
    assert_eq!(names(&taken), ["balanced"]);
    assert!(taken[0].1.is_some());
    turns.set_holdings(holdings);
    assert!(turns.is_empty());
}

#[test]
fn that_other_nodes_serve_their_addresses_is_no_news() {
    let (holdings, balanced) = on_many_nodes(1);
    let mut turns = Turns::default();
    turns.set_holdings(holdings.clone());
    turns.add(vec![(key("balanced"), Some(balanced.clone()))]);
    assert_eq!(turns.take_news(), []);
    turns.set_holdings(Holdings {
        listening: [(None, Protocol::Tcp, 1)].into(),
        ..holdings
    });
    let news = turns.take_news();
    let why = format!("{HERE}:1/tcp");
    assert!(
        matches!(&news[..], [News::Withheld(told)] if told.why == why),
        "{news:?}"
    );
    // Of an external address of its owner's choice it is: nobody serves that.
    turns.add(vec![(key("external"), view([80].into_iter(), &[THERE]))]);
    assert_eq!(turns.take_news().len(), 1);
}

#[test]
fn a_balancers_address_is_served_at_the_ports_that_its_status_gives() {
    let given = |not_given: &[u16]| {
        view([80, 443].into_iter(), &[]).map(|mut view| {
            view.balancer_ips = vec![HERE];
            view.withheld = not_given
                .iter()
                .map(|port| (HERE, Protocol::Tcp, *port))
                .collect();
            view
        })
    };
    let mut turns = Turns::default();
    turns.set_holdings(holdings(&[]));
    let written = |turns: &mut Turns| -> Vec<u16> {
        let taken = turns.take();
        let withheld = taken
            .iter()
            .flat_map(|(_, view)| view)
            .flat_map(|view| &view.withheld);
        withheld.map(|(_, _, port)| *port).collect()
    };
    turns.add(vec![(key("web"), given(&[443]))]);
    assert_eq!(written(&mut turns), [443]);
    assert_eq!(
        turns.take_news(),
        [],
        "whoever does not give it tells of it"
    );
    // Somebody listens, and goes again.
    turns.set_holdings(holdings(&[80]));
    assert_eq!(written(&mut turns), [80, 443]);
    assert_eq!(turns.take_news().len(), 1);
    turns.set_holdings(holdings(&[]));
    assert_eq!(written(&mut turns), [443]);
    turns.add(vec![(key("web"), given(&[]))]);
    assert_eq!(names(&turns.take()), ["web"]);
    turns.set_holdings(holdings(&[]));
    assert!(turns.is_empty(), "nothing is withheld any more");
}
