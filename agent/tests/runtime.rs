//! The runtime with real shims and real containers. Needs root; skips visibly without it, fails
//! under `REQUIRE_ROOT=1`.
//!
//! Every test makes its own cgroup, run directory and sandbox network namespaces,
//! none with an uplink, and checks at its end that nothing of it is left, also when it fails.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails and talks this way"
)]

#[path = "runtime/harness.rs"]
mod harness;

#[path = "runtime/exec.rs"]
mod exec;
#[path = "runtime/faults.rs"]
mod faults;
#[path = "runtime/images.rs"]
mod images;
#[path = "runtime/isolation.rs"]
mod isolation;
#[path = "runtime/killed.rs"]
mod killed;
#[path = "runtime/lifecycle.rs"]
mod lifecycle;
#[path = "runtime/limits.rs"]
mod limits;
#[path = "runtime/lost.rs"]
mod lost;
#[path = "runtime/pressure.rs"]
mod pressure;
#[path = "runtime/reboot.rs"]
mod reboot;
#[path = "runtime/security.rs"]
mod security;
#[path = "runtime/volumes.rs"]
mod volumes;
