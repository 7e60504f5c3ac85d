//! The scheduler against a real API server in memory: what it writes, whom it tries when, and what
//! it leaves alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod binding;
mod cluster;
mod extending;
mod flapping;
mod placing;
mod preempting;
mod reports;
mod retrying;
mod sharing;
mod volumes;
