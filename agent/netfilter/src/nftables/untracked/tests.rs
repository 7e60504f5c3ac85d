//! What a kernel makes of the table, and who takes it over.

use std::{net::UdpSocket, process::Command};

use super::*;
use crate::{
    conntrack::udp_flows,
    ground::{nft, on_ground},
    iptables::Untracked as OverIptables,
};

const ADDRESS: &str = "10.96.0.10";

fn address() -> IpAddr {
    ADDRESS.parse().unwrap()
}

fn engine() -> Untracked {
    Untracked::new(Some(Iptables::find().unwrap()))
}

fn is_over_iptables() -> bool {
    let saved = Iptables::find().unwrap().save(untracked::TABLE).unwrap();
    saved.contains("CORACLE-DNS")
}

fn ip(words: &str) {
    let run = Command::new("ip").args(words.split(' ')).status();
    assert!(run.unwrap().success(), "ip {words}");
}

/// Ports that the kernel has seen a datagram to.
fn followed() -> Vec<u16> {
    for port in [53, 54] {
        let socket = UdpSocket::bind((ADDRESS, port)).unwrap();
        let asker = UdpSocket::bind((ADDRESS, 0)).unwrap();
        asker.send_to(b"question", (ADDRESS, port)).unwrap();
        let (_, from) = socket.recv_from(&mut [0; 16]).unwrap();
        socket.send_to(b"answer", from).unwrap();
        asker.recv_from(&mut [0; 16]).unwrap();
    }
    let mut ports = Vec::new();
    udp_flows(|flow| {
        ports.push(flow.destination_port);
        true
    })
    .unwrap();
    ports.sort_unstable();
    ports
}

#[test]
fn questions_and_answers_are_no_connections_over_nftables() {
    on_ground("names", || {
        ip("link set lo up");
        ip("address add 10.96.0.10/32 dev lo");
        // Connections are followed once somebody asks for them.
        nft("add table ip t");
        nft("add chain ip t c { type filter hook output priority 0; }");
        nft("add rule ip t c ct state new counter");
        assert_eq!(followed(), [53, 54]);
        crate::conntrack::delete(&udp_flows(|_| true).unwrap()).unwrap();
        let mut engine = engine();
        assert!(engine.ensure(address()).unwrap());
        assert_eq!(followed(), [54]);
        assert!(!engine.ensure(address()).unwrap() && !engine.is_disturbed());
        let listed = nft("list table ip coracle-names");
        for part in ["10.96.0.10 . udp . 53", "10.96.0.10 . tcp . 53", "notrack"] {
            assert!(listed.contains(part), "{part}: {listed}");
        }
    });
}

#[test]
fn what_others_change_of_untracked_is_repaired() {
    on_ground("names-repair", || {
        let mut engine = engine();
        engine.ensure(address()).unwrap();
        let listed = || nft("list table ip coracle-names");
        let before = listed();
        for damage in [
            "flush ruleset",
            "flush set ip coracle-names servers",
            "flush chain ip coracle-names output",
            "add element ip coracle-names servers { 10.9.9.9 . tcp . 80 }",
        ] {
            nft(damage);
            assert!(engine.is_disturbed(), "{damage}");
            assert!(engine.ensure(address()).unwrap(), "{damage}");
            assert_eq!(listed(), before, "{damage}");
        }
        // Another address; and a successor that finds what it would write.
        engine = self::engine();
        assert!(engine.ensure("10.96.0.11".parse().unwrap()).unwrap());
        assert!(!listed().contains(ADDRESS));
        remove().unwrap();
        remove().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}

#[test]
fn each_engine_takes_untracked_over_from_the_other() {
    on_ground("names-takeover", || {
        for _ in 0..2 {
            let leave = || remove().map_err(EngineError::new);
            let mut over_iptables = OverIptables::new(Iptables::find().unwrap(), leave);
            over_iptables.ensure(address()).unwrap();
            assert!(is_over_iptables());
            assert!(!nft("list tables").contains("coracle-names"));
            engine().ensure(address()).unwrap();
            assert!(!is_over_iptables());
            assert!(nft("list tables").contains("coracle-names"));
        }
    });
}

#[test]
fn without_iptables_nothing_is_asked_of_it() {
    on_ground("names-alone", || {
        probe().unwrap();
        assert_eq!(nft("list ruleset"), "");
        Untracked::new(None).ensure(address()).unwrap();
        assert_eq!(nft("list tables"), "table ip coracle-names\n");
        engine().ensure(address()).unwrap();
        // A table that nobody has used is not made by looking for rules in it.
        assert_eq!(nft("list tables"), "table ip coracle-names\n");
    });
}
