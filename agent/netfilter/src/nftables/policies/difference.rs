//! What carries a change of the plan out in a table that is right, once the sets and chains are
//! made that it needs ([`super::made`]). Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{
    super::batch::{Batch, Data, Key},
    layout,
    names::{self, name},
    rules::Packets,
};
use crate::{
    netlink::Family,
    policy::{Chain, ChainId, Change, Plan, PortElement, SetChange},
};

/// What a change needs to know of the plan before it.
pub(super) struct Before {
    /// Which chains decided on the pods that change.
    led: BTreeMap<IpAddr, [Option<ChainId>; 2]>,
    chains: BTreeMap<ChainId, Chain>,
    pub(super) needed: Vec<Family>,
}

impl Before {
    pub(super) fn of(plan: &Plan, change: &Change) -> Self {
        let addresses: BTreeSet<&IpAddr> = change.to.keys().chain(change.from.keys()).collect();
        let led = addresses.into_iter().map(|address| {
            let led = [&plan.to, &plan.from].map(|led| led.get(address).cloned());
            (*address, led)
        });
        let chains = change.chains_removed.iter();
        let chains = chains.filter_map(|id| Some((id.clone(), plan.chains.get(id)?.clone())));
        let needed = Family::ALL.into_iter();
        Self {
            led: led.collect(),
            chains: chains.collect(),
            needed: needed
                .filter(|family| layout::is_needed(*family, plan))
                .collect(),
        }
    }
}

/// Who is led where, and what nobody needs any more.
pub(super) fn led(family: Family, change: &Change, before: &Before) -> Batch {
    let packets = Packets(family);
    let table = packets.table();
    let mut batch = Batch::new();
    let members = Members::of_old(family, change);
    for (set, keys) in &members.added {
        batch.add_elements(&table, set, keys.iter().map(|key| (key, &Data::None)));
    }
    lead(family, change, before, &mut batch);
    for (set, keys) in &members.dropped {
        batch.delete_elements(&table, set, keys);
    }
    for chain in &change.chains_removed {
        batch.flush_chain(&table, &names::chain_name(chain));
        batch.delete_chain(&table, &names::chain_name(chain));
        let gone = before.chains.get(chain);
        for (set, _) in gone
            .into_iter()
            .flat_map(|gone| packets.constants(chain, gone))
        {
            batch.delete_set(&table, &set.name);
        }
    }
    for group in &change.groups.removed {
        batch.delete_set(&table, &names::group_name(group));
    }
    for group in &change.port_groups.removed {
        batch.delete_set(&table, &names::port_group_name(group));
    }
    batch
}

/// Elements of selected pods.
fn lead(family: Family, change: &Change, before: &Before, batch: &mut Batch) {
    let table = Packets(family).table();
    for (address, had) in &before.led {
        if Family::of(*address) != family {
            continue;
        }
        let mut has = had.clone();
        for (at, led) in [&change.to, &change.from].into_iter().enumerate() {
            if let Some(chain) = led.get(address) {
                has[at].clone_from(chain);
            }
        }
        let (was, is) = (
            had.iter().any(Option::is_some),
            has.iter().any(Option::is_some),
        );
        let key = names::member(*address);
        for (map, (had, has)) in names::MAPS.into_iter().zip(had.iter().zip(&has)) {
            if was && is && had == has {
                continue;
            }
            if was {
                batch.delete_elements(&table, map, [&key]);
            }
            if is {
                let chain = names::lead(has.as_ref());
                batch.add_elements(&table, map, [(&key, &chain)]);
            }
        }
        let pair = names::itself(*address);
        match (was, is) {
            (false, true) => batch.add_elements(&table, name::ITSELF, [(&pair, &Data::None)]),
            (true, false) => batch.delete_elements(&table, name::ITSELF, [&pair]),
            _ => {}
        }
    }
}

/// Elements of groups that come and go, by set.
pub(super) struct Members {
    pub(super) added: Vec<(String, Vec<Key>)>,
    dropped: Vec<(String, Vec<Key>)>,
}

impl Members {
    /// Of sets that are new.
    pub(super) fn of_new(family: Family, change: &Change) -> Self {
        let mut new = Change::default();
        new.groups.added = change.groups.added.clone();
        new.groups
            .added
            .retain(|id, _| change.groups.made.contains(id));
        new.port_groups.added = change.port_groups.added.clone();
        let made = &change.port_groups.made;
        new.port_groups.added.retain(|id, _| made.contains(id));
        Self::all(family, &new)
    }

    /// Of those that were there.
    fn of_old(family: Family, change: &Change) -> Self {
        let mut old = Change {
            groups: change.groups.clone(),
            port_groups: change.port_groups.clone(),
            ..Change::default()
        };
        old.groups
            .added
            .retain(|id, _| !change.groups.made.contains(id));
        let made = &change.port_groups.made;
        old.port_groups.added.retain(|id, _| !made.contains(id));
        Self::all(family, &old)
    }

    fn all(family: Family, change: &Change) -> Self {
        let is_ours = |address: &IpAddr| Family::of(*address) == family;
        let groups = |of: &BTreeMap<_, BTreeSet<IpAddr>>| {
            let sets = of.iter().map(|(id, addresses)| {
                let ours = addresses.iter().copied().filter(is_ours);
                (names::group_name(id), ours.map(names::member).collect())
            });
            sets.collect::<Vec<(String, Vec<Key>)>>()
        };
        let ports = |of: &BTreeMap<_, BTreeSet<PortElement>>| {
            let sets = of.iter().map(|(id, ports)| {
                let ours = ports.iter().filter(|(address, ..)| is_ours(address));
                (
                    names::port_group_name(id),
                    ours.map(names::port_member).collect(),
                )
            });
            sets.collect::<Vec<(String, Vec<Key>)>>()
        };
        let SetChange { added, dropped, .. } = &change.groups;
        Self {
            added: [groups(added), ports(&change.port_groups.added)].concat(),
            dropped: [groups(dropped), ports(&change.port_groups.dropped)].concat(),
        }
    }
}
