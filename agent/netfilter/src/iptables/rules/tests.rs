//! Golden text, and a packet tracer: "from A to B:80 ends at C:8080".

mod tracer;

use std::net::SocketAddr;

use self::tracer::{Outcome, Tracer};
use super::{
    balance::{port_hash, probability},
    *,
};
use crate::{
    iptables::plan::{Chains, reconcile, transaction},
    service::{Endpoint, Port, PortView, Protocol, ServiceKey, ServiceView},
};

const POD: &str = "10.244.1.9";
const NODE: &str = "192.168.0.1";

fn base() -> BaseRules {
    let network = ServiceNetwork::new(
        &["10.244.0.0/16".parse().unwrap()],
        &["10.96.0.0/16".parse().unwrap()],
    );
    BaseRules::new(
        network
            .with_pod_interface(Some("coracle0".into()))
            .with_node_ip(NODE.parse().ok()),
    )
}

/// Ready endpoints of one port.
fn view_of(port: Port, endpoints: Vec<Endpoint>) -> PortView {
    let local = endpoints.iter().filter(|e| e.local).copied().collect();
    let serving = endpoints.iter().map(|e| e.address.ip()).collect();
    PortView {
        port,
        cluster: endpoints,
        local,
        serving,
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: "http".into(),
        protocol,
        port,
        node_port: None,
    }
}

fn endpoint(address: &str, local: bool) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        local,
    }
}

/// Three endpoints, the first of them local, behind 10.96.0.10:80.
fn web() -> ServiceView {
    let endpoints = vec![
        endpoint("10.244.1.2:8080", true),
        endpoint("10.244.2.2:8080", false),
        endpoint("10.244.3.2:8080", false),
    ];
    ServiceView {
        cluster_ips: vec![[10, 96, 0, 10].into()],
        ports: vec![view_of(port(Protocol::Tcp, 80), endpoints)],
        ..ServiceView::default()
    }
}

fn tracer(views: &[(&str, ServiceView)]) -> Tracer {
    let base = base();
    let services: Vec<ServiceRules> = views
        .iter()
        .map(|(name, view)| base.service(&key(name), view))
        .collect();
    Tracer::new(
        base.nat(services.iter()),
        base.filter(services.iter()),
        &[NODE, "127.0.0.1"],
    )
}

fn to(address: &str) -> Outcome {
    Outcome::Delivered {
        to: address.parse::<SocketAddr>().unwrap(),
        masqueraded: false,
    }
}

fn masqueraded(address: &str) -> Outcome {
    Outcome::Delivered {
        to: address.parse::<SocketAddr>().unwrap(),
        masqueraded: true,
    }
}

#[test]
fn one_service_is_this_text() {
    let base = base();
    let service = base.service(&key("web"), &web());
    let nat = transaction(
        "nat",
        &reconcile(&Chains::new(), &base.nat([&service].into_iter())),
    );
    let filter = transaction(
        "filter",
        &reconcile(&Chains::new(), &base.filter([&service].into_iter())),
    );
    assert_eq!(nat + &filter, include_str!("golden/web.rules"));
}

#[test]
fn affinity_and_node_port_are_this_text() {
    let base = base();
    let mut view = web();
    view.affinity_secs = Some(600);
    view.ports[0].port.node_port = Some(30080);
    view.ports[0].cluster.truncate(2);
    let service = base.service(&key("web"), &view);
    let text: Vec<String> = service
        .chains
        .iter()
        .flat_map(|(name, rules)| rules.iter().map(move |rule| format!("{name} {rule}")))
        .chain(
            service
                .services
                .iter()
                .map(|rule| format!("{SERVICES} {rule}")),
        )
        .chain(
            service
                .node_ports
                .iter()
                .map(|rule| format!("{NODE_PORTS} {rule}")),
        )
        .collect();
    assert_eq!(
        text.join("\n") + "\n",
        include_str!("golden/affinity.rules")
    );
}

#[test]
fn packets_end_where_they_should() {
    let mut web = web();
    web.ports[0].port.node_port = Some(30080);
    web.external_ips = vec![[203, 0, 113, 7].into()];
    let dns = ServiceView {
        cluster_ips: vec![[10, 96, 0, 53].into()],
        ports: vec![
            view_of(
                port(Protocol::Udp, 53),
                vec![endpoint("10.244.2.3:5353", false)],
            ),
            view_of(
                port(Protocol::Tcp, 53),
                vec![endpoint("10.244.2.3:5354", false)],
            ),
        ],
        ..ServiceView::default()
    };
    let mut empty = web.clone();
    empty.cluster_ips = vec![[10, 96, 0, 11].into()];
    empty.external_ips = vec![[203, 0, 113, 8].into()];
    empty.ports[0] = view_of(empty.ports[0].port.clone(), vec![]);
    empty.ports[0].port.node_port = Some(30081);
    let tracer = tracer(&[("web", web), ("dns", dns), ("empty", empty)]);
    let cases: &[(&str, Protocol, &str, usize, Outcome)] = &[
        (
            POD,
            Protocol::Tcp,
            "10.96.0.10:80",
            0,
            to("10.244.1.2:8080"),
        ),
        (
            POD,
            Protocol::Tcp,
            "10.96.0.10:80",
            1,
            to("10.244.2.2:8080"),
        ),
        (
            POD,
            Protocol::Tcp,
            "10.96.0.10:80",
            2,
            to("10.244.3.2:8080"),
        ),
        // Itself; and another endpoint of its own Service under its own address.
        (
            "10.244.1.2",
            Protocol::Tcp,
            "10.96.0.10:80",
            0,
            masqueraded("10.244.1.2:8080"),
        ),
        (
            "10.244.1.2",
            Protocol::Tcp,
            "10.96.0.10:80",
            1,
            to("10.244.2.2:8080"),
        ),
        // From nodes: the answer must come back through here.
        (
            NODE,
            Protocol::Tcp,
            "10.96.0.10:80",
            0,
            masqueraded("10.244.1.2:8080"),
        ),
        (
            "192.0.2.5",
            Protocol::Tcp,
            "192.168.0.1:30080",
            1,
            masqueraded("10.244.2.2:8080"),
        ),
        (
            POD,
            Protocol::Tcp,
            "203.0.113.7:80",
            2,
            masqueraded("10.244.3.2:8080"),
        ),
        (
            POD,
            Protocol::Udp,
            "10.96.0.53:53",
            0,
            to("10.244.2.3:5353"),
        ),
        (
            POD,
            Protocol::Tcp,
            "10.96.0.53:53",
            0,
            to("10.244.2.3:5354"),
        ),
        // Directly, without the proxy.
        (
            POD,
            Protocol::Tcp,
            "10.244.2.2:8080",
            0,
            to("10.244.2.2:8080"),
        ),
        (
            "10.244.1.2",
            Protocol::Tcp,
            "10.244.1.2:8080",
            0,
            to("10.244.1.2:8080"),
        ),
        (POD, Protocol::Tcp, "192.0.2.5:443", 0, to("192.0.2.5:443")),
        // No endpoint, no such port, no such Service, wrong protocol.
        (
            POD,
            Protocol::Tcp,
            "10.96.0.11:80",
            0,
            Outcome::Rejected("tcp-reset"),
        ),
        (
            POD,
            Protocol::Tcp,
            "10.96.0.10:81",
            0,
            Outcome::Rejected("tcp-reset"),
        ),
        (
            NODE,
            Protocol::Udp,
            "10.96.77.77:53",
            0,
            Outcome::Rejected("icmp-port-unreachable"),
        ),
        (
            POD,
            Protocol::Udp,
            "10.96.0.10:80",
            0,
            Outcome::Rejected("icmp-port-unreachable"),
        ),
        (
            POD,
            Protocol::Tcp,
            "203.0.113.8:80",
            0,
            Outcome::Rejected("tcp-reset"),
        ),
        (
            "192.0.2.5",
            Protocol::Tcp,
            "192.168.0.1:30081",
            0,
            Outcome::Rejected("tcp-reset"),
        ),
        // Loopback is never translated (CVE-2020-8558).
        (
            NODE,
            Protocol::Tcp,
            "127.0.0.1:30080",
            0,
            to("127.0.0.1:30080"),
        ),
    ];
    for (from, protocol, target, choice, expected) in cases {
        let outcome = tracer.trace(
            from.parse().unwrap(),
            *protocol,
            target.parse().unwrap(),
            *choice,
        );
        assert_eq!(
            outcome, *expected,
            "{from} to {protocol:?} {target}, choice {choice}"
        );
    }
}

const OUTSIDE: &str = "192.0.2.5";
/// A pod of another node.
const FAR_POD: &str = "10.244.7.7";

/// `web` with a node port, an external and a balancer address.
fn exposed() -> ServiceView {
    let mut view = web();
    view.ports[0].port.node_port = Some(30080);
    view.external_ips = vec![[203, 0, 113, 7].into()];
    view.balancer_ips = vec![[203, 0, 113, 8].into()];
    view
}

fn check(view: ServiceView, cases: &[(&str, &str, usize, Outcome)]) {
    let tracer = tracer(&[("web", view)]);
    for (from, target, choice, expected) in cases {
        let outcome = tracer.trace(
            from.parse().unwrap(),
            Protocol::Tcp,
            target.parse().unwrap(),
            *choice,
        );
        assert_eq!(outcome, *expected, "{from} to {target}, choice {choice}");
    }
}

#[test]
fn internal_policy_local_binds_the_cluster_ip_only() {
    let mut view = exposed();
    view.internal_local = true;
    check(
        view.clone(),
        &[
            (POD, "10.96.0.10:80", 1, to("10.244.1.2:8080")),
            (NODE, "10.96.0.10:80", 1, masqueraded("10.244.1.2:8080")),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.7:80", 2, masqueraded("10.244.3.2:8080")),
            (OUTSIDE, "203.0.113.8:80", 2, masqueraded("10.244.3.2:8080")),
        ],
    );
    // No endpoint here: what comes to the cluster IP is dropped, what comes from outside goes on.
    view.ports[0].local.clear();
    check(
        view,
        &[
            (POD, "10.96.0.10:80", 0, Outcome::Dropped),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.7:80", 2, masqueraded("10.244.3.2:8080")),
        ],
    );
}

#[test]
fn external_policy_local_keeps_the_client_and_stays_on_the_node() {
    let mut view = exposed();
    view.external_local = true;
    check(
        view.clone(),
        &[
            (OUTSIDE, "192.168.0.1:30080", 1, to("10.244.1.2:8080")),
            (OUTSIDE, "203.0.113.7:80", 2, to("10.244.1.2:8080")),
            (OUTSIDE, "203.0.113.8:80", 2, to("10.244.1.2:8080")),
            (FAR_POD, "192.168.0.1:30080", 1, to("10.244.1.2:8080")),
            // The cluster IP has a policy of its own.
            (POD, "10.96.0.10:80", 1, to("10.244.2.2:8080")),
            // As if a balancer had brought it back in: pods of this node under their own address,
            // the node under its.
            (POD, "203.0.113.8:80", 1, to("10.244.2.2:8080")),
            (POD, "192.168.0.1:30080", 2, to("10.244.3.2:8080")),
            (NODE, "203.0.113.8:80", 1, masqueraded("10.244.2.2:8080")),
            (NODE, "192.168.0.1:30080", 1, masqueraded("10.244.2.2:8080")),
        ],
    );
    view.ports[0].local.clear();
    check(
        view.clone(),
        &[
            (OUTSIDE, "192.168.0.1:30080", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.7:80", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped),
            (FAR_POD, "192.168.0.1:30080", 1, Outcome::Dropped),
            (POD, "203.0.113.8:80", 1, to("10.244.2.2:8080")),
            (NODE, "192.168.0.1:30080", 1, masqueraded("10.244.2.2:8080")),
            (POD, "10.96.0.10:80", 1, to("10.244.2.2:8080")),
        ],
    );
    // Nobody anywhere: refused, as under every policy.
    view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
    check(
        view,
        &[
            (
                OUTSIDE,
                "192.168.0.1:30080",
                0,
                Outcome::Rejected("tcp-reset"),
            ),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Rejected("tcp-reset")),
            (POD, "10.96.0.10:80", 0, Outcome::Rejected("tcp-reset")),
        ],
    );
}

#[test]
fn both_policies_local_need_no_chain_for_the_cluster_ip_alone() {
    let mut view = web();
    view.internal_local = true;
    view.external_local = true;
    let service = base().service(&key("web"), &view);
    assert!(
        service
            .chains
            .keys()
            .all(|name| name.starts_with(LOCAL_PREFIX)),
        "{:?}",
        service.chains
    );
    check(view, &[(POD, "10.96.0.10:80", 0, to("10.244.1.2:8080"))]);
}

#[test]
fn source_ranges_guard_the_balancer_addresses_only() {
    let mut view = exposed();
    view.source_ranges = Some(vec!["198.51.100.0/24".parse().unwrap()]);
    check(
        view.clone(),
        &[
            (
                "198.51.100.9",
                "203.0.113.8:80",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
            (OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped),
            (POD, "203.0.113.8:80", 0, Outcome::Dropped),
            (NODE, "203.0.113.8:80", 0, Outcome::Dropped),
            (OUTSIDE, "203.0.113.7:80", 1, masqueraded("10.244.2.2:8080")),
            (
                OUTSIDE,
                "192.168.0.1:30080",
                1,
                masqueraded("10.244.2.2:8080"),
            ),
        ],
    );
    view.source_ranges = Some(vec!["0.0.0.0/0".parse().unwrap()]);
    check(
        view.clone(),
        &[(OUTSIDE, "203.0.113.8:80", 1, masqueraded("10.244.2.2:8080"))],
    );
    view.source_ranges = Some(vec![]);
    check(view, &[(OUTSIDE, "203.0.113.8:80", 0, Outcome::Dropped)]);
}

#[test]
fn an_external_address_takes_no_other_services_cluster_ip() {
    let mut thief = exposed();
    thief.cluster_ips = vec![[10, 96, 0, 66].into()];
    thief.external_ips = vec![[10, 96, 0, 10].into()];
    thief.balancer_ips = vec![[10, 96, 0, 11].into()];
    let service = base().service(&key("thief"), &thief);
    let text = format!("{service:?}");
    assert!(
        !text.contains("10.96.0.10") && !text.contains("10.96.0.11"),
        "{text}"
    );
}

#[test]
fn an_external_address_takes_no_pods_address() {
    let mut thief = exposed();
    thief.external_ips = vec![[10, 244, 9, 9].into()];
    let text = format!("{:?}", base().service(&key("thief"), &thief));
    assert!(!text.contains("10.244.9.9"), "{text}");
}

#[test]
fn what_is_withheld_is_in_no_rule() {
    for served in [true, false] {
        let mut view = exposed();
        if !served {
            view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
        }
        view.source_ranges = Some(vec!["192.0.2.0/24".parse().unwrap()]);
        view.ports.push(view.ports[0].clone());
        view.ports[1].port = Port {
            name: "ssh".into(),
            ..port(Protocol::Tcp, 22)
        };
        for ip in [view.external_ips[0], view.balancer_ips[0]] {
            view.withheld.insert((ip, Protocol::Tcp, 22));
        }
        let service = base().service(&key("web"), &view);
        let rules = service
            .services
            .iter()
            .chain(&service.externals)
            .chain(&service.unserved);
        let external: Vec<&String> = rules.filter(|rule| rule.contains("203.0.113.")).collect();
        assert!(
            external.iter().any(|rule| rule.contains("--dport 80")),
            "{external:#?}"
        );
        assert!(
            !external.iter().any(|rule| rule.contains("--dport 22")),
            "{external:#?}"
        );
    }
}

#[test]
fn flows_to_what_still_answers_are_left_alone() {
    let mut view = web();
    view.ports[0].port.protocol = Protocol::Udp;
    view.ports[0].serving.push([10, 244, 9, 9].into());
    let service = base().service(&key("web"), &view);
    let allowed = &service.udp.services[&([10, 96, 0, 10].into(), 80)];
    assert!(
        allowed.contains(&IpAddr::from([10, 244, 9, 9])),
        "chosen or not, it drains: {allowed:?}"
    );
}

#[test]
fn rules_on_trial_lead_nowhere() {
    let mut view = exposed();
    view.external_local = true;
    let (nat, _) = base().service(&key("web"), &view).trial();
    assert!(nat.iter().any(|rule| rule.contains("--to-destination")));
    assert!(
        nat.iter().all(|rule| !rule.contains("-j CORACLE-")),
        "{nat:#?}"
    );
}

#[test]
fn affinity_returns_to_the_endpoint_of_the_first_connection() {
    let mut view = web();
    view.affinity_secs = Some(10);
    let mut tracer = tracer(&[("web", view)]);
    let mut ask = |from: &str, choice| {
        tracer.trace_remembering(
            from.parse().unwrap(),
            Protocol::Tcp,
            "10.96.0.10:80".parse().unwrap(),
            choice,
        )
    };
    assert_eq!(ask(POD, 2), to("10.244.3.2:8080"));
    assert_eq!(ask(POD, 0), to("10.244.3.2:8080"));
    assert_eq!(ask("10.244.1.10", 0), to("10.244.1.2:8080"));
    assert_eq!(ask(POD, 1), to("10.244.3.2:8080"));
}

#[test]
fn without_service_cidrs_every_service_without_endpoints_is_rejected_by_itself() {
    let base = BaseRules::new(ServiceNetwork::default());
    let mut view = web();
    view.ports[0] = view_of(view.ports[0].port.clone(), vec![]);
    let service = base.service(&key("web"), &view);
    assert_eq!(
        service.unserved,
        [
            "-d 10.96.0.10/32 -p tcp -m comment --comment \"default/web:http\" -m tcp --dport 80 -j REJECT --reject-with \
          tcp-reset"
        ]
    );
    assert!(service.services.is_empty() && service.chains.is_empty());
}

#[test]
fn probabilities_are_printed_as_the_kernel_keeps_them() {
    let cases = [
        (2, "0.50000000000"),
        (3, "0.33333333349"),
        (7, "0.14285714272"),
        (1000, "0.00100000016"),
    ];
    for (parts, text) in cases {
        assert_eq!(probability(parts), text);
    }
}

#[test]
fn chain_names_fit_and_differ() {
    let names: BTreeSet<String> = (0..2000_u16)
        .map(|n| {
            format!(
                "{SERVICE_PREFIX}{}",
                port_hash(&key("a-long-name"), &port(Protocol::Tcp, n))
            )
        })
        .collect();
    assert_eq!(names.len(), 2000);
    assert!(names.iter().all(|name| name.len() <= 28));
}
