use super::*;
use crate::testing::{World, name, texts};

fn zone() -> Zone {
    Zone::new("cluster.local", Some("10.96.0.10".parse().unwrap())).unwrap()
}

/// What is said, in words: the records, or that there are none.
fn said(world: &World, of: &str, wanted: RecordType) -> Vec<String> {
    match zone().find(world, &name(of), wanted) {
        Found::Records {
            answers,
            additionals,
        } => {
            assert!(answers.iter().all(|record| record.ttl == TTL));
            [texts(&answers), texts(&additionals)].concat()
        }
        Found::Alias { record, target } => vec![format!("{} -> {target}", record.name)],
        Found::NoData => vec!["nothing of that type".into()],
        Found::NoName => vec!["no such name".into()],
        Found::Foreign => vec!["not ours".into()],
        Found::Unknown => vec!["not yet".into()],
    }
}

/// The specification's table, section by section, and what CoreDNS says beyond it.
#[test]
fn names_are_what_the_specification_says() {
    use RecordType::{A, AAAA, CNAME, MX, NS, PTR, SOA, SRV, TXT};
    let world = World::new();
    const NONE: &str = "nothing of that type";
    const NOBODY: &str = "no such name";
    let web = "web.shop.svc.cluster.local.";
    let peer = "peer-0.peers.shop.svc.cluster.local.";
    let dashes = "10-244-0-6.peers.shop.svc.cluster.local.";
    let cases: &[(&str, RecordType, &[&str])] = &[
        // 2.2: the version.
        (
            "dns-version.cluster.local.",
            TXT,
            &["dns-version.cluster.local. TXT 1.1.0"],
        ),
        ("dns-version.cluster.local.", A, &[NONE]),
        // 2.3.1: a Service with addresses, of each family.
        (web, A, &["web.shop.svc.cluster.local. A 10.96.0.20"]),
        (web, AAAA, &["web.shop.svc.cluster.local. AAAA fd00::20"]),
        (
            "WEB.Shop.SVC.cluster.LOCAL.",
            A,
            &["WEB.Shop.SVC.cluster.LOCAL. A 10.96.0.20"],
        ),
        ("db.other.svc.cluster.local.", AAAA, &[NONE]),
        (web, MX, &[NONE]),
        (web, TXT, &[NONE]),
        ("absent.shop.svc.cluster.local.", A, &[NOBODY]),
        ("web.absent.svc.cluster.local.", A, &[NOBODY]),
        // 2.3.2: its ports.
        (
            "_http._tcp.web.shop.svc.cluster.local.",
            SRV,
            &[
                "_http._tcp.web.shop.svc.cluster.local. SRV 0 100 80 web.shop.svc.cluster.local.",
                "web.shop.svc.cluster.local. A 10.96.0.20",
                "web.shop.svc.cluster.local. AAAA fd00::20",
            ],
        ),
        (
            "_HTTP._TCP.web.shop.svc.cluster.local.",
            A,
            &["_HTTP._TCP.web.shop.svc.cluster.local. A 10.96.0.20"],
        ),
        ("_http._udp.web.shop.svc.cluster.local.", SRV, &[NOBODY]),
        ("http._tcp.web.shop.svc.cluster.local.", SRV, &[NOBODY]),
        (
            "db.other.svc.cluster.local.",
            SRV,
            &[
                "db.other.svc.cluster.local. SRV 0 50 53 db.other.svc.cluster.local.",
                "db.other.svc.cluster.local. SRV 0 50 80 db.other.svc.cluster.local.",
                "db.other.svc.cluster.local. A 10.96.0.30",
            ],
        ),
        // 2.3.3: whose address it is.
        (
            "20.0.96.10.in-addr.arpa.",
            PTR,
            &["20.0.96.10.in-addr.arpa. PTR web.shop.svc.cluster.local."],
        ),
        (
            "0.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
            PTR,
            &[
                "0.2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR web.shop.svc.cluster.local.",
            ],
        ),
        ("20.0.96.10.in-addr.arpa.", A, &[NONE]),
        ("21.0.96.10.in-addr.arpa.", PTR, &["not ours"]),
        ("0.96.10.in-addr.arpa.", PTR, &["not ours"]),
        // 2.4: a Service without addresses is where its endpoints are, and each has its name.
        (
            "peers.shop.svc.cluster.local.",
            A,
            &[
                "peers.shop.svc.cluster.local. A 10.244.0.5",
                "peers.shop.svc.cluster.local. A 10.244.0.6",
            ],
        ),
        (
            peer,
            A,
            &["peer-0.peers.shop.svc.cluster.local. A 10.244.0.5"],
        ),
        (
            dashes,
            A,
            &["10-244-0-6.peers.shop.svc.cluster.local. A 10.244.0.6"],
        ),
        ("peer-1.peers.shop.svc.cluster.local.", A, &[NOBODY]),
        (
            "_peer._tcp.peers.shop.svc.cluster.local.",
            SRV,
            &[
                "_peer._tcp.peers.shop.svc.cluster.local. SRV 0 50 7000 10-244-0-6.peers.shop.svc.cluster.local.",
                "_peer._tcp.peers.shop.svc.cluster.local. SRV 0 50 7000 peer-0.peers.shop.svc.cluster.local.",
                "10-244-0-6.peers.shop.svc.cluster.local. A 10.244.0.6",
                "peer-0.peers.shop.svc.cluster.local. A 10.244.0.5",
            ],
        ),
        (
            "5.0.244.10.in-addr.arpa.",
            PTR,
            &["5.0.244.10.in-addr.arpa. PTR peer-0.peers.shop.svc.cluster.local."],
        ),
        (
            "6.0.244.10.in-addr.arpa.",
            PTR,
            &["6.0.244.10.in-addr.arpa. PTR 10-244-0-6.peers.shop.svc.cluster.local."],
        ),
        (
            "7.0.244.10.in-addr.arpa.",
            PTR,
            &["7.0.244.10.in-addr.arpa. PTR 10-244-0-7.web.shop.svc.cluster.local."],
        ),
        ("6.0.244.10.in-addr.arpa.", A, &[NONE]),
        ("8.0.244.10.in-addr.arpa.", PTR, &["not ours"]),
        ("nobody.shop.svc.cluster.local.", A, &[NOBODY]),
        (
            "10-244-0-7.web.shop.svc.cluster.local.",
            A,
            &["10-244-0-7.web.shop.svc.cluster.local. A 10.244.0.7"],
        ),
        // 2.5: a Service that is another name.
        (
            "outside.shop.svc.cluster.local.",
            A,
            &["outside.shop.svc.cluster.local. -> www.example.org."],
        ),
        (
            "outside.shop.svc.cluster.local.",
            CNAME,
            &["outside.shop.svc.cluster.local. -> www.example.org."],
        ),
        ("outside.shop.svc.cluster.local.", TXT, &[NONE]),
        ("x.outside.shop.svc.cluster.local.", A, &[NOBODY]),
        ("number.shop.svc.cluster.local.", A, &[NOBODY]),
        // Pods, which are not in the specification any more.
        (
            "10-244-0-9.shop.pod.cluster.local.",
            A,
            &["10-244-0-9.shop.pod.cluster.local. A 10.244.0.9"],
        ),
        (
            "2001-db8--9.shop.pod.cluster.local.",
            AAAA,
            &["2001-db8--9.shop.pod.cluster.local. AAAA 2001:db8::9"],
        ),
        ("10-244-0-9.shop.pod.cluster.local.", AAAA, &[NONE]),
        ("10-244-0.shop.pod.cluster.local.", A, &[NOBODY]),
        (
            "10-244-0-9.empty.pod.cluster.local.",
            A,
            &["10-244-0-9.empty.pod.cluster.local. A 10.244.0.9"],
        ),
        ("10-244-0-9.absent.pod.cluster.local.", A, &[NOBODY]),
        ("10-244-0-9.absent.pod.cluster.local.", AAAA, &[NOBODY]),
        ("shop.pod.cluster.local.", A, &[NONE]),
        ("absent.pod.cluster.local.", A, &[NOBODY]),
        // The zone itself, and names that only have others below them.
        (
            "cluster.local.",
            NS,
            &[
                "cluster.local. NS ns.dns.cluster.local.",
                "ns.dns.cluster.local. A 10.96.0.10",
            ],
        ),
        (
            "ns.dns.cluster.local.",
            A,
            &["ns.dns.cluster.local. A 10.96.0.10"],
        ),
        ("cluster.local.", A, &[NONE]),
        ("svc.cluster.local.", A, &[NONE]),
        ("svc.cluster.local.", NS, &[NONE]),
        ("svc.cluster.local.", SOA, &[NONE]),
        ("shop.svc.cluster.local.", A, &[NONE]),
        ("empty.svc.cluster.local.", A, &[NONE]),
        ("absent.svc.cluster.local.", A, &[NOBODY]),
        ("shop.cluster.local.", A, &[NOBODY]),
        ("a.b.c.web.shop.svc.cluster.local.", A, &[NOBODY]),
        ("cluster.local.example.org.", A, &["not ours"]),
        ("notcluster.local.", A, &["not ours"]),
    ];
    for (of, wanted, expected) in cases {
        assert_eq!(said(&world, of, *wanted), *expected, "{of} {wanted}");
    }
}

#[test]
fn nothing_is_denied_before_all_has_been_seen() {
    let mut world = World::new();
    world.is_complete = false;
    for (of, wanted) in [
        ("absent.shop.svc.cluster.local.", RecordType::A),
        ("21.0.96.10.in-addr.arpa.", RecordType::PTR),
    ] {
        assert_eq!(said(&world, of, wanted), ["not yet"], "{of}");
    }
    assert_eq!(
        said(&world, "www.example.org.", RecordType::A),
        ["not ours"]
    );
}

#[test]
fn an_address_has_a_name_in_each_of_its_services() {
    let mut world = World::new();
    let ports = [crate::testing::port("peer", "tcp", 7000)].into();
    for (namespace, service, hostname) in [
        ("other", "db", None),
        ("shop", "peers", Some("Peer-8")),
        // In two slices.
        ("shop", "web", None),
        ("shop", "web", None),
        // Slices that somebody wrote by hand.
        ("shop", "outside", None),
        ("shop", "absent", Some("bank")),
    ] {
        world.join(namespace, service, "10.244.0.8", hostname, &ports);
    }
    let asked = name("8.0.244.10.in-addr.arpa.");
    let Found::Records { answers, .. } = zone().find(&world, &asked, RecordType::PTR) else {
        panic!("no records");
    };
    let targets: Vec<String> = answers.iter().map(|one| one.data.to_string()).collect();
    let expected = [
        "peer-8.peers.shop.svc.cluster.local.",
        "10-244-0-8.db.other.svc.cluster.local.",
        "10-244-0-8.web.shop.svc.cluster.local.",
    ];
    assert_eq!(targets, expected);
    for target in expected {
        let said = said(&world, target, RecordType::A);
        assert_eq!(said, [format!("{target} A 10.244.0.8")]);
    }
    let mut forged = World::new();
    forged.join("shop", "absent", "10.244.0.8", None, &ports);
    assert_eq!(
        said(&forged, "8.0.244.10.in-addr.arpa.", RecordType::PTR),
        ["not ours"]
    );
}

#[test]
fn addresses_come_in_every_order() {
    let world = World::new();
    let firsts: std::collections::BTreeSet<String> = (0..64)
        .map(|_| {
            let asked = name("peers.shop.svc.cluster.local.");
            match zone().find(&world, &asked, RecordType::A) {
                Found::Records { answers, .. } => answers[0].data.to_string(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(firsts.len(), 2);
}

#[test]
fn labels_that_no_object_has_are_nobodys() {
    let world = World::new();
    for labels in [
        [&b"a.b"[..], b"shop", b"svc", b"cluster", b"local"],
        [&b"\xff"[..], b"shop", b"svc", b"cluster", b"local"],
    ] {
        let mut asked = Name::from_labels(labels).unwrap();
        asked.set_fqdn(true);
        assert_eq!(zone().find(&world, &asked, RecordType::A), Found::NoName);
    }
}
