//! What is particular to Services over nftables: the change from iptables and back, and what others
//! see.

use std::{
    io::Read as _,
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use coracle_netfilter::ProxyMode::{Auto, Iptables, Nftables};
use serde_json::{Value, json};

use super::{NEVER, OneNode, one_node};
use crate::{
    fake_api::{service, slice},
    harness::{Conversation, Lab, ask, echo, ip, lab_by, note, wait_for},
};

/// A Service at 10.96.0.10:80 with these endpoints on the first node.
fn put_web(lab: &Lab, more: &Value, addresses: &[Ipv4Addr]) {
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    lab.api
        .put("services", service("web", "10.96.0.10", &ports, more));
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let endpoints: Vec<_> = addresses.iter().map(|ip| (ip.as_str(), "n1")).collect();
    lab.api
        .put("endpointslices", slice("web", &target, &endpoints));
}

#[test]
fn engines_change_without_a_connection_lost_or_refused() {
    let Some(lab) = lab_by(Iptables, "change") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "b", "client", "echo"]);
    let _servers = (pods[0].serve("a"), pods[1].serve("b"));
    put_web(&lab, &json!({}), &[pods[0].address, pods[1].address]);
    echo(&pods[3].ns, 8080);
    let ports = json!([{"port": 7, "protocol": "TCP"}]);
    lab.api
        .put("services", service("echo", "10.96.0.7", &ports, &json!({})));
    let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    let address = pods[3].address.to_string();
    lab.api.put(
        "endpointslices",
        slice("echo", &target, &[(&address, "n1")]),
    );
    let mut proxy = Some(node.proxy_by(Iptables, NEVER));
    let client = &pods[2].ns;
    wait_for("answered", || ask(client, "10.96.0.10:80").is_ok());
    let mut conversation = Conversation::new(client, "10.96.0.7:7");
    conversation.say("first");
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ask(client, "10.96.0.10:80").unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for mode in [Nftables, Iptables, Nftables, Iptables] {
            // One ends before the other begins: two would take each other's rules away.
            drop(proxy.take());
            proxy = Some(node.proxy_by(mode, NEVER));
            let in_nft = || {
                node.nft(&["list", "map", "ip", "coracle", "services"])
                    .is_ok()
            };
            let in_iptables = || node.iptables_save().contains("CORACLE-SERVICES");
            wait_for("the other engine", || {
                (in_nft(), in_iptables()) == (mode == Nftables, mode == Iptables)
            });
            conversation.say("again");
            let before = asked.load(Ordering::Relaxed);
            wait_for("more connections", || {
                asking.is_finished() || asked.load(Ordering::Relaxed) > before + 20
            });
        }
        stop.store(true, Ordering::Relaxed);
        asking.join().unwrap();
    });
    conversation.say("later");
    note(&format!("{} connections meanwhile", asked.into_inner()));
}

#[test]
fn a_flushed_ruleset_is_healed_long_before_the_regular_comparison() {
    let Some(lab) = lab_by(Nftables, "nft-flush") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    let _server = pods[0].serve("a");
    put_web(&lab, &json!({}), &[pods[0].address]);
    let _proxy = node.proxy(NEVER);
    wait_for("answered", || ask(&pods[1].ns, "10.96.0.10:80").is_ok());
    let damages = [
        &["flush", "ruleset"][..],
        &["delete", "table", "ip", "coracle"],
        &["flush", "map", "ip", "coracle", "services"],
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        node.nft(damage).unwrap();
        let took = wait_for("healed", || node.count_services() > 0);
        note(&format!("{damage:?} healed: {took:?}"));
        // Long before it would have been looked untold. Who does it again waits.
        let limit = Duration::from_secs(5);
        assert!(number > 0 || took < limit, "nobody told: {took:?}");
        wait_for("answered", || ask(&pods[1].ns, "10.96.0.10:80").is_ok());
        wait_for("the refusal, too", || {
            ask(&pods[1].ns, "10.96.0.77:80")
                .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
        });
    }
}

#[test]
fn nftables_is_chosen_where_the_kernel_has_what_it_takes() {
    let Some(lab) = lab_by(Auto, "auto") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a"]);
    put_web(&lab, &json!({}), &[pods[0].address]);
    let _proxy = node.proxy(NEVER);
    let list = ["list", "map", "ip", "coracle", "services"];
    wait_for("its table", || {
        node.nft(&list)
            .is_ok_and(|text| text.contains("10.96.0.10"))
    });
    assert!(!node.iptables_save().contains("CORACLE-SERVICES"));
}

#[test]
fn iptables_is_chosen_where_the_kernel_refuses_what_it_takes() {
    let Some(lab) = lab_by(Auto, "auto-not") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "client"]);
    // In the way of the question: a set of this name is of another kind.
    for command in [
        "add table ip coracle-probe",
        "add set ip coracle-probe services { type mark; }",
    ] {
        node.nft(&command.split(' ').collect::<Vec<_>>()).unwrap();
    }
    put_web(&lab, &json!({}), &[pods[0].address]);
    let _server = pods[0].serve("a");
    let _proxy = node.proxy(NEVER);
    wait_for("answered", || ask(&pods[1].ns, "10.96.0.10:80").is_ok());
    assert!(node.service_rules().contains("-A CORACLE-SERVICES"));
    let tables = node.nft(&["list", "tables"]).unwrap();
    assert!(
        !tables.lines().any(|line| line == "table ip coracle"),
        "{tables}"
    );
    // What is another's stays.
    assert!(tables.contains("table ip coracle-probe"), "{tables}");
}

#[test]
fn the_program_nft_lists_what_is_written() {
    let Some(lab) = lab_by(Nftables, "nft-list") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a"]);
    let more = json!({"type": "LoadBalancer", "externalIPs": ["203.0.113.7"], "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": ["198.51.100.0/24"], "sessionAffinity": "ClientIP"});
    put_web(&lab, &more, &[pods[0].address, [10, 244, 1, 77].into()]);
    let mut plain = service(
        "plain",
        "10.96.0.11",
        &json!([{"port": 53, "protocol": "UDP", "nodePort": 30053}]),
        &json!({}),
    );
    plain["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
    plain["spec"]["loadBalancerSourceRanges"] = json!(["198.51.100.0/24", "192.0.2.7/32"]);
    lab.api.put("services", plain);
    let target = json!([{"name": "", "port": 5353, "protocol": "UDP"}]);
    lab.api.put(
        "endpointslices",
        slice("plain", &target, &[("10.244.2.5", "n2")]),
    );
    let _proxy = node.proxy(NEVER);
    wait_for("written", || node.count_services() >= 2);
    node.ns.run(|| ask_once("10.96.0.10:80")).unwrap();
    let text = node.nft(&["list", "ruleset"]).unwrap();
    let address = pods[0].address;
    for expected in [
        "10.96.0.10 . tcp . 80 : goto pick-2-for-10800",
        "203.0.113.7 . tcp . 80 : goto external-local",
        "0.0.0.0 . udp . 30053 : goto node-mark-pick-1",
        "10.96.0.11 . udp . 53 . 0x00000000 : 10.244.2.5 . 5353",
        &format!(": {address} . 8080"),
        "198.18.0.1 . 10.96.0.10 . tcp . 80 timeout 3h",
        "203.0.113.9 . udp . 53 . 198.51.100.0/24",
    ] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    let json = node.nft(&["-j", "list", "ruleset"]).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json.to_string().contains("10.96.0.10"));
}

/// Nobody answers; the table remembers the client all the same.
fn ask_once(address: &str) {
    let address = address.parse().unwrap();
    let _ = TcpStream::connect_timeout(&address, Duration::from_millis(50));
}

#[test]
fn very_many_clients_stay_with_their_endpoints() {
    const CLIENTS: u8 = 250;
    let Some(lab) = lab_by(Nftables, "nft-affinity") else {
        return;
    };
    let OneNode { node, pods } = one_node(&lab, &["a", "b", "c"]);
    let names = ["a", "b", "c"];
    let _servers: Vec<_> = names
        .iter()
        .zip(&pods)
        .map(|(name, pod)| pod.serve(name))
        .collect();
    let addresses: Vec<Ipv4Addr> = pods.iter().map(|pod| pod.address).collect();
    put_web(&lab, &json!({"sessionAffinity": "ClientIP"}), &addresses);
    node.ns
        .run(|| {
            for client in 1..=CLIENTS {
                ip(&["addr", "add", &format!("198.19.0.{client}/32"), "dev", "lo"]);
            }
        })
        .unwrap();
    let _proxy = node.proxy(NEVER);
    wait_for("answered", || ask(&node.ns, "10.96.0.10:80").is_ok());
    let ask_from = |client: u8| node.ns.run(|| ask_as([198, 19, 0, client].into())).unwrap();
    let first: Vec<String> = (1..=CLIENTS).map(ask_from).collect();
    for name in names {
        let count = first.iter().filter(|one| *one == name).count();
        assert!(count > 40, "{name}: {count} of {CLIENTS}");
    }
    let again: Vec<String> = (1..=CLIENTS).map(ask_from).collect();
    assert_eq!(first, again);
    // One endpoint goes: its clients find others and stay there, the rest stay where they are.
    put_web(
        &lab,
        &json!({"sessionAffinity": "ClientIP"}),
        &addresses[1..],
    );
    let gone = format!("{} . 8080", addresses[0]);
    wait_for("one less", || !node.service_rules().contains(&gone));
    let after: Vec<String> = (1..=CLIENTS).map(ask_from).collect();
    let moved = first.iter().zip(&after).filter(|(then, now)| then != now);
    assert!(moved.clone().all(|(then, now)| then == "a" && now != "a"));
    assert!(moved.count() > 40);
    let again: Vec<String> = (1..=CLIENTS).map(ask_from).collect();
    assert_eq!(after, again);
}

/// Who answers a client at this address of the node.
fn ask_as(client: Ipv4Addr) -> String {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
    use std::os::fd::AsRawFd as _;
    let family = AddressFamily::Inet;
    let one = socket(family, SockType::Stream, SockFlag::empty(), None).unwrap();
    let [a, b, c, d] = client.octets();
    bind(one.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
    connect(one.as_raw_fd(), &SockaddrIn::new(10, 96, 0, 10, 80)).unwrap();
    let mut answer = String::new();
    TcpStream::from(one).read_to_string(&mut answer).unwrap();
    answer.split(' ').next().unwrap().to_owned()
}
