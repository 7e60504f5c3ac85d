//! What rules of Services do, in words, and what makes an answer less than certain. Pure.

use std::net::SocketAddr;

use coracle_netfilter::{
    node::Overlay,
    service::{
        Protocol,
        way::{Door, Entry, Lack, Opening, Sender, Translated},
    },
};

use super::{
    answer::ServiceStep,
    places::{From, To},
    world::World,
};

pub(super) fn step_of(entry: &Entry<'_>) -> ServiceStep {
    let port = &entry.port.port;
    let (number, protocol) = (port.port, port.protocol.as_str());
    let name = match port.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    ServiceStep {
        owner: format!("Service {}", entry.service),
        port: format!(
            "port {number}/{protocol}{name} at its {}",
            entry.door.as_str()
        ),
        says: String::new(),
        affinity_secs: entry.view.affinity_secs,
    }
}

pub(super) fn translated_step(translated: &Translated<'_>) -> ServiceStep {
    let count = translated.endpoints.len();
    let of_which = match translated.only_local {
        true => " of this node, by its traffic policy",
        false => "",
    };
    let says = match count {
        1 => format!("to its one endpoint{of_which}"),
        _ => format!("to one of {count} endpoints{of_which}"),
    };
    ServiceStep {
        says,
        ..step_of(&translated.entry)
    }
}

pub(super) fn lack_in_words(lack: &Lack<'_>, opening: &Opening) -> String {
    let (port, protocol) = (opening.to.port(), opening.protocol.as_str());
    match lack {
        Lack::NoService => format!("no Service has the address {}", opening.to.ip()),
        Lack::NoPort(service) => format!("Service {service} has no port {port}/{protocol}"),
        Lack::NoEndpoint(entry) => {
            format!("Service {} has no endpoint that is ready", entry.service)
        }
        Lack::NoLocalEndpoint(entry) => format!(
            "Service {} has no endpoint on this node, and its traffic policy is Local",
            entry.service
        ),
        Lack::SourceRanges(entry) => format!(
            "{} is not in loadBalancerSourceRanges of Service {}",
            opening.source, entry.service
        ),
    }
}

/// What makes the answer less than certain.
pub(super) fn notes(world: &World, from: &From, to: &To, opening: &Opening) -> Vec<String> {
    let mut notes = Vec::new();
    let entries = world.ground().entries(opening);
    notes.extend(not_on_loopback(world, opening));
    notes.extend(outer_doors(from, opening, &entries));
    for entry in &entries {
        if let Some(why) = world.unwritten.get(entry.service) {
            notes.push(format!(
                "rules of Service {} are not in the kernel as they should be: {why}",
                entry.service
            ));
        }
    }
    if let [first, others @ ..] = &entries[..]
        && let Some(other) = others.iter().find(|other| other.service != first.service)
    {
        notes.push(format!(
            "Service {} claims the same address and port: whoever was first has it",
            other.service
        ));
    }
    if let Some(why) = &world.trouble {
        notes.push(format!("no Service can be changed on this node: {why}"));
    }
    let may_be_guarded = opening.sender == Sender::Pod && opening.protocol == Protocol::Udp;
    if may_be_guarded && world.own_network.is_some() && world.overlay == Overlay::Unknown {
        notes.push(
            "no server has told yet whether there is an overlay between nodes, which pods are kept from"
                .to_owned(),
        );
    }
    let policies = world.policies.as_ref();
    if let Some(why) = policies.and_then(|policies| policies.trouble.as_ref()) {
        notes.push(format!("NetworkPolicies: {why}"));
    }
    if let Some(node) = from.node.as_deref().filter(|node| !world.is_here(node)) {
        if !entries.is_empty() && !world.kernel.own.contains(&to.at.ip()) {
            notes.push(format!(
                "node {node} translates it, by its own endpoints where a traffic policy is Local: ask there"
            ));
        } else if to.party.node.as_deref() != Some(&*world.node) {
            notes.push(format!(
                "neither end is on this node: the route is this node's, ask on {node} for its own"
            ));
        }
    }
    notes
}

/// Who is used to other proxies asks for a node port at 127.0.0.1.
fn not_on_loopback(world: &World, opening: &Opening) -> Option<String> {
    let asked = opening.to;
    if !asked.ip().is_loopback() {
        return None;
    }
    let (service, _) = world.services.iter().find(|(_, view)| {
        let mut ports = view.ports.iter().map(|ports| &ports.port);
        ports.any(|port| port.node_port == Some(asked.port()) && port.protocol == opening.protocol)
    })?;
    Some(format!(
        "{} is the node port of Service {service}, and node ports are not on loopback: ask for node:{0}",
        asked.port()
    ))
}

/// Who comes from outside comes to another address than a Service's first one.
fn outer_doors(from: &From, opening: &Opening, entries: &[Entry<'_>]) -> Option<String> {
    let entry = entries.first()?;
    let is_outside = opening.sender == Sender::Elsewhere && from.node.is_none();
    if !is_outside || entry.door != Door::ClusterIp {
        return None;
    }
    let port = &entry.port.port;
    let outer = entry.view.external_ips_of(port);
    let outer = outer.chain(entry.view.balancer_ips_of(port));
    let addresses = outer.map(|ip| SocketAddr::new(ip, port.port).to_string());
    let mut doors: Vec<String> = addresses.collect();
    doors.extend(port.node_port.map(|number| format!("node:{number}")));
    (!doors.is_empty()).then(|| {
        format!(
            "this is its cluster IP, to which few ways lead from outside: ask for {}",
            doors.join(" or ")
        )
    })
}
