//! Places that packets go to under no particular policy.

use ipnet::IpNet;

use super::*;

const REFUSED: Outcome = Outcome::Rejected("tcp-reset");
const UNREACHABLE: Outcome = Outcome::Rejected("icmp-port-unreachable");

/// A Service of three endpoints with a node port and an external address, DNS, and one that is like
/// the first without endpoints.
fn services() -> [(&'static str, ServiceView); 3] {
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
    [("web", web), ("dns", dns), ("empty", empty)]
}

#[test]
fn packets_end_where_they_should() {
    let tcp = [
        (POD, "10.96.0.10:80", 0, to("10.244.1.2:8080")),
        (POD, "10.96.0.10:80", 1, to("10.244.2.2:8080")),
        (POD, "10.96.0.10:80", 2, to("10.244.3.2:8080")),
        // Itself; and another endpoint of its own Service under its own address.
        (
            "10.244.1.2",
            "10.96.0.10:80",
            0,
            masqueraded("10.244.1.2:8080"),
        ),
        ("10.244.1.2", "10.96.0.10:80", 1, to("10.244.2.2:8080")),
        // From nodes: the answer must come back through here.
        (NODE, "10.96.0.10:80", 0, masqueraded("10.244.1.2:8080")),
        (
            OUTSIDE,
            "192.168.0.1:30080",
            1,
            masqueraded("10.244.2.2:8080"),
        ),
        (POD, "203.0.113.7:80", 2, masqueraded("10.244.3.2:8080")),
        (POD, "10.96.0.53:53", 0, to("10.244.2.3:5354")),
        // Directly, without the proxy.
        (POD, "10.244.2.2:8080", 0, to("10.244.2.2:8080")),
        ("10.244.1.2", "10.244.1.2:8080", 0, to("10.244.1.2:8080")),
        (POD, "192.0.2.5:443", 0, to("192.0.2.5:443")),
    ];
    follow_both(&services(), Protocol::Tcp, &tcp);
    let udp = [(POD, "10.96.0.53:53", 0, to("10.244.2.3:5353"))];
    follow_both(&services(), Protocol::Udp, &udp);
}

/// No endpoint, no such port, no such Service, wrong protocol.
#[test]
fn what_nobody_serves_is_refused() {
    let tcp = [
        (POD, "10.96.0.11:80", 0, REFUSED),
        (POD, "10.96.0.10:81", 0, REFUSED),
        (POD, "203.0.113.8:80", 0, REFUSED),
        (OUTSIDE, "192.168.0.1:30081", 0, REFUSED),
    ];
    follow_both(&services(), Protocol::Tcp, &tcp);
    let udp = [
        (NODE, "10.96.77.77:53", 0, UNREACHABLE),
        (POD, "10.96.0.10:80", 0, UNREACHABLE),
    ];
    follow_both(&services(), Protocol::Udp, &udp);
}

/// CVE-2020-8558: what goes to loopback is never translated.
#[test]
fn a_node_port_is_not_on_loopback() {
    let tcp = [(NODE, "127.0.0.1:30080", 0, to("127.0.0.1:30080"))];
    follow_both(&services(), Protocol::Tcp, &tcp);
}

/// With `--nodeport-addresses`: others of the node's addresses are its daemons' alone.
#[test]
fn node_ports_are_on_the_addresses_that_are_chosen() {
    const OTHER: &str = "172.16.0.1";
    let mut web = web();
    web.ports[0].port.node_port = Some(30080);
    let mut empty = web.clone();
    empty.cluster_ips = vec![[10, 96, 0, 11].into()];
    empty.ports[0] = view_of(empty.ports[0].port.clone(), vec![]);
    empty.ports[0].port.node_port = Some(30081);
    let check = |chosen: &[&str], cases: &[Case<'_>]| {
        let cidrs: Vec<IpNet> = chosen.iter().map(|cidr| cidr.parse().unwrap()).collect();
        let network = network().with_node_port_cidrs(&cidrs);
        let services = [("web", web.clone()), ("empty", empty.clone())];
        let local = [NODE, OTHER, "127.0.0.1"];
        for tracer in &mut tracers_over(&network, &services, &local) {
            follow(&mut **tracer, Protocol::Tcp, cases);
        }
    };
    let reached = || masqueraded("10.244.2.2:8080");
    let nobodys = |address: &str| to(address);
    let (at, other) = ("192.168.0.1:30080", "172.16.0.1:30080");
    let (at_empty, other_empty) = ("192.168.0.1:30081", "172.16.0.1:30081");
    let of_node = [
        (OUTSIDE, at, 1, reached()),
        (OUTSIDE, other, 1, nobodys(other)),
        (OUTSIDE, at_empty, 0, Outcome::Rejected("tcp-reset")),
        (OUTSIDE, other_empty, 0, nobodys(other_empty)),
    ];
    // A daemon there keeps its local clients.
    let on_loopback = [(NODE, "127.0.0.1:30080", 0, nobodys("127.0.0.1:30080"))];
    check(&["0.0.0.0/1", "128.0.0.0/1"], &on_loopback);
    check(&["192.168.0.1/32"], &of_node);
    // Whatever bits are set beyond the prefix.
    check(&["192.168.0.9/24"], &of_node);
    let everywhere = [
        (OUTSIDE, at, 1, reached()),
        (OUTSIDE, other, 1, reached()),
        (OUTSIDE, other_empty, 0, Outcome::Rejected("tcp-reset")),
    ];
    check(&["192.168.0.0/24", "172.16.0.0/12"], &everywhere);
    check(&[], &everywhere);
    // None of this family is said.
    check(&["2001:db8::/32"], &everywhere);
}
