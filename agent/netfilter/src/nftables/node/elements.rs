//! The elements of a plan. Pure.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use super::{
    super::{
        batch::{Data, Key},
        expression::octets,
        transition::Elements,
        vip::{Vip, endpoint_value},
    },
    layout::name,
};
use crate::{
    masquerade::Masquerade,
    node::{Envelopes, NodePlan},
};

/// `224.0.0.0/4`: to everybody who listens, whose answers come to whoever asked.
const MULTICAST: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);
const MULTICAST_BITS: u8 = 4;

/// Those of [`super::layout::rules`].
pub(super) fn of(plan: &NodePlan) -> Elements {
    let mut all = Elements::new();
    add_host_ports(plan, &mut all);
    if let Some(masquerade) = plan.masquerade.as_ref().filter(|one| one.translate) {
        add_masquerade(masquerade, &mut all);
    }
    all
}

/// Those of [`super::layout::guard`].
pub(super) fn of_overlay(envelopes: &Envelopes) -> Elements {
    let Envelopes { pods, port, nodes } = envelopes;
    let IpNet::V4(pods) = *pods else {
        return Elements::new();
    };
    let port = [port.to_be_bytes().to_vec(), vec![0; 2]].concat();
    let end = |address: Ipv4Addr| [octets(address.into()), port.clone()].concat();
    let sent = |by: Ipv4Net| Key::between(end(by.network()), end(by.broadcast()));
    let anybody = Ipv4Net::default();
    let mut all = Elements::new();
    put(&mut all, name::ENVELOPES, sent(pods), Data::None);
    put(&mut all, name::ANYBODYS, sent(anybody), Data::None);
    put(&mut all, name::TO_PODS, between(anybody, pods), Data::None);
    let nodes = nodes.as_ref();
    let known = nodes.map(|nodes| nodes.iter().map(|node| Ipv4Net::from(*node)).collect());
    for node in known.unwrap_or_else(|| vec![anybody]) {
        put(&mut all, name::NODES, sent(node), Data::None);
    }
    all
}

/// Where two pods publish one port, the last has it: the scheduler does not let that happen for
/// longer than one of them takes to end.
fn add_host_ports(plan: &NodePlan, all: &mut Elements) {
    for pod in &plan.host_ports {
        let IpAddr::V4(address) = pod.address else {
            continue;
        };
        for port in &pod.ports {
            let on = match port.host_ip {
                None => Ipv4Addr::UNSPECIFIED,
                Some(IpAddr::V4(address)) => address,
                Some(IpAddr::V6(_)) => continue,
            };
            let vip = Vip {
                address: on,
                protocol: port.protocol,
                port: port.host_port,
            };
            let endpoint = endpoint_value(&(address, port.container_port).into());
            put(
                all,
                name::HOST_PORTS,
                Key::one(vip.key()),
                Data::Value(endpoint),
            );
            let pair = [octets(pod.address), octets(pod.address)].concat();
            put(all, name::HAIRPINS, Key::one(pair), Data::None);
        }
    }
}

/// Those of [`super::layout::destinations`].
pub(super) fn add_masquerade(masquerade: &Masquerade, all: &mut Elements) {
    let IpNet::V4(subnet) = masquerade.subnet.trunc() else {
        return;
    };
    let v4 = masquerade
        .except
        .iter()
        .filter_map(|cidr| match cidr.trunc() {
            IpNet::V4(cidr) => Some(cidr),
            IpNet::V6(_) => None,
        });
    let multicast = Ipv4Net::new_assert(MULTICAST, MULTICAST_BITS);
    let mut except: Vec<Ipv4Net> = v4.collect();
    except.extend([subnet, multicast]);
    // Ranges of one set may not overlap.
    for destination in Ipv4Net::aggregate(&except) {
        put(all, name::ITSELF, between(subnet, destination), Data::None);
    }
    let anywhere = between(subnet, Ipv4Net::default());
    put(all, name::OUTGOING, anywhere, Data::None);
}

/// From any address of one to any of the other.
fn between(from: Ipv4Net, to: Ipv4Net) -> Key {
    let pair = |from: Ipv4Addr, to: Ipv4Addr| [octets(from.into()), octets(to.into())].concat();
    Key::between(
        pair(from.network(), to.network()),
        pair(from.broadcast(), to.broadcast()),
    )
}

fn put(all: &mut Elements, set: &str, key: Key, data: Data) {
    all.entry(set.to_owned()).or_default().insert(key, data);
}
