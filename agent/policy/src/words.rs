//! A policy in words, for people. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use coracle_api::selector::LabelSelector;
use coracle_netfilter::policy::{Direction, GroupId, IpRange, Peer, Ports, Rule};
use ipnet::{Ipv4Subnets, Ipv6Subnets};

use crate::policy::{GroupSpec, Namespaces, Policy, Side};

/// A range of more blocks than these is told by its ends.
const MOST_BLOCKS: usize = 4;

impl Policy {
    /// Which pods it selects.
    #[must_use]
    pub fn selected_in_words(&self) -> String {
        format!("{} in namespace {}", pods(&self.pods), self.key.namespace)
    }

    /// What it lets through, a line each, with the place of the rule in the object's list; `None`
    /// where it says nothing of the direction.
    #[must_use]
    pub fn rules_in_words(&self, direction: Direction) -> Option<Vec<(usize, String)>> {
        let side = self.side(direction)?;
        let rules = side.places.iter().zip(&side.rules);
        let lines = rules.map(|(at, rule)| (*at, rule_in_words(side, direction, rule)));
        Some(lines.collect())
    }

    /// Whom its rules name, by what selects them.
    #[must_use]
    pub fn groups_in_words(&self) -> BTreeMap<GroupId, String> {
        let sides = self.ingress.iter().chain(&self.egress);
        let groups = sides.flat_map(|side| &side.groups);
        groups.map(|(id, spec)| (id.clone(), group(spec))).collect()
    }
}

fn rule_in_words(side: &Side, direction: Direction, rule: &Rule) -> String {
    let (way, all) = match direction {
        Direction::Ingress => ("from", "from anybody"),
        Direction::Egress => ("to", "to anybody"),
    };
    let peer = match &rule.peer {
        Peer::Any => all.to_owned(),
        Peer::Group(id) => match side.groups.get(id) {
            Some(spec) => format!("{way} {}", group(spec)),
            None => format!("{way} group {id}"),
        },
        Peer::Blocks(ranges) if ranges.is_empty() => format!("{way} nobody"),
        Peer::Blocks(ranges) => {
            let ranges: Vec<String> = ranges.iter().flat_map(blocks).collect();
            format!("{way} {}", ranges.join(", "))
        }
    };
    let ports = match &rule.ports {
        Ports::Any => "every port".to_owned(),
        Ports::Numbers(numbers) => {
            let numbers = numbers.iter().map(|(protocol, first, last)| {
                let protocol = protocol.as_str();
                match (first, last) {
                    (0, &u16::MAX) => format!("every {protocol} port"),
                    (first, last) if first == last => format!("{first}/{protocol}"),
                    (first, last) => format!("{first}-{last}/{protocol}"),
                }
            });
            numbers.collect::<Vec<_>>().join(", ")
        }
        Ports::Named(id) => match side.port_groups.get(id) {
            Some(spec) => format!("port {:?}/{}", spec.name, spec.protocol.as_str()),
            None => format!("port group {id}"),
        },
    };
    format!("{peer}: {ports}")
}

fn group(spec: &GroupSpec) -> String {
    let pods = pods(&spec.pods);
    match &spec.namespaces {
        Namespaces::All => format!("{pods} in every namespace"),
        Namespaces::Own(name) => format!("{pods} in namespace {name}"),
        Namespaces::Selected(selector) => match selector.to_string() {
            all if all.is_empty() => format!("{pods} in every namespace"),
            some => format!("{pods} in namespaces with {some}"),
        },
    }
}

fn pods(selector: &LabelSelector) -> String {
    match selector.to_string() {
        all if all.is_empty() => "all pods".to_owned(),
        some => format!("pods with {some}"),
    }
}

/// As ranges are written, if these are few.
fn blocks(range: &IpRange) -> Vec<String> {
    let enough = MOST_BLOCKS + 1;
    let blocks: Vec<String> = match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let blocks = Ipv4Subnets::new(first, last, 0).take(enough);
            blocks.map(|one| one.to_string()).collect()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let blocks = Ipv6Subnets::new(first, last, 0).take(enough);
            blocks.map(|one| one.to_string()).collect()
        }
        _ => Vec::new(),
    };
    match blocks.len() {
        1..=MOST_BLOCKS => blocks,
        _ => vec![format!("{}-{}", range.first, range.last)],
    }
}
