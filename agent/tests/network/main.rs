//! The node's network against a real kernel: nodes and pods are namespaces of the test, joined by
//! veth pairs, without an uplink. Needs root; skips visibly without, fails if `REQUIRE_ROOT` is
//! set.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

mod cni;
mod fake_api;
mod harness;
mod isolation;
mod policies;
mod proxy;
mod routes;
