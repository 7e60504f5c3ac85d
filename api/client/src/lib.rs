//! What every client of the API needs beside `kube`: client-go's part.
//!
//! ```text
//! Reflector > Informer (one a kind) > Cache, with indexes > handlers > WorkQueue > reconcile(key) > API calls > events
//!                                                         > Feed, for who looks when he has time
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`reflector`] | list and watch without a gap |
//! | [`informer`], [`cache`] | one watch a kind, its objects shared by all readers, found by index |
//! | [`informers`] | the informers of a process, made when they are first asked for |
//! | [`manager`], [`builder`] | controllers: what each reads, what wakes it; all of them run and end together |
//! | [`feed`] | what has changed since a reader has looked |
//! | [`part`] | objects of which only a part is kept |
//! | [`pulse`] | the API server has answered again |
//! | [`work_queue`], [`controller`] | one reconcile a key at a time; failures come back later and block nobody |
//! | [`writes`] | writes to an object that was read |
//! | [`own_writes`] | what was written and does not show yet |
//! | [`event_recorder`] | Events: aggregated, bounded, written in batches |
//! | [`leader_election`] | one of several by a Lease |
//! | [`errors`] | what an answer of the API server means |
//! | [`decoders`] | code that several crates need, compiled once |
//!
//! Knows no kind of object but Events, Leases and what [`decoders`] lists, and none of the parts of
//! the house that use it.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on fails")
)]

pub mod builder;
pub mod cache;
pub mod controller;
pub mod decoders;
pub mod errors;
pub mod event_recorder;
pub mod feed;
pub mod informer;
pub mod informers;
pub mod leader_election;
pub mod manager;
pub mod own_writes;
pub mod part;
pub mod pulse;
pub mod reflector;
pub mod work_queue;
pub mod writes;
