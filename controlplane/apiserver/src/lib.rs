//! The Kubernetes API server.
//!
//! One generic registry serves every kind; a kind adds a small pure strategy. The way of a request:
//!
//! ```text
//! serve (TLS, HTTP) > handler (limits, panics) > request_info > authn > authz > endpoints/<verb>
//!    > registry/store (defaults, validation, optimistic lock) > store backend > watch_cache > watchers
//! ```
//!
//! | module | does |
//! |---|---|
//! | [`server`] | [`ApiServer`]: what is built once, and the in-process client |
//! | `serve` | listening, TLS, connections, limits |
//! | `handler` | one request from parts to response |
//! | [`request_info`] | what a URL asks for, in upstream's terms |
//! | `authn`, `authz` | who asks, and whether they may |
//! | `endpoints` | one verb a file |
//! | `subresource` | status, scale, binding, eviction, token, streams |
//! | `registry` | the generic store, strategies and allocators |
//! | [`watch_cache`] | what reads and watches are served from |
//! | [`pki`] | certificate authority, certificates, kubeconfig |
//! | `bootstrap` | the objects every cluster starts with |
//!
//! Architecture invariant: nothing outside this crate touches the store.
#![forbid(unsafe_code)]

pub mod pki;
pub mod request_info;
pub mod server;
pub mod user;
pub mod watch_cache;

pub mod registry;

pub mod discovery;
pub mod openapi;
pub mod table;

pub use server::{ApiServer, ApiServerConfig, ApiServerError, first_service_ip};
pub use user::UserInfo;
