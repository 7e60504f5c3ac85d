//! What a node's kernel shall hold so that `NetworkPolicy` objects are obeyed. Pure: no watch, no
//! netlink, no clock.
//!
//! | module | does |
//! |---|---|
//! | [`objects`] | pods and namespaces, cut down to what policies look at |
//! | [`policy`] | a policy, parsed once into rules over groups |
//! | [`blocks`] | `ipBlock` as disjoint ranges |
//! | [`plan`] | chains, groups and elements as plain data, and the difference of two |
//! | [`tracker`] | takes events, keeps the plan up to date, tells what changed |
//! | [`verdict`] | what the plan does with a packet, and why |
//!
//! Who calls this writes the plan into the kernel's forward and input hooks, never output: what
//! the node itself sends (probes) reaches its pods whatever policies say.

#![forbid(unsafe_code)]

pub mod blocks;
mod id;
pub mod objects;
pub mod plan;
pub mod policy;
mod pool;
pub mod tracker;
pub mod verdict;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
