//! `NetworkPolicy` on this node: what its pods may send and get.
//!
//! [`Guard`] stands between the runtime and the network: a pod that is attached has its policies in
//! the kernel before its first container starts. [`Keeper`] follows policies, namespaces and pods,
//! tells the tracker of `coracle_policy`, and has the engine of `coracle_netfilter` write what
//! changes. What is established and not allowed any more is cut. The rules stay when the agent
//! ends: the next one compares them.
//!
//! What the node serves itself at an address of a Service, its answers to names, counts as a pod of
//! the label that cluster DNS has everywhere, so that policies which let pods ask it do so here.

mod enforcer;
mod guard;
mod keeper;
mod peers;
mod plan;
mod selected;
mod sources;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    guard::{Guard, GuardedNetwork, Heard, attachment},
    keeper::{Keeper, KeeperConfig},
    peers::Attachment,
    sources::Sources,
};
pub use plan::PolicyPlan;
