//! The Kubernetes API server.
//!
//! What is served and where it is kept is [`coracle_registry`]'s; who asks and whether they may is
//! [`coracle_auth`]'s; what a write needs besides is [`coracle_admission`]'s. The way of a request:
//!
//! ```text
//! serve (TLS, HTTP) > handler (panics) > request_info > authn > authz > limits > endpoints/<verb>
//!    > write (admission, defaults, validation) > coracle_registry: store (optimistic lock), watch_cache > watchers
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`server`] | [`ApiServer`]: builds, serves, hands out in-process clients |
//! | [`config`] | what a server is made from |
//! | `error` | why one cannot start |
//! | `state` | what its parts share: data only |
//! | `write` | the steps of a client's object to the store |
//! | `serve`, `tls_session` | listening, TLS, connections; how much is held for a client |
//! | `handler` | one request from parts to response |
//! | `limits`, `weight`, `progress` | what requests may take at once, how large they are, and how long answers may stand still |
//! | [`request_info`], `query`, `list_options` | what a URL asks for, in upstream's terms |
//! | `catalog` | what is served, as one value |
//! | `custom_resources` | kinds that come, change and go at run time |
//! | `definitions` | CustomResourceDefinitions: what they say is served, and they are told how it went |
//! | `published` | what is told of it, and the documents that tell it |
//! | `route` | which URLs there are: the scope of a path against the scope of the kind |
//! | `connection` | a client's: who it is, what it holds |
//! | `source` | where a request comes from, and so who asks |
//! | `authorization` | whether they may, by rules that may be a moment old |
//! | `endpoints` | one verb a file |
//! | `subresource` | status, scale, binding, eviction, token, streams |
//! | [`pki`] | certificate authority, certificates, kubeconfig |
//! | `bootstrap` | the objects every cluster starts with |
//! | `first_address` | who was told to have the `kubernetes` Service's address |
//! | `backup` | the whole store as a file, for `coracle store backup` |
//! | [`joining`] | what servers share, for another one that joins |
//! | `event_expiry` | forgets old Events |
//! | `allocation_repair` | keeps what Services have been given in step with them |
//! | `fuzzing` | entries for the fuzz targets (feature `fuzzing`) |
//! | `reply`, [`body`] | answers: whole, in pieces or endless |
//! | `encoding`, [`table`] | answers in protobuf, YAML and indented JSON; as Table and metadata alone |
//! | `gzip` | compresses large answers |
//! | `metrics` | what `/metrics` tells of this server |
//! | `service_dialer` | how webhooks are reached that are Services |
//! | `slow` | what the log tells of requests that took long |
//! | `metrics_api` | `metrics.k8s.io`: what nodes and pods use |
//! | `unstored` | bindings, component statuses |
//! | `binding_batch` | many bindings in one request |
//! | [`discovery`], [`openapi`] | what the server has, and how it looks |
//! | `nonresource`, `review` | health and version; questions about oneself |
//! | `client` | the in-process client |
//! | `testing` | a server in memory for tests (feature `testing`) |
//!
//! Architecture invariant: clients reach the store through this crate alone.
#![forbid(unsafe_code)]

mod allocation_repair;
mod authorization;
mod backup;
mod binding_batch;
pub mod body;
mod bootstrap;
mod catalog;
mod client;
pub mod config;
mod connection;
mod custom_resources;
mod definitions;
mod encoding;
mod endpoints;
mod error;
mod event_expiry;
mod first_address;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gzip;
mod handler;
pub mod joining;
mod limits;
mod list_options;
mod metrics;
mod metrics_api;
mod nonresource;
mod pieced;
pub mod pki;
mod policy_status;
mod progress;
mod published;
mod query;
mod reply;
pub mod request_info;
mod review;
mod route;
mod serve;
pub mod server;
mod service_dialer;
mod slow;
mod source;
mod state;
mod subresource;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub mod discovery;
pub mod openapi;
pub mod table;
mod tls_session;
mod unstored;
mod weight;
mod write;

#[cfg(test)]
mod tests;

pub use config::{ApiServerConfig, first_service_ip};
pub use coracle_admission::AdmissionConfig;
pub use coracle_auth::{
    authn::token_file,
    user::{self, UserInfo},
};
pub use coracle_registry::service_allocator::repair::{
    About as AllocationAbout, Finding as AllocationFinding,
};
pub use error::ApiServerError;
pub use server::ApiServer;
