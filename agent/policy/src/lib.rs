//! What a node's kernel shall hold so that `NetworkPolicy` objects are obeyed. Pure: no watch, no
//! netlink, no clock.
//!
//! | module | does |
//! |---|---|
//! | [`objects`] | pods and namespaces, cut down to what policies look at |
//! | [`policy`] | a policy, parsed once into rules over groups |
//! | [`blocks`] | `ipBlock` as disjoint ranges |
//! | [`tracker`] | takes events, keeps the plan up to date, tells what changed |
//! | `words` | a policy in words |
//!
//! The plan and what it does with a packet are [`coracle_netfilter::policy`]'s.

#![forbid(unsafe_code)]

pub mod blocks;
mod id;
pub mod objects;
pub mod policy;
mod pool;
mod ports;
mod size;
pub mod tracker;
mod words;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
