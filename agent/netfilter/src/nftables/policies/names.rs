//! How sets, chains and elements of policies are called. Pure.

use std::net::IpAddr;

use super::super::{
    batch::{Data, Key},
    expression::{Verdict, octets},
};
use crate::policy::{ChainId, GroupId, PortElement, PortGroupId};

/// Sets and chains that are always there.
pub(super) mod name {
    /// Addresses of selected pods, to the chains that decide on what they get.
    pub(in crate::nftables) const TO: &str = "to";
    /// The same for what they send.
    pub(in crate::nftables) const FROM: &str = "from";
    /// Pairs of the same address: pods that reach themselves.
    pub(in crate::nftables) const ITSELF: &str = "itself";
    /// For the direction that no policy of a selected pod is about.
    pub(in crate::nftables) const OPEN: &str = "open";
    pub(in crate::nftables) const FORWARD: &str = "forward";
    pub(in crate::nftables) const INPUT: &str = "input";
}

/// Both maps of selected pods, in the order in which chains are named with them.
pub(super) const MAPS: [&str; 2] = [name::TO, name::FROM];

pub(super) fn chain_name(id: &ChainId) -> String {
    format!("c-{id}")
}

pub(super) fn group_name(id: &GroupId) -> String {
    format!("g-{id}")
}

pub(super) fn port_group_name(id: &PortGroupId) -> String {
    format!("p-{id}")
}

/// Which chain decides on a selected pod in one direction.
pub(super) fn lead(chain: Option<&ChainId>) -> Data {
    let chain = chain.map_or_else(|| name::OPEN.to_owned(), chain_name);
    Data::Verdict(Verdict::Jump(chain))
}

/// Element of [`name::ITSELF`].
pub(super) fn itself(address: IpAddr) -> Key {
    Key::one([octets(address), octets(address)].concat())
}

/// Element of a group, of [`name::TO`] and [`name::FROM`].
pub(super) fn member(address: IpAddr) -> Key {
    Key::one(octets(address))
}

/// Element of a port group.
pub(super) fn port_member((address, protocol, port): &PortElement) -> Key {
    let address = octets(*address);
    Key::one([address, protocol_part(protocol.number()), port_part(*port)].concat())
}

pub(super) fn protocol_part(protocol: u8) -> Vec<u8> {
    vec![protocol, 0, 0, 0]
}

pub(super) fn port_part(port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![high, low, 0, 0]
}

pub(super) fn blocks_name(id: &ChainId, at: usize) -> String {
    format!("b-{id}-{at}")
}

pub(super) fn numbers_name(id: &ChainId, at: usize) -> String {
    format!("n-{id}-{at}")
}
