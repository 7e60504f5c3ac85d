//! Who asks, and whether they may.
//!
//! | module | does |
//! |---|---|
//! | [`user`] | an identity: name, groups, what its authenticator adds |
//! | [`authn`] | authentication: certificates, service-account tokens, bootstrap tokens, static tokens, impersonation |
//! | [`authz`] | authorization: masters, nodes, roles; which rights include which |
//!
//! The truth is the registry's watch cache; nothing is stored here, and nothing here knows HTTP
//! beyond a request's headers. Not here: what a write needs besides its right (admission), and how
//! many may ask at once (the server's limits).
#![forbid(unsafe_code)]

pub mod authn;
pub mod authz;
pub mod user;
