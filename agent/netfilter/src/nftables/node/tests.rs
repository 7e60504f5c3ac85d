//! The node's tables, and what a kernel makes of them.

mod variants;

use std::process::Command;

use super::{
    super::{
        batch::Data,
        kernel::{elements, present},
        transition::Elements,
    },
    elements::{of, of_overlay},
    layout::name,
    *,
};
use crate::{
    ground::{nft, on_ground},
    host_port::{HostPort, PodPorts},
    iptables::NodeRules,
    masquerade::Masquerade,
    node::Envelopes,
    service::Protocol,
};

fn pod(last: u8, ports: &[(Protocol, Option<[u8; 4]>, u16)]) -> PodPorts {
    let port = |(protocol, host_ip, host_port): &(Protocol, Option<[u8; 4]>, u16)| HostPort {
        protocol: *protocol,
        host_ip: host_ip.map(Into::into),
        host_port: *host_port,
        container_port: 80,
    };
    PodPorts {
        id: format!("pod-{last}"),
        address: [10, 244, 1, last].into(),
        ports: ports.iter().map(port).collect(),
    }
}

fn plan() -> NodePlan {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    NodePlan {
        masquerade: Some(Masquerade {
            network: "coracle".to_owned(),
            subnet: "10.244.1.0/24".parse().unwrap(),
            translate: true,
            except: nets(&["10.244.0.0/16", "198.18.0.1/32", "198.18.0.9/32"]),
        }),
        host_ports: vec![
            pod(
                2,
                &[(Protocol::Tcp, None, 8080), (Protocol::Udp, None, 8080)],
            ),
            pod(3, &[(Protocol::Sctp, Some([198, 18, 0, 1]), 8080)]),
        ],
        overlay: Overlay::Port(Envelopes {
            pods: "10.244.0.0/16".parse().unwrap(),
            port: 8472,
            nodes: Some([[198, 18, 0, 9], [198, 18, 1, 9]].map(Into::into).into()),
        }),
    }
}

/// What there is of a table.
fn held(table: &Table) -> Elements {
    let sets = present(table).unwrap().expect("a table").sets;
    let of = |set: String| {
        let elements = elements(table, &set).unwrap();
        (!elements.is_empty()).then_some((set, elements))
    };
    sets.into_keys().filter_map(of).collect()
}

#[track_caller]
fn assert_kernel_has(plan: &NodePlan) {
    assert_eq!(held(&TABLE), of(plan));
    match &plan.overlay {
        Overlay::Port(envelopes) => assert_eq!(held(&GUARD), of_overlay(envelopes)),
        _ => assert_eq!(present(&GUARD).unwrap(), None),
    }
}

fn ours(table: &str) -> Vec<String> {
    let saved = Iptables::find().unwrap().save(table).unwrap();
    let own = saved.lines().filter(|line| line.contains("CORACLE-"));
    own.map(str::to_owned).collect()
}

fn iptables(words: &[&str]) {
    assert!(
        Command::new("iptables")
            .args(words)
            .status()
            .unwrap()
            .success()
    );
}

fn engine() -> Node {
    Node::new(Some(Iptables::find().unwrap()))
}

#[test]
fn ranges_that_pods_are_seen_in_do_not_overlap() {
    let all = of(&plan());
    let itself: Vec<String> = all[name::ITSELF]
        .keys()
        .map(|key| {
            let last = key.last.as_ref().unwrap();
            let quad = |bytes: &[u8]| {
                bytes
                    .iter()
                    .map(u8::to_string)
                    .collect::<Vec<_>>()
                    .join(".")
            };
            format!("{}-{}", quad(&key.first[4..]), quad(&last[4..]))
        })
        .collect();
    assert_eq!(
        itself,
        [
            "10.244.0.0-10.244.255.255",
            "198.18.0.1-198.18.0.1",
            "198.18.0.9-198.18.0.9",
            "224.0.0.0-239.255.255.255",
        ]
    );
    let mut still = plan();
    still.masquerade.as_mut().unwrap().translate = false;
    let all = of(&still);
    assert!(!all.contains_key(name::ITSELF) && !all.contains_key(name::OUTGOING));
    assert!(
        all[name::HOST_PORTS]
            .values()
            .all(|data| matches!(data, Data::Value(_)))
    );
}

#[test]
fn the_kernel_has_what_the_node_plans_and_nft_lists_it() {
    on_ground("node", || {
        let mut engine = engine();
        let mut plan = plan();
        assert!(engine.reconcile(&plan).unwrap());
        assert_kernel_has(&plan);
        assert!(!engine.reconcile(&plan).unwrap() && !engine.is_disturbed());
        let listed = nft("list ruleset");
        for part in [
            "0.0.0.0 . tcp . 8080 : 10.244.1.2 . 80",
            "198.18.0.1 . sctp . 8080 : 10.244.1.3 . 80",
            "10.244.1.0/24 . 10.244.0.0/16",
            "masquerade fully-random",
        ] {
            assert!(listed.contains(part), "{part}: {listed}");
        }
        let rules = || nft("-a -t list table ip coracle-node");
        let before = rules();
        plan.host_ports.remove(0);
        plan.host_ports.push(pod(4, &[(Protocol::Tcp, None, 8080)]));
        engine.write(&plan, Part::HostPorts).unwrap();
        assert_kernel_has(&plan);
        let masquerade = plan.masquerade.as_mut().unwrap();
        masquerade.except = vec!["10.244.0.0/15".parse().unwrap()];
        engine.write(&plan, Part::Masquerade).unwrap();
        assert_kernel_has(&plan);
        assert_eq!(rules(), before, "elements only");
        let guard = || nft("-a -t list table ip coracle-overlay");
        let before = guard();
        let nodes = |nodes: Option<[[u8; 4]; 2]>| {
            Overlay::Port(Envelopes {
                pods: "10.244.0.0/16".parse().unwrap(),
                port: 8472,
                nodes: nodes.map(|nodes| nodes.map(Into::into).into()),
            })
        };
        for overlay in [nodes(Some([[198, 18, 0, 9], [198, 18, 2, 9]])), nodes(None)] {
            plan.overlay = overlay;
            engine.write(&plan, Part::Overlay).unwrap();
            assert_kernel_has(&plan);
            assert_eq!(guard(), before, "elements only");
        }
        plan.overlay = Overlay::None;
        engine.write(&plan, Part::Overlay).unwrap();
        assert_kernel_has(&plan);
        assert!(!engine.is_disturbed());
    });
}

#[test]
fn what_others_change_of_the_nodes_rules_is_repaired() {
    on_ground("node-repair", || {
        let (mut engine, plan) = (engine(), plan());
        engine.reconcile(&plan).unwrap();
        nft("add table ip somebody");
        assert!(engine.is_disturbed());
        assert!(!engine.reconcile(&plan).unwrap() && !engine.is_disturbed());
        for damage in [
            "flush ruleset",
            "delete table ip coracle-node",
            "flush chain ip coracle-node postrouting",
            "flush map ip coracle-node host-ports",
            "add element ip coracle-node hairpins { 10.9.9.9 . 10.9.9.9 }",
            "insert rule ip coracle-overlay forward accept",
            "delete table ip coracle-overlay",
            "add table ip coracle-overlay { flags dormant; }",
            "add table ip coracle-node { flags dormant; }",
        ] {
            nft(damage);
            assert!(engine.is_disturbed(), "{damage}");
            assert!(engine.reconcile(&plan).unwrap(), "{damage}");
            assert_kernel_has(&plan);
            assert!(!nft("list ruleset").contains("dormant"), "{damage}");
            assert!(!engine.reconcile(&plan).unwrap(), "{damage}");
        }
        let listed = nft("list table ip coracle-overlay");
        assert!(!listed.contains("accept\n\t}"), "{listed}");
        // Whoever does not know yet whether there is an overlay leaves its rules.
        let mut successor = Node::new(None);
        let unknown = NodePlan {
            overlay: Overlay::Unknown,
            ..plan.clone()
        };
        successor.reconcile(&unknown).unwrap();
        assert_kernel_has(&plan);
    });
}

/// The server may be away when the engine changes: then nobody tells of the overlay.
#[test]
fn pods_are_kept_out_of_an_overlay_that_nobody_has_told_of() {
    on_ground("node-untold", || {
        let plan = plan();
        let unknown = NodePlan {
            overlay: Overlay::Unknown,
            ..plan.clone()
        };
        engine().reconcile(&plan).unwrap();
        let leave = |overlay: &Overlay| remove_known(overlay).map_err(EngineError::new);
        let mut over_iptables = NodeRules::new(Iptables::find().unwrap(), leave);
        over_iptables.reconcile(&unknown).unwrap();
        assert_eq!(present(&TABLE).unwrap(), None);
        assert!(present(&GUARD).unwrap().is_some());
        over_iptables.write(&plan, Part::Overlay).unwrap();
        over_iptables.reconcile(&plan).unwrap();
        assert_eq!(present(&GUARD).unwrap(), None);
        assert!(!ours("raw").is_empty());
        engine().reconcile(&unknown).unwrap();
        assert!(!ours("raw").is_empty());
    });
}

/// A table that is another program's own is not to be changed.
#[test]
fn a_table_that_is_anothers_keeps_no_other_from_its_rules() {
    on_ground("node-owned", || {
        let owner = Command::new("nft")
            .arg("-i")
            .stdin(std::process::Stdio::piped())
            .spawn();
        let mut owner = owner.unwrap();
        let mut input = owner.stdin.take().unwrap();
        let owned = b"add table ip coracle-node { flags owner; }\n";
        std::io::Write::write_all(&mut input, owned).unwrap();
        let started = std::time::Instant::now();
        while present(&TABLE).unwrap().is_none() {
            assert!(started.elapsed() < std::time::Duration::from_secs(10));
            std::thread::yield_now();
        }
        let (mut engine, plan) = (engine(), plan());
        let refused = engine.reconcile(&plan).unwrap_err().to_string();
        assert!(refused.contains("coracle-node"), "{refused}");
        assert!(present(&GUARD).unwrap().is_some());
        drop(input);
        owner.wait().unwrap();
        engine.reconcile(&plan).unwrap();
        assert_kernel_has(&plan);
    });
}

#[test]
fn each_engine_takes_the_nodes_rules_over_from_the_other() {
    on_ground("node-takeover", || {
        let plan = plan();
        for _ in 0..2 {
            let leave = |overlay: &Overlay| remove_known(overlay).map_err(EngineError::new);
            let mut over_iptables = NodeRules::new(Iptables::find().unwrap(), leave);
            over_iptables.reconcile(&plan).unwrap();
            assert_eq!(present(&TABLE).unwrap(), None);
            assert_eq!(present(&GUARD).unwrap(), None);
            let tables = ["nat", "filter", "raw", "mangle"];
            assert!(crate::nftables::has_chains("CORACLE-").unwrap());
            assert!(tables.iter().all(|table| !ours(table).is_empty()));
            let mut over_nftables = engine();
            over_nftables.reconcile(&plan).unwrap();
            assert_kernel_has(&plan);
            assert!(!crate::nftables::has_chains("CORACLE-").unwrap());
            for table in tables {
                assert_eq!(ours(table), Vec::<String>::new(), "{table}");
            }
        }
        // What another network's plugin has written is that network's.
        let mut other = plan.masquerade.clone().unwrap();
        other.network = "other".to_owned();
        other.subnet = "10.9.0.0/24".parse().unwrap();
        masquerade::ensure(&Iptables::find().unwrap(), &other).unwrap();
        engine().reconcile(&plan).unwrap();
        let left = ours("nat");
        assert!(
            left.iter().any(|line| line.contains("10.9.0.0/24")),
            "{left:?}"
        );
    });
}

#[test]
fn iptables_has_the_permission_where_it_decides_on_forwarding() {
    on_ground("node-forward", || {
        let (mut engine, plan) = (engine(), plan());
        engine.reconcile(&plan).unwrap();
        assert!(
            !nft("list tables").contains("table ip filter"),
            "nobody uses it"
        );
        let permitted = "-A CORACLE-CNI -s 10.244.1.0/24 -j ACCEPT";
        let is_permitted = || ours("filter").iter().any(|line| line == permitted);
        let steps: [(&[&str], bool); 7] = [
            (&["-P", "FORWARD", "DROP"], true),
            (&["-P", "FORWARD", "ACCEPT"], false),
            (&["-A", "FORWARD", "-i", "eth9", "-j", "DROP"], true),
            (&["-F", "FORWARD"], false),
            (&["-A", "FORWARD", "-j", "REJECT"], true),
            (&["-F", "FORWARD"], false),
            (&["-A", "INPUT", "-i", "eth9", "-j", "DROP"], false),
        ];
        for (words, expected) in steps {
            iptables(words);
            assert!(engine.is_disturbed());
            engine.reconcile(&plan).unwrap();
            assert_eq!(is_permitted(), expected, "{words:?}");
            // What it wrote itself is looked at once more.
            engine.reconcile(&plan).unwrap();
            assert!(!engine.reconcile(&plan).unwrap());
        }
    });
}

#[test]
fn asking_for_the_nodes_tables_leaves_nothing() {
    on_ground("node-probe", || {
        probe().unwrap();
        assert_eq!(nft("list ruleset"), "");
        engine().reconcile(&plan()).unwrap();
        remove().unwrap();
        remove().unwrap();
        assert_eq!(nft("list ruleset"), "");
    });
}
