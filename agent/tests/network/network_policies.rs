//! NetworkPolicies with real packets: two nodes, pods behind their bridges.

mod attacks;
mod dual;
mod echo;
mod families;
mod links;
mod raw;
mod refused;
mod repair;
mod world;

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use coracle_netfilter::{
    ProxyMode,
    nftables::policies::{NodeNetwork, Policies},
    policy::PolicyKey,
};
use coracle_policy::{
    objects::{Labels, PodKey, PodView},
    policy::Policy,
    tracker::Tracker,
};
use serde_json::{Value, json};

use self::{
    echo::Echo,
    world::{Cluster, Listening, PATIENCE, reaches},
};
use crate::{
    fake_api::{service, slice},
    harness::{Node, ip, lab, lab_by, output, wait_for},
};

const NEVER: Duration = Duration::from_secs(3600);
const ALL: &str = "ab ac ba bc ca cb";

#[test]
fn pods_reach_whom_policies_let_them_on_both_nodes() {
    let Some(lab) = lab("np-truth") else { return };
    let mut cluster = Cluster::new(&lab);
    assert_eq!(cluster.passing(8080), ALL);
    let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
    let from_b = json!([{"podSelector": of("b")}]);
    cluster.policy(
        "deny",
        Some(json!({"podSelector": of("a"), "policyTypes": ["Ingress"]})),
    );
    assert_eq!(cluster.passing(8080), "ab ac bc cb");
    // The node itself reaches its pods: probes.
    let a = cluster.pod("a").address;
    assert!(reaches(&cluster.nodes[0].ns, a, 8080));
    assert!(!reaches(&cluster.nodes[1].ns, a, 8080));
    cluster.policy(
        "allow",
        Some(json!({"podSelector": of("a"), "ingress": [{"from": from_b, "ports": [{"port": 8080}]}]})),
    );
    assert_eq!(cluster.passing(8080), "ab ac ba bc cb");
    assert_eq!(cluster.passing(8081), "ab ac bc cb");
    // A port's name is that of the pod that is reached.
    cluster.policy(
        "allow",
        Some(json!({"podSelector": of("a"), "ingress": [{"ports": [{"port": "web"}]}]})),
    );
    assert_eq!(cluster.passing(8080), "ab ac bc cb");
    assert_eq!(cluster.passing(8081), ALL);
    cluster.policy("allow", None);
    // Egress, by address: of the second node's pods none but c's.
    let c = cluster.pod("c").address;
    let block = json!([{"ipBlock": {"cidr": "10.244.0.0/16", "except": [format!("{c}/32")]}}]);
    cluster.policy(
        "deny",
        Some(json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": block}]})),
    );
    assert_eq!(cluster.passing(8080), "ab ba ca cb");
    cluster.policy("deny", None);
    assert_eq!(cluster.passing(8080), ALL);
    for node in &cluster.nodes {
        assert!(
            !tables(node).contains("coracle-policy"),
            "no policy, no table"
        );
    }
}

#[test]
fn endports_protocols_and_large_packets() {
    let Some(lab) = lab("np-ports") else { return };
    let mut cluster = Cluster::new(&lab);
    cluster.policy(
        "some",
        Some(json!({"podSelector": {}, "ingress": [
            {"ports": [{"port": 8000, "endPort": 8080}, {"protocol": "UDP", "port": 9000}]}]})),
    );
    assert_eq!(cluster.passing(8080), ALL);
    assert_eq!(cluster.passing(8081), "");
    // In pieces that only the first has a port of.
    let hears = |port: u16, bytes: usize, from: &str| {
        let to = SocketAddr::from((cluster.pod("a").address, port));
        let heard = cluster
            .pod("a")
            .ns
            .run(|| UdpSocket::bind(("0.0.0.0", port)));
        let heard = heard.unwrap().unwrap();
        heard.set_read_timeout(Some(PATIENCE)).unwrap();
        let sent = cluster.pod(from).ns.run(|| {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            socket.send_to(&vec![7; bytes], to)
        });
        sent.unwrap().unwrap();
        heard
            .recv(&mut vec![0; bytes])
            .is_ok_and(|read| read == bytes)
    };
    for from in ["b", "c"] {
        for bytes in [10, 4000] {
            assert!(hears(9000, bytes, from), "{bytes} bytes of {from}");
            assert!(!hears(9001, bytes, from), "{bytes} bytes of {from}");
        }
    }
}

#[test]
fn what_a_stricter_policy_refuses_is_cut() {
    let Some(lab) = lab("np-cut") else { return };
    let mut cluster = Cluster::new(&lab);
    let echo = Echo::new(&cluster.pod("a").ns);
    let [mut b, mut c] =
        ["b", "c"].map(|from| echo.connect(&cluster.pod(from).ns, cluster.pod("a").address));
    assert!(b.answers() && c.answers());
    let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
    let from_b = json!([{"podSelector": of("b")}]);
    cluster.policy(
        "only-b",
        Some(json!({"podSelector": of("a"), "ingress": [{"from": from_b}]})),
    );
    assert!(b.answers(), "what is allowed goes on");
    assert!(!c.answers(), "what is not is cut");
    // Neither end can take it up again, whoever sends first.
    echo.send_to_all();
    assert!(!c.answers() && b.answers());
    // A new one is let in as soon as the policy goes.
    cluster.policy("only-b", None);
    assert!(cluster.reaches("c", "a", 8080));
}

#[test]
fn services_lead_to_where_policies_ask() {
    for mode in [ProxyMode::Iptables, ProxyMode::Nftables] {
        let Some(lab) = lab_by(mode, "np-service") else {
            return;
        };
        let mut cluster = Cluster::new(&lab);
        let _proxy = cluster.nodes[0].proxy(NEVER);
        let web = service(
            "web",
            "10.96.0.7",
            &json!([{"port": 80, "protocol": "TCP"}]),
            &json!({}),
        );
        lab.api.put("services", web);
        let target = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
        let a = cluster.pod("a").address;
        lab.api.put(
            "endpointslices",
            slice("web", &target, &[(&a.to_string(), "n1")]),
        );
        let web = Ipv4Addr::new(10, 96, 0, 7);
        wait_for("the Service", || reaches(&cluster.pod("b").ns, web, 80));
        let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
        cluster.policy(
            "deny",
            Some(json!({"podSelector": of("a"), "policyTypes": ["Ingress", "Egress"]})),
        );
        assert!(!reaches(&cluster.pod("b").ns, web, 80), "{mode:?}");
        // A pod cannot be kept from itself, also by way of a Service.
        assert!(reaches(&cluster.pod("a").ns, web, 80), "{mode:?}");
        assert!(reaches(&cluster.pod("a").ns, a, 8080), "{mode:?}");
        let from_b = json!([{"podSelector": of("b")}]);
        let ports = json!([{"port": 8080}]);
        cluster.policy(
            "allow",
            Some(json!({"podSelector": of("a"), "ingress": [{"from": from_b, "ports": ports}]})),
        );
        assert!(reaches(&cluster.pod("b").ns, web, 80), "{mode:?}");
    }
}

#[test]
fn pods_that_come_and_go_are_elements() {
    let Some(lab) = lab("np-churn") else { return };
    let mut cluster = Cluster::new(&lab);
    let from = json!([{"namespaceSelector": {"matchLabels": {"ns": "ns"}}}]);
    cluster.policy(
        "from-all",
        Some(json!({"podSelector": {}, "ingress": [{"from": from}]})),
    );
    let (node, enforcer) = (&cluster.nodes[0], &mut cluster.enforcers[0]);
    let before = table(node);
    let started = Instant::now();
    const PODS: u16 = 1000;
    let view = |number: u16| PodView {
        key: PodKey::new("ns", &format!("p{number}")),
        labels: Labels::new([("pod", "p")]),
        addresses: vec![Ipv4Addr::from_bits(0x0af4_0900 + u32::from(number)).into()],
        node: "n3".into(),
        ports: Vec::new(),
    };
    for number in 0..PODS {
        let view = view(number);
        enforcer.tracker.set_pod(&view.key.clone(), Some(view));
        assert!(enforcer.settle(node).is_elements_only());
    }
    eprintln!("{PODS} pods came in {:?}", started.elapsed());
    assert_eq!(
        table(node).matches("10.244.9.7,").count(),
        1,
        "one group has it"
    );
    for number in 0..PODS {
        enforcer.tracker.set_pod(&view(number).key, None);
        assert!(enforcer.settle(node).is_elements_only());
    }
    assert_eq!(table(node), before);
}

#[test]
fn the_node_s_own_service_is_asked_by_those_who_may() {
    let Some(lab) = lab("np-dns") else { return };
    let cluster = Cluster::new(&lab);
    let own = Ipv4Addr::new(10, 96, 0, 10);
    let node = &cluster.nodes[0];
    node.ns
        .run(|| ip(&["addr", "add", "10.96.0.10/32", "dev", "lo"]))
        .unwrap();
    // As the agent has it: nothing of it is followed.
    node.ns
        .run(|| {
            for (chain, port) in [("PREROUTING", "--dport"), ("OUTPUT", "--sport")] {
                let rule = [
                    "-t", "raw", "-A", chain, "-p", "tcp", port, "53", "-j", "NOTRACK",
                ];
                output("iptables", &rule);
            }
        })
        .unwrap();
    let mut tracker = Tracker::new("n1");
    let mut engine = Policies::new(NodeNetwork {
        own_service_ips: vec![own.into()],
        bridge: None,
    });
    let dns = PodView {
        key: PodKey::new("kube-system", "dns"),
        labels: Labels::new([("k8s-app", "kube-dns")]),
        addresses: vec![own.into()],
        node: "".into(),
        ports: Vec::new(),
    };
    tracker.set_pod(&dns.key.clone(), Some(dns));
    tracker.set_namespace("kube-system", Some(Labels::default()));
    for at in [0, 1] {
        let view = cluster.view(at);
        tracker.set_pod(&view.key.clone(), Some(view));
    }
    let mut policy = |spec: Value| {
        let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"namespace": "ns", "name": "p"}, "spec": spec});
        let parsed = Policy::from_object(&serde_json::from_value(object).unwrap()).unwrap();
        let key = PolicyKey {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
        };
        tracker.set_policy(&key, Some(parsed));
        let change = tracker.changes();
        node.ns.run(|| engine.apply(&change).unwrap()).unwrap();
    };
    let echo = Echo::on(&node.ns, 53);
    let asks = |pod: &str| {
        let connection = echo.try_connect(&cluster.pod(pod).ns, own);
        connection.is_some_and(|mut connection| connection.answers())
    };
    assert!(asks("a") && asks("b"));
    let of_a = json!({"matchLabels": {"pod": "a"}});
    policy(json!({"podSelector": of_a, "policyTypes": ["Egress"]}));
    assert!(!asks("a") && asks("b"));
    // The node itself is reached all the same.
    let _kubelet = Listening::new(&node.ns, 10250);
    assert!(reaches(&cluster.pod("a").ns, node.address, 10250));
    let dns =
        json!([{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}]);
    policy(json!({"podSelector": of_a, "policyTypes": ["Egress"],
        "egress": [{"to": dns, "ports": [{"port": 53, "protocol": "TCP"}]}]}));
    assert!(asks("a") && asks("b"));
}

fn tables(node: &Node) -> String {
    node.ns.run(|| output("nft", &["list", "tables"])).unwrap()
}

/// As the program `nft` shows it.
fn table(node: &Node) -> String {
    let list = ["list", "table", "ip", "coracle-policy"];
    let shown = node.ns.run(|| {
        let tables = output("nft", &["list", "tables"]);
        let is_there = tables.contains("table ip coracle-policy");
        is_there.then(|| output("nft", &list))
    });
    shown.unwrap().unwrap_or_default()
}
