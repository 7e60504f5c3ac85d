//! nftables, by netlink: no program is executed, and all of a change is one transaction.
//!
//! | module | does |
//! |---|---|
//! | `table`, `expression` | what tables, sets, chains and rules are made of, as plain data |
//! | `batch` | transactions as bytes |
//! | `kernel` | sends transactions, lists what is there |
//! | `transition` | from what a table is to what it shall be (pure) |
//! | `whole` | keeps a table that is small enough to be compared each time |
//! | `vip` | addresses and ports in keys and rules (pure) |
//! | `beside` | what stays in iptables' tables beside one of these |
//! | [`services`] | the engine for Services |
//! | [`node`] | the engine for host ports, masquerade and the overlay |
//! | [`node::network`] | the table of a network whose plugin somebody else executes |
//! | [`untracked`] | the engine for what is no connection to the kernel |
//! | [`policies`] | what keeps the kernel equal to the plan for policies |
//!
//! Tables are ones of their own, so that nobody else's rules are in the way: `nft list ruleset`
//! shows them.

mod batch;
mod beside;
mod expression;
mod kept;
mod kernel;
pub mod node;
pub mod policies;
mod rule;
pub mod services;
mod table;
mod transition;
pub mod untracked;
mod vip;
mod whole;

pub(crate) use self::{
    beside::{Iptabled, has as has_iptables_table},
    node::NodeBeside,
    services::ServicesBeside,
};
pub use self::{node::Node, services::Services, untracked::Untracked};

/// Whether there are chains whose names start so, such as those that iptables writes: they are seen
/// without the program, too. In a kernel without nftables there are none.
///
/// # Errors
/// The kernel does not list them.
pub fn has_chains(prefix: &str) -> std::io::Result<bool> {
    kernel::has_chains(prefix)
}

/// What the kernel lists, as [`kernel`] and the engine for Services read it.
#[cfg(feature = "fuzzing")]
pub(crate) fn check(listed: &crate::netlink::Received<'_>) {
    for (key, data) in kernel::check(listed) {
        services::check(&key, &data);
    }
}
