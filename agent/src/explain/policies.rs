//! What policies say of a packet, on this node and on others. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use coracle_netfilter::{
    policy::{Direction, Packet, Plan, Step},
    service::Protocol,
};

use super::{
    answer::PolicyStep,
    world::{PolicyPlan, World},
};

/// A packet on its way, after its destination was translated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) source: IpAddr,
    pub(super) to: SocketAddr,
    pub(super) protocol: Protocol,
    /// It goes from pod to pod without coming by the rules.
    pub(super) is_bridged_past: bool,
}

/// The plans of other nodes, each made once.
pub(super) struct Policies<'a> {
    world: &'a World,
    others: BTreeMap<String, Plan>,
}

const BRIDGED: &str = "frames between two pods of the bridge do not come by the rules without br_netfilter (modprobe br_netfilter)";

impl<'a> Policies<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let others = BTreeMap::new();
        Self { world, others }
    }

    /// What those of the sender say.
    pub(super) fn egress(&mut self, flight: &Flight) -> PolicyStep {
        let world = self.world;
        let (source, to) = (flight.source, flight.to.ip());
        if let Some(why) = is_free(flight) {
            return not_asked(why);
        }
        if world.node_at(source).is_some() {
            return not_asked("a node sends it");
        }
        let Some(node) = world.node_of_pod_address(source) else {
            return not_asked("the sender is no pod of the cluster");
        };
        let is_to_own_node = world.node_at(to) == Some(node);
        if is_to_own_node && world.network.own_service_ip != Some(to) {
            return not_asked("a pod reaches its node whatever policies say");
        }
        self.decide(Direction::Egress, node, source, flight)
    }

    /// What those of the receiver say, who sees a packet from `source`.
    pub(super) fn ingress(&mut self, flight: &Flight, seen: IpAddr) -> PolicyStep {
        let world = self.world;
        let to = flight.to.ip();
        if let Some(why) = is_free(flight) {
            return not_asked(why);
        }
        let Some(node) = world.node_of_pod_address(to) else {
            return not_asked("the receiver is no pod of the cluster");
        };
        if world.node_at(flight.source) == Some(node) {
            return not_asked("a node reaches its pods whatever policies say");
        }
        // On the way they are asked before the source is translated.
        let source = match world.is_here(node) {
            true => flight.source,
            false => seen,
        };
        self.decide(Direction::Ingress, node, source, flight)
    }

    fn decide(
        &mut self,
        direction: Direction,
        node: &str,
        source: IpAddr,
        flight: &Flight,
    ) -> PolicyStep {
        let Some(policies) = &self.world.policies else {
            return not_asked("nobody enforces policies on this node");
        };
        let is_here = self.world.is_here(node);
        if !is_here && !policies.is_complete {
            let why = format!("node {node} decides, and not all policies are known here yet");
            return PolicyStep::Unknown { why };
        }
        let plan = match is_here {
            true => &policies.written,
            false => {
                let others = self.others.entry(node.to_owned());
                others.or_insert_with(|| policies.tracker.for_node(node).plan())
            }
        };
        let packet = Packet {
            source,
            destination: flight.to.ip(),
            protocol: Some(flight.protocol),
            destination_port: flight.to.port(),
        };
        let verdict = plan.verdict(&packet, &[]);
        let step = verdict
            .steps
            .iter()
            .find(|step| step.direction == direction);
        match step {
            None => PolicyStep::NotSelected,
            Some(step) => said(policies, plan, step, (!is_here).then(|| node.to_owned())),
        }
    }
}

/// Why no policy is asked, whoever the ends are.
fn is_free(flight: &Flight) -> Option<&'static str> {
    if flight.source == flight.to.ip() {
        return Some("a pod always reaches itself");
    }
    flight.is_bridged_past.then_some(BRIDGED)
}

fn not_asked(why: &str) -> PolicyStep {
    PolicyStep::NotAsked {
        why: why.to_owned(),
    }
}

fn said(policies: &PolicyPlan, plan: &Plan, step: &Step, node: Option<String>) -> PolicyStep {
    let names = || step.policies.iter().map(ToString::to_string).collect();
    let Some(rule) = step.rule else {
        let policies = names();
        return PolicyStep::Denied { node, policies };
    };
    let list = match step.direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    };
    let chain = plan.chains.get(&step.chain);
    let places = chain.map(|chain| policies.tracker.places(chain, rule));
    let places = places.unwrap_or_default().into_iter();
    let rules: Vec<String> = places
        .map(|place| format!("{} spec.{list}[{}]", place.policy, place.at))
        .collect();
    match rules.is_empty() {
        // They have changed since.
        true => PolicyStep::Allowed {
            node,
            rules: names(),
        },
        false => PolicyStep::Allowed { node, rules },
    }
}
