//! The control plane as one value: store, API server, controllers and scheduler, started and
//! stopped together.
//!
//! Each part runs in a supervised task and speaks to the API server through its own in-process
//! client; none knows of the others. What a flag means is decided in [`ServerConfig`], before
//! anything starts.
//!
//! | module | does |
//! |---|---|
//! | `alive` | which servers run on a store that several share |
//! | `allocation_events` | tells what is wrong with addresses and ports of Services |
//! | [`backup`] | the store as a file, and back |
//! | `config` | what a control plane is started with |
//! | `copy` | moves all objects from one engine to another |
//! | `identity` | which API servers there are, by Lease |
//! | [`joining`] | how a server comes to a cluster that has one already |
//! | `leading` | what only one of several servers does |
//! | `presence` | to which servers the `kubernetes` Service leads |
//! | `server` | starts and stops the parts |
//! | `scheduling` | a scheduler that is a process of its own |
//! | `store` | opens what keeps the objects |
#![forbid(unsafe_code)]

mod alive;
mod allocation_events;
pub mod backup;
mod config;
#[cfg(feature = "etcd")]
mod copy;
mod identity;
#[cfg(feature = "etcd")]
pub mod joining;
mod leading;
mod presence;
pub mod scheduling;
mod server;
mod store;
#[cfg(test)]
mod tests;

pub use config::{ServerConfig, ServerConfigError, StoreEngine};
#[cfg(feature = "etcd")]
pub use copy::{CopyStoreError, copy_store};
pub use coracle_api::pod_network::Mode as PodNetworkMode;
pub use coracle_apiserver::{AdmissionConfig, UserInfo};
#[cfg(feature = "etcd")]
pub use coracle_store::copy::Copied;
#[cfg(feature = "etcd")]
pub use coracle_store_etcd as etcd;
pub use server::{Server, ServerError};
pub use store::OpenError;
