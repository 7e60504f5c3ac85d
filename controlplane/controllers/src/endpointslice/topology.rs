//! Shares endpoints out among zones by their CPUs, for Services with `topology-mode: Auto`. Pure.
//!
//! Most endpoints serve the zone they are in. Where a zone has more than its share, some serve
//! another; where none of it can be done without some being loaded far above others, nobody gets
//! hints.
//!
//! Source: `k8s.io/endpointslice/topologycache` at v1.37.

use std::{collections::BTreeMap, sync::Arc};

use coracle_api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::Node,
    discovery::v1::{Endpoint, EndpointHints, EndpointSlice},
};

use super::hints::{for_zone, has_any, is_ready, remove};

/// By how much an endpoint may be loaded above the others.
const OVERLOAD: f64 = 0.2;
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// Nodes with one of these take no part.
const EXCLUDED: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

pub(super) const ENABLED: &str = "Topology Aware Hints has been enabled";
pub(super) const DISABLED: &str = "Topology Aware Hints has been disabled";
const NO_NODES: &str =
    "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
const TOO_FEW: &str = "Insufficient number of endpoints";
const OVERLOADED: &str = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
const NO_ZONE: &str = "One or more endpoints do not have a zone specified";
const NONE: &str = "No hints allocated for zones";

/// The part of all CPUs that each zone has.
pub(super) type Ratios = BTreeMap<String, f64>;

/// The slices of one address family, as they will be.
pub(super) struct Slices<'a> {
    pub(super) create: &'a mut Vec<EndpointSlice>,
    pub(super) update: &'a mut Vec<EndpointSlice>,
    /// Those that are left as they are.
    pub(super) unchanged: Vec<&'a EndpointSlice>,
}

/// How many endpoints a zone gets.
#[derive(Debug, Clone, Copy)]
struct Allocation {
    most: usize,
    desired: f64,
}

type Allocations = BTreeMap<String, Allocation>;
type Counts = BTreeMap<String, usize>;

/// What a Node's part in it depends on; a change of anything else changes no ratio.
pub(super) fn part_of(node: &Node) -> Option<(Option<String>, i64)> {
    let labels = node.metadata.labels.as_ref();
    let is_excluded = labels.is_some_and(|all| EXCLUDED.iter().any(|name| all.contains_key(*name)));
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if is_excluded || !is_ready {
        return None;
    }
    let cpu = status.and_then(|status| status.allocatable.as_ref()?.get("cpu"));
    let cpu = cpu.and_then(|cpu| Quantity::parse(&cpu.0).ok());
    Some((zone_of(node), cpu.map_or(0, |cpu| cpu.milli_value())))
}

/// The zone of a node, if it says.
pub(super) fn zone_of(node: &Node) -> Option<String> {
    node.metadata.labels.as_ref()?.get(ZONE).cloned()
}

/// `None` if a node does not say what it has, or all are in one zone.
///
/// Source: `SetNodes`.
pub(super) fn ratios(nodes: &[Arc<Node>]) -> Option<Ratios> {
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    for (zone, cpu) in nodes.iter().filter_map(|node| part_of(node)) {
        let zone = zone.filter(|zone| !zone.is_empty() && cpu != 0)?;
        *by_zone.entry(zone).or_default() += cpu;
    }
    let total: i64 = by_zone.values().sum();
    if total == 0 || by_zone.len() < 2 {
        return None;
    }
    let part = |(zone, cpu)| (zone, float(cpu) / float(total));
    Some(by_zone.into_iter().map(part).collect())
}

/// Gives each ready endpoint of what is written a zone, and writes what is no longer right.
///
/// # Errors
/// Why nobody gets hints, in upstream's words.
///
/// Source: `AddHints`.
pub(super) fn assign(slices: &mut Slices<'_>, ratios: Option<&Ratios>) -> Result<(), String> {
    let assigned = try_assign(slices, ratios);
    if assigned.is_err() {
        slices.create.iter_mut().for_each(remove);
        slices.update.iter_mut().for_each(remove);
        let hinted = slices.unchanged.iter().filter(|slice| has_any(slice));
        let hinted: Vec<EndpointSlice> = hinted.map(|slice| (*slice).clone()).collect();
        slices.update.extend(hinted.into_iter().map(|mut slice| {
            remove(&mut slice);
            slice
        }));
    }
    assigned
}

fn try_assign(slices: &mut Slices<'_>, ratios: Option<&Ratios>) -> Result<(), String> {
    let whole = slices.create.iter().chain(&*slices.update);
    let whole = whole.chain(slices.unchanged.iter().copied());
    let count = whole.flat_map(ready).count();
    let allocations = allocations(ratios, count)?;
    let mut allocated = keep(slices, &allocations);
    for endpoint in written(slices) {
        let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
        let zone = zone.ok_or_else(|| NO_ZONE.to_owned())?;
        endpoint.hints = Some(meant_for(&zone));
        *allocated.entry(zone).or_default() += 1;
    }
    redistribute(slices, Moves::between(&allocations, &allocated));
    // What was moved is still counted, only elsewhere.
    if allocated.is_empty() {
        return Err(NONE.to_owned());
    }
    Ok(())
}

fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| is_ready(endpoint))
}

/// The ready endpoints of what is written; the others have no hints.
fn written<'a>(slices: &'a mut Slices<'_>) -> impl Iterator<Item = &'a mut Endpoint> {
    let slices = slices.create.iter_mut().chain(slices.update.iter_mut());
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter_mut().flatten());
    endpoints.filter_map(|endpoint| {
        if is_ready(endpoint) {
            return Some(endpoint);
        }
        endpoint.hints = None;
        None
    })
}

fn meant_for(zone: &str) -> EndpointHints {
    EndpointHints {
        for_zones: Some(vec![for_zone(zone)]),
        for_nodes: None,
    }
}

/// Source: `getAllocations`.
fn allocations(ratios: Option<&Ratios>, count: usize) -> Result<Allocations, String> {
    let ratios = ratios.ok_or_else(|| NO_NODES.to_owned())?;
    let zones = ratios.len();
    let why_not = |why: &str| format!("{why} ({count} endpoints, {zones} zones)");
    if zones > count {
        return Err(why_not(TOO_FEW));
    }
    let least = |ratio: f64| {
        let desired = ratio * size(count);
        let least = (desired * (1.0 / (1.0 + OVERLOAD))).ceil();
        (least, desired.max(least))
    };
    let spare = size(count) - ratios.values().map(|ratio| least(*ratio).0).sum::<f64>();
    if spare < 0.0 {
        return Err(why_not(OVERLOADED));
    }
    let of = |(zone, ratio): (&String, &f64)| {
        let (least, desired) = least(*ratio);
        let most = number(least + spare);
        (zone.clone(), Allocation { most, desired })
    };
    Ok(ratios.iter().map(of).collect())
}

/// What the slices have that stay as they are; those that cannot are written.
///
/// Source: `getAllocatedHintsByZone` and `getHintsByZone`.
fn keep(slices: &mut Slices<'_>, allocations: &Allocations) -> Counts {
    let mut allocated = Counts::new();
    slices.unchanged.retain(|slice| {
        let Some(own) = kept(slice, &allocated, allocations) else {
            slices.update.push((*slice).clone());
            return false;
        };
        for (zone, count) in own {
            *allocated.entry(zone).or_default() += count;
        }
        true
    });
    allocated
}

fn kept(slice: &EndpointSlice, allocated: &Counts, allocations: &Allocations) -> Option<Counts> {
    let mut own = Counts::new();
    for endpoint in ready(slice) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref()?;
        if zones.is_empty() {
            return None;
        }
        for zone in zones {
            *own.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let before = allocated.get(zone).copied().unwrap_or(0);
        let allocation = allocations.get(zone);
        allocation.is_some_and(|allocation| before + count <= allocation.most)
    };
    own.iter().all(fits).then_some(own)
}

/// How many endpoints zones give, and get.
struct Moves {
    give: Counts,
    get: Counts,
}

impl Moves {
    /// Source: `getGivingAndReceivingZones`.
    fn between(allocations: &Allocations, allocated: &Counts) -> Self {
        let surplus = |(zone, allocation): (&String, &Allocation)| {
            let count = allocated.get(zone).copied().unwrap_or(0);
            (zone.clone(), size(count) - allocation.desired)
        };
        let mut surplus: BTreeMap<String, f64> = allocations.iter().map(surplus).collect();
        let mut moves = Self {
            give: Counts::new(),
            get: Counts::new(),
        };
        let most = |surplus: &BTreeMap<String, f64>, sign: f64| {
            let zones = surplus.iter().map(|(zone, own)| (zone.clone(), own * sign));
            zones.fold(None, |best: Option<(String, f64)>, (zone, own)| {
                let is_more = own > best.as_ref().map_or(0.0, |(_, most)| *most);
                if is_more { Some((zone, own)) } else { best }
            })
        };
        while let (Some((giver, more)), Some((taker, less))) =
            (most(&surplus, 1.0), most(&surplus, -1.0))
        {
            if (more < 1.0 && less < 1.0) || more < 0.5 || less < 0.5 {
                break;
            }
            if let Some(own) = surplus.get_mut(&giver) {
                *own -= 1.0;
            }
            if let Some(own) = surplus.get_mut(&taker) {
                *own += 1.0;
            }
            *moves.give.entry(giver).or_default() += 1;
            *moves.get.entry(taker).or_default() += 1;
        }
        moves
    }
}

/// Source: `redistributeHints`.
fn redistribute(slices: &mut Slices<'_>, mut moves: Moves) {
    for endpoint in written(slices) {
        let Some(left) = endpoint
            .zone
            .as_ref()
            .and_then(|zone| moves.give.get_mut(zone))
        else {
            continue;
        };
        let Some((taker, wanted)) = moves.get.iter_mut().find(|(_, wanted)| **wanted > 0) else {
            return;
        };
        if *left > 0 {
            endpoint.hints = Some(meant_for(taker));
            *left -= 1;
            *wanted -= 1;
        }
    }
}

fn size(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let size = count as f64;
    size
}

fn float(cpu: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more digits")]
    let float = cpu as f64;
    float
}

fn number(whole: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of endpoints"
    )]
    let number = whole as usize;
    number
}
