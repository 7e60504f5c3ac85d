//! Both families, and SCTP.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    dual::{Dual, PORTS},
    raw::{Ipv4, Sniffer, echoes, ipv6_options, mac_of, sctp_init, send},
    world::PATIENCE,
};
use crate::harness::{lab, output};

const SCTP: u8 = 132;

fn of(pod: &str) -> Value {
    json!({"matchLabels": {"pod": pod}})
}

fn ingress(rules: Value) -> Value {
    json!({"podSelector": of("a"), "policyTypes": ["Ingress"], "ingress": rules})
}

#[test]
fn both_families_have_the_same_truth() {
    let Some(lab) = lab("np-dual") else { return };
    let mut dual = Dual::new(&lab);
    let reached = |dual: &Dual| [dual.ports("b"), dual.ports("c")];
    let all = [0, 1, 2, 3];
    assert_eq!(reached(&dual), [all, all]);
    let (b, c) = (dual.pod("b").1, dual.pod("c").1);
    let (second, third) = (PORTS.start + 1, PORTS.start + 2);
    let blocks = |except: IpAddr| {
        let (net, bits, own) = match except {
            IpAddr::V4(_) => ("10.77.0.0/16", 32, "10.77.9.0/24"),
            IpAddr::V6(_) => ("fd77::/16", 128, "fd77:9::/32"),
        };
        json!({"ipBlock": {"cidr": net, "except": [format!("{except}/{bits}"), own]}})
    };
    for (rules, expected) in [
        (json!([]), [&[][..], &[]]),
        (json!([{}]), [&all, &all]),
        (json!([{"from": [{"podSelector": of("c")}]}]), [&[], &all]),
        (
            json!([{"ports": [{"port": second, "endPort": third}]}]),
            [&[1, 2], &[1, 2]],
        ),
        (json!([{"ports": [{"port": "third"}]}]), [&[2], &[2]]),
        (json!([{"ports": [{"protocol": "UDP"}]}]), [&[], &[]]),
        (
            json!([{"from": [blocks(b[0]), blocks(b[1])], "ports": [{"port": second}]}]),
            [&[], &[1]],
        ),
        (json!([{"from": [blocks(c[0]), blocks(c[1])]}]), [&all, &[]]),
    ] {
        dual.policy(ingress(rules.clone()));
        assert_eq!(reached(&dual), expected.map(<[u16]>::to_vec), "{rules}");
        dual.forget_neighbours();
    }
    let out =
        |rules: Value| json!({"podSelector": of("b"), "policyTypes": ["Egress"], "egress": rules});
    for (rules, expected) in [
        (json!([]), &[][..]),
        (
            json!([{"to": [{"podSelector": of("a")}], "ports": [{"port": "third"}]}]),
            &[2],
        ),
        (json!([{"to": [blocks(c[0]), blocks(c[1])]}]), &all),
    ] {
        dual.policy(out(rules.clone()));
        assert_eq!(dual.ports("b"), expected, "{rules}");
        assert_eq!(dual.ports("c"), all, "{rules}");
    }
}

#[test]
fn errors_reach_who_may_send_and_nothing_else_does() {
    let Some(lab) = lab("np-errors") else { return };
    let mut dual = Dual::new(&lab);
    dual.policy(ingress(json!([])));
    for (family, any) in ["0.0.0.0:0", "[::]:0"].into_iter().enumerate() {
        let to = |pod: &str| SocketAddr::from((dual.pod(pod).1[family], 4999));
        let sends = |from: &str, to: SocketAddr| {
            let socket = dual
                .pod(from)
                .0
                .run(|| UdpSocket::bind(any))
                .unwrap()
                .unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send(&[7; 10]).unwrap();
            socket.recv(&mut [0]).unwrap_err().kind()
        };
        for peer in ["b", "c"] {
            dual.forget_neighbours();
            // Nobody listens: the peer's kernel says so to a, which lets nobody in.
            assert_eq!(sends("a", to(peer)), ErrorKind::ConnectionRefused, "{peer}");
            // From a's kernel there is nothing to be heard, since nothing gets there.
            assert_eq!(sends(peer, to("a")), ErrorKind::WouldBlock, "{peer}");
        }
        let answers = |from: &str, to: &str| echoes(&dual.pod(from).0, dual.pod(to).1[family]);
        assert!(answers("a", "b") && answers("a", "c"));
        assert!(!answers("b", "a") && !answers("c", "a"));
    }
}

#[test]
fn sctp_is_let_through_by_port_as_the_others_are() {
    let Some(lab) = lab("np-sctp") else { return };
    let mut dual = Dual::new(&lab);
    let reached = |dual: &Dual, from: &str| {
        let (ns, [to, _]) = dual.pod("a");
        let sniffer = Sniffer::new(ns);
        let (client, [source, _]) = dual.pod(from);
        let (IpAddr::V4(source), IpAddr::V4(to)) = (*source, *to) else {
            unreachable!("IPv4 is the first")
        };
        let next = if from == "c" { &dual.node.ns } else { ns };
        let link = if from == "c" { "to2" } else { "eth0" };
        let addresses = [mac_of(next, link), mac_of(client, "eth0")].concat();
        for port in PORTS {
            let packet = Ipv4 {
                from: source,
                to,
                protocol: SCTP,
                fragment: 0,
                options: &[],
                payload: &sctp_init(port),
            };
            send(client, &[&addresses[..], &[8, 0], &packet.bytes()].concat());
        }
        let ports = sniffer.ports(SCTP, Duration::from_millis(150));
        ports
            .into_iter()
            .map(|port| port - PORTS.start)
            .collect::<Vec<_>>()
    };
    let third = PORTS.start + 2;
    for (rules, expected) in [
        (json!([{}]), &[0, 1, 2, 3][..]),
        (json!([]), &[]),
        (
            json!([{"ports": [{"protocol": "SCTP", "port": PORTS.start, "endPort": third}]}]),
            &[0, 1, 2],
        ),
        (
            json!([{"ports": [{"protocol": "SCTP", "port": "third"}]}]),
            &[2],
        ),
        (json!([{"ports": [{"protocol": "SCTP"}]}]), &[0, 1, 2, 3]),
        (
            json!([{"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}]}]),
            &[],
        ),
    ] {
        dual.policy(ingress(rules.clone()));
        for from in ["b", "c"] {
            assert_eq!(reached(&dual, from), expected, "{from}: {rules}");
            // Each is a connection that the kernel remembers.
            dual.node.ns.run(|| output("conntrack", &["-F"])).unwrap();
        }
    }
}

#[test]
fn headers_before_the_port_hide_nothing() {
    let Some(lab) = lab("np-headers") else { return };
    let mut dual = Dual::new(&lab);
    dual.policy(ingress(
        json!([{"ports": [{"protocol": "UDP", "port": PORTS.start}]}]),
    ));
    let ((to, [_, a]), (from, [_, b])) = (dual.pod("a"), dual.pod("b"));
    let (IpAddr::V6(a), IpAddr::V6(b)) = (*a, *b) else {
        unreachable!("IPv6 is the second")
    };
    let addresses = [mac_of(to, "eth0"), mac_of(from, "eth0")].concat();
    let listeners = [0, 1].map(|more| {
        let any = (Ipv6Addr::UNSPECIFIED, PORTS.start + more);
        let listener = to.run(|| UdpSocket::bind(any)).unwrap().unwrap();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        listener
    });
    for options in 0..3 {
        for (more, listener) in (0..).zip(&listeners) {
            let packet = ipv6_options(b, a, options, PORTS.start + more);
            send(from, &[&addresses[..], &[0x86, 0xdd], &packet].concat());
            assert_eq!(
                listener.recv(&mut [0]).is_ok(),
                more == 0,
                "{options} {more}"
            );
        }
    }
}

#[test]
fn what_goes_to_everybody_goes_past_no_policy_in_ipv6() {
    let Some(lab) = lab("np-cast6") else { return };
    let mut dual = Dual::new(&lab);
    let all_nodes: Ipv6Addr = "ff02::1".parse().unwrap();
    let hears = |dual: &Dual| {
        let ((to, _), (from, [_, b])) = (dual.pod("a"), dual.pod("b"));
        let IpAddr::V6(b) = *b else {
            unreachable!("IPv6 is the second")
        };
        let any = (Ipv6Addr::UNSPECIFIED, 9100);
        let listener = to.run(|| UdpSocket::bind(any)).unwrap().unwrap();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        // To the group's hardware address, and to one pod's.
        [[0x33, 0x33, 0, 0, 0, 1], mac_of(to, "eth0")].map(|next| {
            let packet = ipv6_options(b, all_nodes, 0, 9100);
            let head = [&next[..], &mac_of(from, "eth0"), &[0x86, 0xdd]].concat();
            send(from, &[head, packet].concat());
            listener.recv(&mut [0]).is_ok()
        })
    };
    assert!(hears(&dual)[0]);
    dual.policy(ingress(json!([])));
    assert_eq!(hears(&dual), [false, false]);
    // Neighbours are found by packets to many all the same.
    dual.forget_neighbours();
    let b = dual.pod("b").1[1];
    assert!(dual.reaches("a", b, PORTS.start));
}
