//! nftables, by netlink: no program is executed, and all of a change is one transaction.
//!
//! | module | does |
//! |---|---|
//! | `table`, `expression` | what tables, sets, chains and rules are made of, as plain data |
//! | `batch` | transactions as bytes |
//! | `kernel` | sends transactions, lists what is there |
//! | `transition` | from what a table is to what it shall be (pure) |
//! | [`services`] | the engine for Services |
//! | [`policies`] | what keeps the kernel equal to the plan for policies |
//!
//! Tables are ones of their own, so that nobody else's rules are in the way: `nft list ruleset`
//! shows them.

mod batch;
mod expression;
mod kept;
mod kernel;
pub mod policies;
mod rule;
pub mod services;
mod table;
mod transition;

pub use self::services::Services;

/// What the kernel lists, as [`kernel`] and the engine for Services read it.
#[cfg(feature = "fuzzing")]
pub(crate) fn check(listed: &crate::netlink::Received<'_>) {
    for (key, data) in kernel::check(listed) {
        services::check(&key, &data);
    }
}
