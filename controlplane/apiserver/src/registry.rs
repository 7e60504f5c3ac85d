//! Kinds and their storage: one generic store, one strategy a kind.

pub mod admission;
pub mod apps;
pub mod cells;
pub mod certificates;
pub mod check;
pub mod coordination;
pub mod core;
pub mod discovery;
pub(crate) mod encode;
pub mod kinds;
pub mod fill;
pub mod lifecycle;
pub(crate) mod object_meta;
pub(crate) mod resource;
pub(crate) mod service_addresses;
pub(crate) mod store;
pub mod networking;
pub mod node;
pub mod podspec;
pub mod policy;
pub mod rbac;
pub mod scheduling;
pub mod storage;
pub mod strategy;

#[cfg(test)]
pub(crate) mod testing;
