//! How a machine comes to trust a cluster of which it knows nothing but a token, and how it keeps
//! what it is given. Nodes that join and servers that join do it alike.
//!
//! | module | does |
//! |---|---|
//! | [`token`] | what all tokens have in common: the hash of the cluster's authority |
//! | [`pinned_authority`] | TLS to an API server that is known by that hash alone |
//! | [`private_file`] | files that are their owner's alone |
//!
//! Not here: what a token is good for besides, and what is said over the connection.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

pub mod pinned_authority;
pub mod private_file;
pub mod token;

use std::net::Ipv4Addr;

pub use pinned_authority::{Mismatch, PinnedAuthority};
pub use token::CaHash;

/// A name that every API server's certificate has, and no other certificate of its authority:
/// neither a node's, which names its own addresses, nor a client's, which names none.
pub const API_SERVER_NAME: Ipv4Addr = Ipv4Addr::LOCALHOST;
