//! What every part tells of itself, and how every part goes on after a failure, in the same way.
//!
//! | module | what |
//! |---|---|
//! | [`ErrorChain`] | an error with its causes, in one line |
//! | [`Backoff`], [`ExponentialBackoff`] | how long to wait before the next try |
//! | [`Tasks`], [`spawn`], [`spawn_in`], [`spawn_tracked`] | where tasks are started: what becomes of one that panics or ends |
//! | [`caught`] | a panic as a value, for one who starts anew himself |
//! | [`Health`] | which parts of the process are unwell |
//! | [`metrics`] | figures, for `/metrics` |
//! | [`trace`] | spans: where the time of a request and of a pod goes |
//!
//! Knows none of the parts.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

mod backoff;
mod chain;
mod health;
pub mod metrics;
mod tasks;
pub mod trace;

pub use backoff::{Backoff, ExponentialBackoff};
pub use chain::ErrorChain;
pub use health::Health;
pub use tasks::{Outcome, Panicked, TaskEnded, Tasks, caught, spawn, spawn_in, spawn_tracked};
/// For [`span!`].
#[doc(hidden)]
pub use tracing;
