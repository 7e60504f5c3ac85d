//! Where packets end, whichever engine leads them and by the plan alone: "from A to B:80 ends at
//! C:8080".

mod places;
mod policies;

use std::net::{IpAddr, SocketAddr};

use crate::{
    iptables::rules::tests::IptablesTracer,
    nftables::services::tests::NftablesTracer,
    service::{
        Endpoint, Port, PortView, Protocol, ServiceKey, ServiceNetwork, ServiceView,
        way::tests::WayTracer,
    },
};

pub(crate) const POD: &str = "10.244.1.9";
pub(crate) const NODE: &str = "192.168.0.1";
pub(crate) const OUTSIDE: &str = "192.0.2.5";

/// Addresses of the machine that packets come by.
pub(crate) const LOCAL: [&str; 2] = [NODE, "127.0.0.1"];

/// Where a packet ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered { to: SocketAddr, masqueraded: bool },
    Rejected(&'static str),
    Dropped,
}

/// Follows a new connection as the kernel would.
pub(crate) trait Tracer {
    fn engine(&self) -> &'static str;

    /// Where it ends. So many random choices say no before one says yes. Clients are remembered.
    fn trace(&mut self, from: IpAddr, protocol: Protocol, to: SocketAddr, choice: usize)
    -> Outcome;
}

pub(crate) fn network() -> ServiceNetwork {
    let network = ServiceNetwork::new(
        &["10.244.0.0/16".parse().unwrap()],
        &["10.96.0.0/16".parse().unwrap()],
    );
    network
        .with_pod_interface(Some("coracle0".into()))
        .with_node_ip(NODE.parse().ok())
}

/// Ready endpoints of one port.
pub(crate) fn view_of(port: Port, endpoints: Vec<Endpoint>) -> PortView {
    let local = endpoints.iter().filter(|e| e.local).copied().collect();
    let serving = endpoints.iter().map(|e| e.address.ip()).collect();
    PortView {
        port,
        cluster: endpoints,
        local,
        serving,
    }
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

pub(crate) fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: "http".into(),
        protocol,
        port,
        node_port: None,
    }
}

pub(crate) fn endpoint(address: &str, local: bool) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        local,
    }
}

/// Three endpoints, the first of them local, behind 10.96.0.10:80.
pub(crate) fn web() -> ServiceView {
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

/// `web` with a node port, an external and a balancer address.
pub(crate) fn exposed() -> ServiceView {
    let mut view = web();
    view.ports[0].port.node_port = Some(30080);
    view.external_ips = vec![[203, 0, 113, 7].into()];
    view.balancer_ips = vec![[203, 0, 113, 8].into()];
    view
}

/// One of each engine, and the plan's own.
fn tracers(views: &[(&str, ServiceView)]) -> [Box<dyn Tracer>; 3] {
    tracers_over(&network(), views, &LOCAL)
}

/// The same on a machine with these addresses.
fn tracers_over(
    network: &ServiceNetwork,
    views: &[(&str, ServiceView)],
    local: &[&str],
) -> [Box<dyn Tracer>; 3] {
    [
        Box::new(IptablesTracer::over(network.clone(), views, local)),
        Box::new(NftablesTracer::over(network.clone(), views, local)),
        Box::new(WayTracer::over(network.clone(), views, local)),
    ]
}

pub(crate) fn to(address: &str) -> Outcome {
    Outcome::Delivered {
        to: address.parse::<SocketAddr>().unwrap(),
        masqueraded: false,
    }
}

pub(crate) fn masqueraded(address: &str) -> Outcome {
    Outcome::Delivered {
        to: address.parse::<SocketAddr>().unwrap(),
        masqueraded: true,
    }
}

fn check(view: ServiceView, cases: &[Case<'_>]) {
    follow_both(&[("web", view)], Protocol::Tcp, cases);
}

/// From where, to where, how many random choices say no, and what comes of it.
pub(crate) type Case<'a> = (&'a str, &'a str, usize, Outcome);

fn follow_both(views: &[(&str, ServiceView)], protocol: Protocol, cases: &[Case<'_>]) {
    for tracer in &mut tracers(views) {
        follow(&mut **tracer, protocol, cases);
    }
}

pub(crate) fn follow(tracer: &mut dyn Tracer, protocol: Protocol, cases: &[Case<'_>]) {
    for (from, target, choice, expected) in cases {
        let (source, to) = (from.parse().unwrap(), target.parse().unwrap());
        let outcome = tracer.trace(source, protocol, to, *choice);
        let engine = tracer.engine();
        assert_eq!(
            outcome, *expected,
            "{engine}: {from} to {protocol:?} {target}, choice {choice}"
        );
    }
}

#[test]
fn affinity_returns_to_the_endpoint_of_the_first_connection() {
    let mut view = web();
    view.affinity_secs = Some(10);
    for tracer in &mut tracers(&[("web", view)]) {
        let mut ask = |from: &str, choice| {
            let target = "10.96.0.10:80".parse().unwrap();
            tracer.trace(from.parse().unwrap(), Protocol::Tcp, target, choice)
        };
        assert_eq!(ask(POD, 2), to("10.244.3.2:8080"));
        assert_eq!(ask(POD, 0), to("10.244.3.2:8080"));
        assert_eq!(ask("10.244.1.10", 0), to("10.244.1.2:8080"));
        assert_eq!(ask(POD, 1), to("10.244.3.2:8080"));
    }
}

/// A port of the node is one, whichever of its addresses a client asks.
#[test]
fn affinity_holds_at_node_ports_and_their_clients_keep_apart() {
    let mut view = exposed();
    view.affinity_secs = Some(10);
    let mut other = exposed();
    (other.cluster_ips, other.balancer_ips) = (vec![[10, 96, 0, 11].into()], vec![]);
    other.external_ips = vec![[203, 0, 113, 30].into()];
    other.ports[0].port.node_port = None;
    // Under the number of the other's node port.
    other.ports[0].port.port = 30080;
    let services = [("web", view), ("other", other)];
    let local = [NODE, "198.51.100.1", "127.0.0.1"];
    for tracer in &mut tracers_over(&network(), &services, &local) {
        let mut ask = |from: &str, at: &str, choice| {
            tracer.trace(
                from.parse().unwrap(),
                Protocol::Tcp,
                at.parse().unwrap(),
                choice,
            )
        };
        let (second, third) = (
            || masqueraded("10.244.2.2:8080"),
            || masqueraded("10.244.3.2:8080"),
        );
        assert_eq!(ask(OUTSIDE, "203.0.113.30:30080", 1), second());
        assert_eq!(ask(OUTSIDE, "192.168.0.1:30080", 2), third());
        assert_eq!(ask(OUTSIDE, "198.51.100.1:30080", 0), third());
        assert_eq!(ask(OUTSIDE, "203.0.113.30:30080", 1), second());
        assert_eq!(ask("192.0.2.6", "192.168.0.1:30080", 1), second());
    }
}
