//! Names of Services and pods, answered on the node that asks.
//!
//! | module | does |
//! |---|---|
//! | [`directory`] | what has to be known of Services and their endpoints: told by who uses this crate |
//! | [`zone`] | the cluster's zone: what a name is an answer to (pure) |
//! | [`name`] | names as settings have them |
//! | `wire` | requests and answers as bytes; what is malformed |
//! | [`resolver`] | one question: the zone, the search path, others |
//! | [`forward`], `cache` | what other servers answer, and for how long that is kept |
//! | `fuzzing` | entries for the fuzz targets (feature `fuzzing`) |
//! | [`server`] | sockets: datagrams, connections, how many at once |
//!
//! Nothing is built ahead: a name is taken apart once, and looked up where the node has its
//! Services anyway. Nothing here knows the API, and nothing binds an address.
//!
//! Source: the Kubernetes DNS specification 1.1.0 (`kubernetes/dns`, `docs/specification.md`), and
//! the plugins `kubernetes`, `forward`, `cache` and `autopath` of CoreDNS, whose answers these are.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

mod cache;
pub mod directory;
pub mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod name;
pub mod resolver;
pub mod server;
#[cfg(test)]
mod testing;
mod wire;
pub mod zone;
