//! The store: a revisioned key-value space cut like etcd's KV service.
//!
//! Engines implement [`Backend`]; everything above (the API server, nobody else) sees only this
//! trait. Keys are `/registry/<group>/<resource>/[<namespace>/]<name>` (the core group has no
//! `<group>` element, as in etcd); values are opaque bytes to this crate.
//!
//! One revision counter orders the whole store. A transaction that changes something gets exactly
//! one new revision; every event it causes carries that revision. A transaction that succeeds and
//! changes nothing (it deletes what is absent, or has no writes) is answered with the current
//! revision.
//!
//! | module | what |
//! |---|---|
//! | [`types`], [`error`], [`backend`] | the seam |
//! | [`memory`] | engine for tests: everything in the process, nothing durable |
//! | [`sqlite`] | the default engine: one SQLite file, group commit, one fsync for many writers; backups |
//! | [`compaction`] | the task that drives [`Backend::compact`] |
//! | [`copy`] | from one engine to another |
//! | `fanout` | bounded queues from an engine to its watchers |
//! | `conformance` (feature `testing`) | what every engine must pass, and the faults it must catch |
//! | `testing` (the same) | an engine that fails when a test of its users says so |
#![forbid(unsafe_code)]

pub mod backend;
pub mod compaction;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod copy;
pub mod error;
mod fanout;
pub mod memory;
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;
pub mod types;

pub use backend::{Backend, WatchStream};
pub use error::StoreError;
pub use types::{
    Compare, Event, EventBatch, KeyValue, Op, RangeRequest, RangeResponse, Revision, Txn,
    TxnOutcome,
};
