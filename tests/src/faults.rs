//! Faults in a cluster of several servers: which, what clients saw of them, and whether that may
//! be.
//!
//! ```text
//! plan          seeded rounds: who is killed, stopped or cut off, and for how long
//! history       what clients did and saw, one JSON line each (written by the program fault_clients)
//! linearizable  whether one register could have behaved so
//! streams       what watches showed: every change once and in order, the same on every server
//! claims        what the changes say: one leader, no address twice
//! nodes         and of nodes: always Ready, no pod on two of them, none started twice
//! ```
//! The cluster itself is [`crate::machines`].

pub mod claims;
pub mod history;
pub mod linearizable;
pub mod nodes;
pub mod plan;
pub mod streams;
