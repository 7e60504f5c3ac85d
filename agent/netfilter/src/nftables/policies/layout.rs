//! The table of policies of one family: its sets, chains and elements. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    super::{
        batch::Data,
        table::{Chain as Hooked, Hook, Kind, Layout, Set, Values},
        transition::Elements,
    },
    NodeNetwork,
    names::*,
    rules::Packets,
};
use crate::{
    netlink::Family,
    policy::{ChainId, Plan},
};

/// After addresses were translated to those of pods, before sources are. What passes here still has
/// to pass the chains of others.
const PRIORITY: i32 = -10;
/// What makes a plan's table.
pub(super) fn layout(family: Family, plan: &Plan, node: &NodeNetwork) -> Layout {
    let packets = Packets(family);
    let mut sets = vec![
        Set::exact(name::TO, packets.address(), Values::Verdicts),
        Set::exact(name::FROM, packets.address(), Values::Verdicts),
        Set::exact(name::ITSELF, packets.pair(), Values::None),
    ];
    sets.extend(plan.groups.keys().map(|id| packets.group(id)));
    sets.extend(plan.port_groups.keys().map(|id| packets.port_group(id)));
    let mut chains = vec![(name::OPEN.to_owned(), None, vec![packets.in_the_middle()])];
    for (id, chain) in &plan.chains {
        let constants = packets.constants(id, chain);
        sets.extend(constants.into_iter().map(|(set, _)| set));
        chains.push((chain_name(id), None, packets.rules(id, chain)));
    }
    let own = node
        .own_service_ips
        .iter()
        .filter(|ip| Family::of(**ip) == family);
    for (name, hook, rules) in [
        (
            name::FORWARD,
            Hook::Forward,
            packets.forward(node.bridge.as_deref()),
        ),
        (
            name::INPUT,
            Hook::Input,
            own.map(|ip| packets.input(*ip)).collect(),
        ),
    ] {
        let hooked = Hooked {
            kind: Kind::Filter,
            hook,
            priority: PRIORITY,
        };
        chains.push((name.to_owned(), Some(hooked), rules));
    }
    Layout {
        table: packets.table(),
        sets,
        chains,
    }
}

/// Which chains decide on a selected pod; one at least.
pub(super) type Leads<'a> = [Option<&'a ChainId>; 2];

/// The pods that policies select.
fn selected(plan: &Plan) -> BTreeMap<IpAddr, Leads<'_>> {
    let mut all: BTreeMap<IpAddr, Leads<'_>> = BTreeMap::new();
    for (at, led) in [&plan.to, &plan.from].into_iter().enumerate() {
        for (address, chain) in led {
            all.entry(*address).or_default()[at] = Some(chain);
        }
    }
    all
}

/// Whether a plan needs a table of the family at all.
pub(super) fn is_needed(family: Family, plan: &Plan) -> bool {
    let mut selected = plan.to.keys().chain(plan.from.keys());
    selected.any(|address| Family::of(*address) == family)
}

/// All elements of a plan's table.
pub(super) fn elements(family: Family, plan: &Plan) -> Elements {
    let packets = Packets(family);
    let mut all = Elements::new();
    let is_ours = |address: &&IpAddr| Family::of(**address) == family;
    for (address, leads) in selected(plan) {
        if Family::of(address) != family {
            continue;
        }
        for (map, chain) in MAPS.into_iter().zip(leads) {
            let element = (member(address), lead(chain));
            all.entry(map.to_owned()).or_default().extend([element]);
        }
        let pair = (itself(address), Data::None);
        all.entry(name::ITSELF.to_owned())
            .or_default()
            .extend([pair]);
    }
    for (id, addresses) in &plan.groups {
        let keys = addresses.iter().filter(is_ours);
        let keys = keys.map(|address| (member(*address), Data::None));
        all.entry(group_name(id)).or_default().extend(keys);
    }
    for (id, ports) in &plan.port_groups {
        let keys = ports.iter().filter(|(address, ..)| is_ours(&address));
        let keys = keys.map(|port| (port_member(port), Data::None));
        all.entry(port_group_name(id)).or_default().extend(keys);
    }
    for (id, chain) in &plan.chains {
        for (set, keys) in packets.constants(id, chain) {
            let keys = keys.into_iter().map(|key| (key, Data::None));
            all.entry(set.name).or_default().extend(keys);
        }
    }
    all
}
