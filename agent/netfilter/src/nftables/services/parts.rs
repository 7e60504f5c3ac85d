//! What the rules of the table have in common: names, marks, and steps.

use std::borrow::Cow;

use super::super::{
    expression::{Expression, Meta},
    rule::bits,
    table::Table,
    vip::SCRATCH,
};
use crate::netlink::Family;

pub(super) const TABLE: Table = Table {
    family: Family::Ipv4,
    name: Cow::Borrowed("coracle"),
};

/// Maps and sets of the table. All that changes with a Service is an element of one of these.
pub(super) mod name {
    /// Address and port, to the chain that chooses an endpoint.
    pub(in crate::nftables) const SERVICES: &str = "services";
    /// Address, port and number, to an endpoint.
    pub(in crate::nftables) const ENDPOINTS: &str = "endpoints";
    /// The same for what comes from outside, where that stays on the node.
    pub(in crate::nftables) const LOCAL_ENDPOINTS: &str = "local-endpoints";
    /// Where external traffic stays on the node: who may go anywhere all the same.
    pub(in crate::nftables) const ANYWHERE: &str = "anywhere";
    /// And the others.
    pub(in crate::nftables) const HERE: &str = "here";
    /// Addresses and ports that not everybody may use: who may, and where they go.
    pub(in crate::nftables) const ALLOWED: &str = "allowed";
    pub(in crate::nftables) const GUARDED: &str = "guarded";
    /// Address and port, to the chain that remembers where a client goes.
    pub(in crate::nftables) const AFFINITY: &str = "affinity";
    /// Client, address and port, to the endpoint that it had last.
    pub(in crate::nftables) const STICKY: &str = "sticky";
    /// What becomes of packets that no endpoint takes.
    pub(in crate::nftables) const UNSERVED: &str = "unserved";
    /// Pairs of the same address: pods that may reach themselves.
    pub(in crate::nftables) const HAIRPINS: &str = "hairpins";
    /// Chains.
    pub(in crate::nftables) const EXTERNAL_LOCAL: &str = "external-local";
    pub(in crate::nftables) const NODE_EXTERNAL_LOCAL: &str = "node-external-local";
    pub(in crate::nftables) const GUARD: &str = "guard";
    pub(in crate::nftables) const REFUSE: &str = "refuse";
    /// For packets whose client shall be remembered: with an address's port, with one of the node.
    pub(in crate::nftables) const REMEMBER: &str = "remember";
    pub(in crate::nftables) const REMEMBER_NODE: &str = "remember-node";
    /// For new connections: of those to this machine, then of all.
    pub(in crate::nftables) const UNSERVED_HERE: &str = "unserved-here";
    pub(in crate::nftables) const UNSERVED_NEW: &str = "unserved-new";
}

/// The bit of the packet mark that asks for masquerading: see [`crate::iptables::rules`].
pub(super) const MASQUERADE: u32 = 0x1000;
/// Bits that are set from where an endpoint is chosen to where that is remembered, before the
/// packet is routed: its client shall be remembered with an address's port, or with one of the
/// node.
pub(super) const REMEMBER: u32 = 0x800;
pub(super) const OF_NODE: u32 = 0x400;
/// Sets a bit of the packet's mark.
pub(super) fn mark_with(bit: u32) -> Vec<Expression> {
    change_mark(!bit, bit)
}

/// Clears bits of the packet's mark.
pub(super) fn unmark(mask: u32) -> Vec<Expression> {
    change_mark(!mask, 0)
}

fn change_mark(mask: u32, flip: u32) -> Vec<Expression> {
    vec![
        Expression::Meta(Meta::Mark, SCRATCH),
        bits(SCRATCH, mask, flip),
        Expression::SetMark(SCRATCH),
    ]
}

/// Matches packets whose mark has any of these bits.
pub(super) fn is_marked(mask: u32) -> Vec<Expression> {
    vec![
        Expression::Meta(Meta::Mark, SCRATCH),
        bits(SCRATCH, mask, 0),
        Expression::Differs(SCRATCH, vec![0; 4]),
    ]
}
