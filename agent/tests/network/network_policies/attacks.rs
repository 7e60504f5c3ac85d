//! What a pod may try to get past policies.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use coracle_netfilter::ProxyMode;
use coracle_netns::NetNs;
use serde_json::{Value, json};

use super::{
    raw::{Ipv4, MORE_FRAGMENTS, Sniffer, UDP, checksum, heard, udp},
    world::{Cluster, PATIENCE, deny, of, reaches},
};
use crate::{
    fake_api::{service, slice},
    harness::{lab, lab_by, wait_for},
};

const PORT: u16 = 9000;
const NEVER: Duration = Duration::from_secs(3600);
const QUIET: Duration = Duration::from_millis(200);

#[test]
fn pieces_and_options_hide_no_port() {
    let Some(lab) = lab("np-pieces") else { return };
    let mut cluster = Cluster::new(&lab);
    let ingress = json!([{"ports": [{"protocol": "UDP", "port": PORT}]}]);
    cluster.policy("one", Some(json!({"podSelector": {}, "ingress": ingress})));
    let (a, b) = (cluster.pod("a"), cluster.pod("b"));
    let send = |options: &[u8], pieces: &[(u16, &[u8])]| {
        for (fragment, payload) in pieces {
            let packet = Ipv4 {
                from: b.address,
                to: a.address,
                protocol: UDP,
                fragment: *fragment,
                options,
                payload,
            };
            packet.send(&b.ns, a.address);
        }
    };
    let (good, bad) = (udp(PORT, &[7; 24]), udp(PORT + 1, &[8; 24]));
    let whole = |of: &[u8]| heard(&a.ns, PORT, || send(&[], &[(0, of)]));
    assert!(whole(&good).is_some());
    // Nothing but the ports in the first.
    let tiny: [(u16, &[u8]); 2] = [(MORE_FRAGMENTS, &good[..8]), (1, &good[8..])];
    assert_eq!(heard(&a.ns, PORT, || send(&[], &tiny)), Some(vec![7; 24]));
    let tiny: [(u16, &[u8]); 2] = [(MORE_FRAGMENTS, &bad[..8]), (1, &bad[8..])];
    let backwards = [tiny[1], tiny[0]];
    // Of another packet that may pass, laid over the first.
    let overlaid: [(u16, &[u8]); 3] = [
        (MORE_FRAGMENTS, &good[..16]),
        (MORE_FRAGMENTS, &bad[..16]),
        (2, &bad[16..]),
    ];
    let underlaid = [overlaid[1], overlaid[0], overlaid[2]];
    for pieces in [&tiny[..], &backwards, &overlaid, &underlaid] {
        assert_eq!(heard(&a.ns, PORT + 1, || send(&[], pieces)), None);
    }
    // Three times "no operation" and an end; the way that was taken.
    for options in [&[1, 1, 1, 0][..], &[7, 7, 4, 0, 0, 0, 0, 0]] {
        let through = heard(&a.ns, PORT, || send(options, &[(0, &good)]));
        assert!(through.is_some(), "{options:?}");
        let past = heard(&a.ns, PORT + 1, || send(options, &[(0, &bad)]));
        assert_eq!(past, None, "{options:?}");
    }
}

#[test]
fn an_error_about_no_connection_is_no_error() {
    const ICMP: u8 = 1;
    let Some(lab) = lab("np-forged") else { return };
    let mut cluster = Cluster::new(&lab);
    cluster.policy("deny", deny("a"));
    let (a, b, c) = (cluster.pod("a"), cluster.pod("b"), cluster.pod("c"));
    let gets = |inner: &[u8]| {
        let sniffer = Sniffer::new(&a.ns);
        // Port unreachable.
        let mut error = [&[3, 3, 0, 0, 0, 0, 0, 0], inner].concat();
        let sum = checksum(&error);
        error[2..4].copy_from_slice(&sum);
        let packet = Ipv4 {
            from: b.address,
            to: a.address,
            protocol: ICMP,
            fragment: 0,
            options: &[],
            payload: &error,
        };
        packet.send(&b.ns, a.address);
        let is_error = |frame: &Vec<u8>| frame.get(23) == Some(&ICMP) && frame[34] == 3;
        sniffer.frames(QUIET).iter().any(is_error)
    };
    let inner = |to, port| {
        let packet = Ipv4 {
            from: a.address,
            to,
            protocol: UDP,
            fragment: 0,
            options: &[],
            payload: &udp(port, b"x"),
        };
        packet.bytes()
    };
    assert!(!gets(&inner(b.address, PORT)) && !gets(&inner(c.address, PORT)));
    // Of what a did send, b may say that it did not get it.
    let from = ("0.0.0.0", 4444);
    let socket = a.ns.run(|| UdpSocket::bind(from)).unwrap().unwrap();
    let _silent = b.ns.run(|| UdpSocket::bind(("0.0.0.0", PORT))).unwrap();
    socket.send_to(b"x", (b.address, PORT)).unwrap();
    wait_for("a's flow", || gets(&inner(b.address, PORT)));
    assert!(!gets(&inner(b.address, PORT + 1)));
}

#[test]
fn no_way_through_the_node_leads_past() {
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        let Some(lab) = lab_by(mode, "np-ways") else {
            return;
        };
        let mut cluster = Cluster::new(&lab);
        let _proxies = [0, 1].map(|at| cluster.nodes[at].proxy(NEVER));
        let mut web = service(
            "web",
            "10.96.0.7",
            &json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]),
            &json!({"externalIPs": ["203.0.113.7"]}),
        );
        web["spec"]["type"] = "NodePort".into();
        lab.api.put("services", web);
        let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
        let a = cluster.pod("a").address;
        let endpoints = slice("web", &target, &[(&a.to_string(), "n1")]);
        lab.api.put("endpointslices", endpoints);
        let node = cluster.nodes[0].address;
        let ways = [
            ([10, 96, 0, 7].into(), 80),
            (node, 30080),
            ([203, 0, 113, 7].into(), 80),
        ];
        let passing = |cluster: &Cluster<'_>| {
            let by = |from: &str| {
                let ns = &cluster.pod(from).ns;
                ways.map(|(to, port)| reaches(ns, to, port))
            };
            [by("b"), by("c")]
        };
        wait_for("the Service", || passing(&cluster) == [[true; 3]; 2]);
        cluster.policy("deny", deny("a"));
        assert_eq!(passing(&cluster), [[false; 3]; 2], "{mode:?}");
        // Also by a node that has no endpoint, which asks under its own address.
        let other = cluster.nodes[1].address;
        for from in ["b", "c"] {
            assert!(!reaches(&cluster.pod(from).ns, other, 30080), "{mode:?}");
        }
        // And where the sender is held to what it may send.
        cluster.policy("deny", None);
        let to = json!([{"to": [{"ipBlock": {"cidr": "10.96.0.0/16"}}, {"ipBlock": {"cidr": "198.18.0.0/24"}}]}]);
        cluster.policy(
            "out",
            Some(json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": to})),
        );
        // But for an address of another node, which is where c's node sends what it forwards.
        let expected = [[false; 3], [false, true, false]];
        assert_eq!(passing(&cluster), expected, "{mode:?}");
    }
}

#[test]
fn a_flow_without_connections_ends_with_its_permission() {
    let Some(lab) = lab("np-flow") else { return };
    let mut cluster = Cluster::new(&lab);
    let bind = |ns: &NetNs, port| {
        let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", port)));
        let socket = socket.unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (server, client) = (
        bind(&cluster.pod("a").ns, PORT),
        bind(&cluster.pod("c").ns, 4444),
    );
    let (a, c) = (cluster.pod("a").address, cluster.pod("c").address);
    let gets = |from: &UdpSocket, to: (_, u16), at: &UdpSocket| {
        from.send_to(b"x", to).unwrap();
        at.recv(&mut [0]).is_ok()
    };
    let asks = || gets(&client, (a, PORT), &server);
    let answers = || gets(&server, (c, 4444), &client);
    // Assured, as a flow is after some packets both ways.
    assert!((0..4).all(|_| asks() && answers()));
    cluster.policy("deny", deny("a"));
    assert!(!asks());
    // Neither way, if the server may not begin one.
    cluster.policy(
        "deny",
        Some(json!({"podSelector": of("a"), "policyTypes": ["Ingress", "Egress"]})),
    );
    assert!(!asks() && !answers());
    // What the server begins has its own answers.
    cluster.policy("deny", deny("a"));
    assert!(answers() && asks());
}

#[test]
fn changes_under_load_open_nothing_and_close_nothing() {
    let Some(lab) = lab("np-load") else { return };
    let mut cluster = Cluster::new(&lab);
    let allow = |port: u16| {
        let ports = json!([{"port": PORT}, {"port": port}]);
        let from = json!([{"podSelector": of("c")}]);
        Some(json!({"podSelector": of("a"), "ingress": [{"from": from, "ports": ports}]}))
    };
    cluster.policy("allow", allow(1));
    let a = cluster.pod("a").address;
    let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = cluster.pod("a").ns.run(bind).unwrap().unwrap();
    // Ends with the process.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    // Each change looks at all connections: those that are over would be ever more of them.
    for node in &cluster.nodes {
        let forget = || {
            for state in ["fin_wait", "last_ack", "time_wait", "close_wait", "close"] {
                let timeout = format!("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_{state}");
                std::fs::write(timeout, "1").unwrap();
            }
        };
        node.ns.run(forget).unwrap();
    }
    let ns = ["b", "c"].map(|pod| NetNs::open(cluster.pod(pod).ns.path()).unwrap());
    let is_over = AtomicBool::new(false);
    // How many of how many got through.
    let tries = |ns: &NetNs, patience: Duration| {
        let try_all = || {
            let (mut all, mut through) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                all += 1;
                let one = TcpStream::connect_timeout(&(a, PORT).into(), patience);
                through += usize::from(one.is_ok());
            }
            (all, through)
        };
        ns.run(try_all).unwrap()
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        // A short patience makes many first packets; a long one waits for what was lost.
        let refused = scope.spawn(|| tries(&ns[0], Duration::from_millis(3)));
        let allowed = scope.spawn(|| tries(&ns[1], Duration::from_secs(5)));
        for port in 1..60 {
            cluster.policy("allow", allow(port));
            cluster.policy("other", deny(if port % 2 == 0 { "b" } else { "a" }));
            cluster.policy("other", None);
        }
        is_over.store(true, Ordering::Relaxed);
        let (all, through) = refused.join().unwrap();
        assert!(all > 10 && through == 0, "{through} of {all}");
        let (all, through) = allowed.join().unwrap();
        eprintln!("{all} connections meanwhile: {:?}", started.elapsed());
        assert!(all > 10 && through == all, "{through} of {all}");
    });
}

#[test]
fn the_largest_policy_and_a_thousand_small_ones_hold() {
    let Some(lab) = lab("np-giant") else { return };
    let mut cluster = Cluster::new(&lab);
    let timed = |what: &str, cluster: &mut Cluster<'_>, work: &mut dyn FnMut(&mut Cluster<'_>)| {
        let started = Instant::now();
        work(cluster);
        eprintln!("{what}: {:?}", started.elapsed());
    };
    let peers: Vec<Value> = (0..2_000)
        .map(|number| json!({"podSelector": {"matchLabels": {"n": number.to_string()}}}))
        .collect();
    // Every other one, so that none joins another.
    let ports: Vec<Value> = (0..20_000)
        .map(|number| json!({"port": 2 * number + 2}))
        .collect();
    let holes: Vec<String> = (0..40_000)
        .map(|number| format!("10.{}.{}.0/31", number / 200, number % 200))
        .collect();
    let block = json!([{"ipBlock": {"cidr": "0.0.0.0/0", "except": holes}}]);
    let giant = json!({"podSelector": of("a"), "ingress": [
        {"from": peers, "ports": [{"port": 1}]}, {"from": block, "ports": ports}]});
    timed("giant", &mut cluster, &mut |cluster| {
        cluster.policy("giant", Some(giant.clone()))
    });
    // 8080 is one of the ports and no pod's address is in a hole; 8081 is none.
    assert_eq!(cluster.passing(8080), super::ALL);
    assert_eq!(cluster.passing(8081), "ab ac bc cb");
    timed("giant, away", &mut cluster, &mut |cluster| {
        cluster.policy("giant", None)
    });
    let name = |number: usize| format!("{:0>250}.{}", number, number % 7);
    timed("thousand", &mut cluster, &mut |cluster| {
        for number in 0..1_000 {
            let from = json!([{"podSelector": {"matchLabels": {"n": number.to_string()}}}]);
            let spec = json!({"podSelector": {}, "ingress": [{"from": from}]});
            for enforcer in &mut cluster.enforcers {
                enforcer.policy(&name(number), Some(spec.clone()));
            }
        }
        cluster.settle();
    });
    assert_eq!(cluster.passing(8080), "");
    let last = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": of("b")}]}]});
    timed("one more", &mut cluster, &mut |cluster| {
        cluster.policy("last", Some(last.clone()))
    });
    assert_eq!(cluster.passing(8080), "ba bc");
}
