//! What of a packet the overlay's guard drops: only nodes write to it. Pure.
//!
//! As both engines write it from [`coracle_netfilter::node`]: before a packet may be translated,
//! and once more after.

use std::net::{IpAddr, SocketAddr};

use coracle_netfilter::{
    node::{Envelopes, Overlay},
    service::{Protocol, way::Sender},
};

use super::world::World;

/// A packet, as the guard sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) sender: Sender,
    pub(super) source: IpAddr,
    pub(super) protocol: Protocol,
    /// Where it is meant to go by now.
    pub(super) to: SocketAddr,
}

/// Why it is dropped as it comes in, before anything is translated.
pub(super) fn kept_out_as_it_comes(world: &World, seen: &Seen) -> Option<String> {
    let guard = guard(world, seen).filter(|guard| guard.is_of_pod)?;
    (seen.sender != Sender::Node && guard.is_to_node).then(|| of_pod(seen))
}

/// Why it is dropped on its further way, also if a Service or a published port has led it there.
pub(super) fn kept_out(world: &World, seen: &Seen, is_translated: bool) -> Option<String> {
    let guard = guard(world, seen)?;
    let is_forwarded = seen.sender != Sender::Node;
    let is_guarded = guard.is_to_node || (is_forwarded && guard.is_to_no_pod);
    let port = seen.to.port();
    match (guard.is_of_pod, is_translated) {
        (true, _) if is_guarded => Some(of_pod(seen)),
        (false, true) if is_guarded => Some(format!(
            "nothing that is translated gets to the overlay between nodes, UDP port {port}"
        )),
        (false, false) if guard.is_to_node && guard.is_of_stranger => Some(format!(
            "the overlay between nodes, UDP port {port}, takes packets from other nodes alone"
        )),
        _ => None,
    }
}

fn of_pod(seen: &Seen) -> String {
    format!(
        "pods send nothing to the overlay between nodes, UDP port {}: it would be taken for another node's",
        seen.to.port()
    )
}

struct Guard {
    is_of_pod: bool,
    is_of_stranger: bool,
    is_to_node: bool,
    is_to_no_pod: bool,
}

/// `None`: it is no envelope.
fn guard(world: &World, seen: &Seen) -> Option<Guard> {
    let Overlay::Port(Envelopes { pods, port, nodes }) = &world.overlay else {
        return None;
    };
    let is_node = |source: &IpAddr| match (nodes, source) {
        (Some(nodes), IpAddr::V4(source)) => nodes.contains(source),
        (None, _) | (_, IpAddr::V6(_)) => true,
    };
    let (to, is_envelope) = (seen.to.ip(), seen.protocol == Protocol::Udp);
    (is_envelope && to.is_ipv4() && seen.to.port() == *port).then(|| Guard {
        is_of_pod: pods.contains(&seen.source),
        is_of_stranger: !is_node(&seen.source),
        is_to_node: world.kernel.own.contains(&to),
        is_to_no_pod: !pods.contains(&to),
    })
}
