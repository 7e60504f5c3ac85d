//! The plan for the address at which this node answers names itself: what goes there and comes from
//! there is no connection to the kernel. Thousands of questions a second would fill its table of
//! these, and each datagram would be looked up in it.
//!
//! Beside [`crate::node`], because it is so whichever network the pods have.

/// Where names are asked for, over UDP and TCP.
pub const PORT: u16 = 53;
