//! The plan's way as one more that packets are sent along, and what it says beside where they end.

use std::{collections::HashMap, net::Ipv4Addr};

use super::*;
use crate::packets::{
    LOCAL, NODE, OUTSIDE, Outcome, POD, Tracer, endpoint, exposed, key, network, view_of,
};

/// Who asked where.
type Asked = (IpAddr, Protocol, u16, bool);

/// Goes by the plan alone.
pub(crate) struct WayTracer {
    network: ServiceNetwork,
    services: BTreeMap<ServiceKey, ServiceView>,
    own: BTreeSet<IpAddr>,
    remembered: HashMap<(Asked, IpAddr), SocketAddr>,
}

impl WayTracer {
    /// On a machine with these addresses.
    pub(crate) fn over(
        network: ServiceNetwork,
        views: &[(&str, ServiceView)],
        local: &[&str],
    ) -> Self {
        let views = views.iter();
        Self {
            network,
            services: views
                .map(|(name, view)| (key(name), view.clone()))
                .collect(),
            own: local.iter().map(|ip| ip.parse().unwrap()).collect(),
            remembered: HashMap::new(),
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            network: &self.network,
            services: &self.services,
            own: &self.own,
        }
    }
}

/// Pods of this node are in 10.244.1.0/24.
fn opening(own: &BTreeSet<IpAddr>, source: IpAddr, protocol: Protocol, to: SocketAddr) -> Opening {
    let sender = match source {
        source if own.contains(&source) => Sender::Node,
        IpAddr::V4(v4) if v4.octets()[..3] == [10, 244, 1] => Sender::Pod,
        _ => Sender::Elsewhere,
    };
    Opening {
        sender,
        source,
        protocol,
        to,
    }
}

impl Tracer for WayTracer {
    fn engine(&self) -> &'static str {
        "the plan"
    }

    fn trace(
        &mut self,
        from: IpAddr,
        protocol: Protocol,
        to: SocketAddr,
        choice: usize,
    ) -> Outcome {
        let opening = opening(&self.own, from, protocol, to);
        let translated = match self.ground().way(&opening) {
            Way::Untouched => {
                let masqueraded = false;
                return Outcome::Delivered { to, masqueraded };
            }
            Way::Dropped(_) => return Outcome::Dropped,
            Way::Refused(_) => {
                return Outcome::Rejected(match protocol {
                    Protocol::Tcp => "tcp-reset",
                    _ => "icmp-port-unreachable",
                });
            }
            Way::Translated(translated) => translated,
        };
        let of_node = translated.entry.door == Door::NodePort;
        let at = match of_node {
            true => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            false => to.ip(),
        };
        let asked = (at, protocol, to.port(), of_node);
        let is_sticky = translated.entry.view.affinity_secs.is_some();
        let last = translated.endpoints.len() - 1;
        let drawn = translated.endpoints[choice.min(last)];
        let known = self.remembered.get(&(asked, from)).filter(|_| is_sticky);
        let known = known.and_then(|known| {
            let mut endpoints = translated.endpoints.iter();
            endpoints.find(|endpoint| endpoint.address == *known)
        });
        let chosen = known.copied().unwrap_or(drawn);
        let masqueraded = translated.is_masqueraded(from, &chosen);
        self.remembered.insert((asked, from), chosen.address);
        Outcome::Delivered {
            to: chosen.address,
            masqueraded,
        }
    }
}

fn check(
    services: &[(&str, ServiceView)],
    from: &str,
    to: &str,
    expect: impl Fn(&Way<'_>) -> bool,
) {
    let tracer = WayTracer::over(network(), services, &LOCAL);
    let (source, to) = (from.parse().unwrap(), to.parse().unwrap());
    let opening = opening(&tracer.own, source, Protocol::Tcp, to);
    let way = tracer.ground().way(&opening);
    assert!(expect(&way), "{from} to {to}: {way:?}");
}

#[test]
fn it_is_told_why_nobody_gets_a_packet() {
    let mut empty = exposed();
    empty.ports[0] = view_of(empty.ports[0].port.clone(), vec![]);
    let mut far = exposed();
    (far.internal_local, far.external_local) = (true, true);
    let port = far.ports[0].port.clone();
    far.ports[0] = view_of(port, vec![endpoint("10.244.2.2:8080", false)]);
    let mut guarded = exposed();
    guarded.source_ranges = Some(vec!["198.51.100.0/24".parse().unwrap()]);
    check(&[], POD, "10.96.0.10:80", |way| {
        *way == Way::Refused(Lack::NoService)
    });
    check(&[("web", exposed())], POD, "10.96.0.10:81", |way| {
        *way == Way::Refused(Lack::NoPort(&key("web")))
    });
    check(
        &[("web", empty)],
        POD,
        "10.96.0.10:80",
        |way| matches!(way, Way::Refused(Lack::NoEndpoint(entry)) if entry.door == Door::ClusterIp),
    );
    for (from, to) in [(POD, "10.96.0.10:80"), (OUTSIDE, "192.168.0.1:30080")] {
        let services = [("web", far.clone())];
        check(&services, from, to, |way| {
            matches!(way, Way::Dropped(Lack::NoLocalEndpoint(_)))
        });
    }
    check(
        &[("web", guarded)],
        OUTSIDE,
        "203.0.113.8:80",
        |way| matches!(way, Way::Dropped(Lack::SourceRanges(entry)) if entry.door == Door::LoadBalancer),
    );
}

#[test]
fn it_is_told_why_an_endpoint_sees_the_node() {
    let mut local = exposed();
    local.external_local = true;
    let check = |view: &ServiceView, from: &str, to: &str, cause: Option<Cause>| {
        check(
            &[("web", view.clone())],
            from,
            to,
            |way| matches!(way, Way::Translated(translated) if translated.masquerade == cause),
        );
    };
    check(&exposed(), POD, "10.96.0.10:80", None);
    check(&exposed(), NODE, "10.96.0.10:80", Some(Cause::NotFromAPod));
    let outside = Some(Cause::ExternalCluster);
    check(&exposed(), OUTSIDE, "203.0.113.7:80", outside);
    check(&exposed(), POD, "192.168.0.1:30080", outside);
    check(&local, OUTSIDE, "203.0.113.7:80", None);
    check(&local, NODE, "203.0.113.7:80", Some(Cause::NodeItself));
}

#[test]
fn the_node_answers_itself_at_its_own_address_among_services() {
    let own = "10.96.0.10".parse().ok();
    let tracer = WayTracer::over(network().with_own_service_ip(own), &[], &LOCAL);
    let source = POD.parse().unwrap();
    let to = "10.96.0.10:53".parse().unwrap();
    let opening = opening(&tracer.own, source, Protocol::Udp, to);
    assert_eq!(tracer.ground().way(&opening), Way::Untouched);
}
