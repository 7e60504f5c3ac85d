//! Where a packet would go, and why. Pure.

use std::net::{IpAddr, SocketAddr};

use coracle_netfilter::service::{
    Endpoint, Protocol,
    way::{Cause, Lack, Opening, Sender, Translated, Way},
};

use super::{
    answer::{End, Path, PolicyStep, Route, ServiceStep, Verdict},
    overlay::{self, Seen},
    places::From,
    policies::{Flight, Policies},
    question::{Place, Target},
    words::{lack_in_words, notes, step_of, translated_step},
    world::{KnownPod, World},
};

const NO_ANSWER: &str = "the answer would go from pod to pod past the rules that have to translate it back: br_netfilter is off (modprobe br_netfilter)";

/// Follows a packet as far as this node knows.
///
/// # Errors
/// One of the ends is not known, and what to do.
pub(super) fn explain(world: &World, from: &Place, to: &Target) -> Result<Path, String> {
    let to = world.to(to)?;
    let from = world.from(from, to.at.ip())?;
    let opening = Opening {
        sender: from.sender,
        source: from.party.address,
        protocol: to.protocol,
        to: to.at,
    };
    let mut trip = Trip {
        world,
        policies: Policies::new(world),
        from: &from,
        protocol: to.protocol,
    };
    let outcome = trip.outcome(&opening);
    Ok(Path {
        node: world.node.clone(),
        engine: world.engine.clone(),
        port: to.at.port(),
        protocol: to.protocol.as_str().to_owned(),
        notes: notes(world, &from, &to, &opening),
        from: from.party,
        to: to.party,
        service: outcome.service,
        ends: outcome.ends,
        verdict: outcome.verdict,
        why: outcome.why,
    })
}

struct Outcome {
    service: Option<ServiceStep>,
    ends: Vec<End>,
    verdict: Verdict,
    why: String,
}

/// How a destination came to be.
#[derive(Clone, Copy)]
enum By<'a> {
    Itself,
    Service(&'a Translated<'a>, &'a Endpoint),
    HostPort,
}

struct Trip<'a> {
    world: &'a World,
    policies: Policies<'a>,
    from: &'a From,
    protocol: Protocol,
}

impl Trip<'_> {
    fn outcome(&mut self, opening: &Opening) -> Outcome {
        if let Some(why) = overlay::kept_out_as_it_comes(self.world, &self.seen(opening.to)) {
            return Outcome {
                service: None,
                ends: Vec::new(),
                verdict: Verdict::Dropped,
                why,
            };
        }
        match self.world.ground().way(opening) {
            Way::Untouched => self.untouched(opening),
            Way::Translated(translated) => {
                let endpoints = translated.endpoints.iter();
                let ends: Vec<End> = endpoints
                    .map(|one| self.end(one.address, By::Service(&translated, one)))
                    .collect();
                let (verdict, why) = summary(&ends);
                let service = Some(translated_step(&translated));
                Outcome {
                    service,
                    ends,
                    verdict,
                    why,
                }
            }
            Way::Refused(lack) => self.lacking(opening, lack, Verdict::Refused),
            Way::Dropped(lack) => self.lacking(opening, lack, Verdict::Dropped),
        }
    }

    fn untouched(&mut self, opening: &Opening) -> Outcome {
        let published = published(self.world, opening);
        let (service, end) = match published {
            Some((pod, at, step)) if !pod.host_network => (Some(step), self.end(at, By::HostPort)),
            _ => (None, self.end(opening.to, By::Itself)),
        };
        let ends = vec![end];
        let (verdict, why) = summary(&ends);
        Outcome {
            service,
            ends,
            verdict,
            why,
        }
    }

    fn lacking(&mut self, opening: &Opening, lack: Lack<'_>, verdict: Verdict) -> Outcome {
        let why = lack_in_words(&lack, opening);
        // The sender's policies are asked before: of what they refuse nobody is told.
        let flight = self.flight(opening.to, false);
        let egress = self.policies.egress(&flight);
        let (verdict, why) = match self.route(opening.to.ip(), false) {
            // Before any policy is asked, and before rules that drop it.
            Route::Nowhere { why, is_told: true } => (Verdict::Refused, why),
            _ if egress.denies() => (Verdict::Dropped, format!("egress of the sender: {egress}")),
            _ => (verdict, why),
        };
        let entry = match lack {
            Lack::NoEndpoint(entry) | Lack::NoLocalEndpoint(entry) | Lack::SourceRanges(entry) => {
                Some(entry)
            }
            Lack::NoService | Lack::NoPort(_) => None,
        };
        let service = entry.map(|entry| ServiceStep {
            says: lack_in_words(&lack, opening),
            ..step_of(&entry)
        });
        Outcome {
            service,
            ends: Vec::new(),
            verdict,
            why,
        }
    }

    fn seen(&self, to: SocketAddr) -> Seen {
        Seen {
            sender: self.from.sender,
            source: self.from.party.address,
            protocol: self.protocol,
            to,
        }
    }

    fn flight(&self, to: SocketAddr, is_bridged_past: bool) -> Flight {
        Flight {
            source: self.from.party.address,
            to,
            protocol: self.protocol,
            is_bridged_past,
        }
    }

    /// Both ends are pods of this node's bridge, and nothing sees what goes between them.
    fn is_past_rules(&self, to: IpAddr) -> bool {
        let world = self.world;
        let is_pod_here = world.pod_at(to).is_some_and(|pod| world.is_here(&pod.node));
        self.from.sender == Sender::Pod
            && is_pod_here
            && world.own_network.is_some()
            && !world.kernel.bridge_netfilter
    }

    fn end(&mut self, to: SocketAddr, by: By<'_>) -> End {
        let is_past = self.is_past_rules(to.ip()) && to.ip() != self.from.party.address;
        let is_untouched = matches!(by, By::Itself);
        let flight = self.flight(to, is_past && is_untouched);
        let route = self.route(to.ip(), is_past && is_untouched);
        let seen_as = self.seen_as(to.ip(), by);
        let world = self.world;
        let seen = match (&seen_as, world.network.node_ip) {
            (Some(_), Some(node)) => node,
            _ => self.from.party.address,
        };
        let kept_out = overlay::kept_out(world, &self.seen(to), !is_untouched);
        let nobody = || PolicyStep::NotAsked {
            why: "it does not get there".to_owned(),
        };
        let egress = match kept_out {
            Some(_) => nobody(),
            None => self.policies.egress(&flight),
        };
        let ingress = match egress.denies() || kept_out.is_some() {
            true => nobody(),
            false => self.policies.ingress(&flight, seen),
        };
        let lost = match is_past && !is_untouched && seen_as.is_none() {
            true => Some(NO_ANSWER.to_owned()),
            false => None,
        };
        let (verdict, why) = judged(&egress, &route, kept_out, &ingress, lost);
        End {
            party: world.party(to.ip()),
            port: to.port(),
            egress,
            route,
            seen_as,
            ingress,
            verdict,
            why,
        }
    }

    fn route(&self, to: IpAddr, is_bridged_past: bool) -> Route {
        let world = self.world;
        let is_pod = self.from.sender == Sender::Pod;
        if is_pod && to == self.from.party.address {
            return Route::Itself;
        }
        if world.kernel.own.contains(&to) {
            return Route::Node;
        }
        let nowhere = |why: String| Route::Nowhere {
            why,
            is_told: false,
        };
        let is_forwarded = self.from.sender != Sender::Node && !is_bridged_past;
        if is_forwarded && !world.kernel.forwards {
            return nowhere("the node forwards nothing: net.ipv4.ip_forward is 0".to_owned());
        }
        let hop = match to {
            IpAddr::V4(to) => world.kernel.hop(to),
            IpAddr::V6(_) => None,
        };
        let link = hop.map(|hop| hop.link.clone());
        let gateway = hop.and_then(|hop| hop.gateway).map(IpAddr::V4);
        let node = world.node_of_pod_address(to);
        if node.is_some_and(|node| world.is_here(node)) {
            let is_there = world.own_network.is_none() || world.pod_at(to).is_some();
            return match is_there {
                true => Route::Pod { link },
                false => nowhere(format!("no pod of this node has the address {to}")),
            };
        }
        let other = node.or_else(|| world.node_at(to));
        match (other, link) {
            (_, None) if to.is_ipv4() => Route::Nowhere {
                why: format!("the node has no route to {to}"),
                is_told: true,
            },
            (Some(node), link) => Route::OtherNode {
                node: node.to_owned(),
                link: link.unwrap_or_default(),
                gateway,
            },
            (None, link) => Route::Outside { link, gateway },
        }
    }

    /// Whom the receiver sees instead of the sender.
    fn seen_as(&self, to: IpAddr, by: By<'_>) -> Option<String> {
        let source = self.from.party.address;
        if self.from.sender == Sender::Node {
            return None;
        }
        let why = match by {
            By::Service(translated, endpoint) if translated.is_masqueraded(source, endpoint) => {
                match translated.masquerade {
                    None => "the pod reaches itself",
                    Some(Cause::NotFromAPod) => "the sender is no pod of the cluster",
                    Some(Cause::ExternalCluster) => "externalTrafficPolicy is Cluster",
                    Some(Cause::NodeItself) => "the node sends it",
                }
            }
            By::HostPort if source == to => "the pod reaches itself",
            _ if self.leaves_cluster(to) => "it leaves the cluster",
            _ => return None,
        };
        Some(format!("this node: {why}"))
    }

    fn leaves_cluster(&self, to: IpAddr) -> bool {
        let world = self.world;
        let Some(network) = &world.own_network else {
            return false;
        };
        let Some(subnet) = network.subnet else {
            return false;
        };
        let stays = |cidr: &ipnet::IpNet| cidr.contains(&to);
        subnet.contains(&self.from.party.address)
            && !world.kernel.own.contains(&to)
            && !to.is_multicast()
            && !stays(&subnet)
            && !network.no_masquerade.iter().any(stays)
    }
}

/// The first thing that stops a packet decides: in the order in which it comes by them.
fn judged(
    egress: &PolicyStep,
    route: &Route,
    kept_out: Option<String>,
    ingress: &PolicyStep,
    lost: Option<String>,
) -> (Verdict, Option<String>) {
    if egress.denies() {
        return (Verdict::Dropped, Some(format!("egress: {egress}")));
    }
    if let Route::Nowhere { why, is_told } = route {
        let verdict = match is_told {
            true => Verdict::Refused,
            false => Verdict::Dropped,
        };
        return (verdict, Some(why.clone()));
    }
    if kept_out.is_some() {
        return (Verdict::Dropped, kept_out);
    }
    if ingress.denies() {
        return (Verdict::Dropped, Some(format!("ingress: {ingress}")));
    }
    if lost.is_some() {
        return (Verdict::Dropped, lost);
    }
    let unknown = [egress, ingress].into_iter().find(|one| one.is_unknown());
    match unknown {
        Some(step) => (Verdict::Unknown, Some(step.to_string())),
        None => (Verdict::Arrives, None),
    }
}

fn summary(ends: &[End]) -> (Verdict, String) {
    let arriving = ends.iter().filter(|end| end.verdict == Verdict::Arrives);
    let arriving = arriving.count();
    let first_why = || ends.iter().find_map(|end| end.why.clone());
    match (arriving, ends.len()) {
        (0, _) if ends.iter().any(|end| end.verdict == Verdict::Unknown) => {
            (Verdict::Unknown, first_why().unwrap_or_default())
        }
        (0, _) => {
            let is_told = ends.iter().all(|end| end.verdict == Verdict::Refused);
            let verdict = match is_told {
                true => Verdict::Refused,
                false => Verdict::Dropped,
            };
            (verdict, first_why().unwrap_or_default())
        }
        (1, 1) => (
            Verdict::Arrives,
            "whether somebody listens there is not looked at".to_owned(),
        ),
        (all, count) if all == count => (
            Verdict::Arrives,
            format!("at one of {count} endpoints, each as likely"),
        ),
        (some, count) => (
            Verdict::Depends,
            format!("{some} of {count} endpoints, each as likely, get it"),
        ),
    }
}

/// A pod that publishes what is asked for.
fn published<'a>(
    world: &'a World,
    opening: &Opening,
) -> Option<(&'a KnownPod, SocketAddr, ServiceStep)> {
    let ip = opening.to.ip();
    if !world.kernel.own.contains(&ip) {
        return None;
    }
    let here = world.pods.iter().filter(|pod| world.is_here(&pod.node));
    let mut ports = here.flat_map(|pod| pod.host_ports.iter().map(move |port| (pod, port)));
    let (pod, port) = ports.find(|(_, port)| {
        let is_address = match port.host_ip {
            Some(address) => address == ip,
            None => !ip.is_loopback(),
        };
        is_address && port.protocol == opening.protocol && port.host_port == opening.to.port()
    })?;
    let mut addresses = pod.addresses.iter();
    let address = addresses.find(|address| address.is_ipv4() == ip.is_ipv4())?;
    let step = ServiceStep {
        owner: format!("pod {}", pod.name),
        port: format!("hostPort {}/{}", port.host_port, port.protocol.as_str()),
        says: format!("to its port {}", port.container_port),
        affinity_secs: None,
    };
    Some((pod, SocketAddr::new(*address, port.container_port), step))
}
