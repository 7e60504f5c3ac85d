//! Kinds and their storage: one generic store, one strategy a kind.

pub mod admissionregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod cells;
pub mod certificates;
pub mod check;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod dra;
pub(crate) mod encode;
pub mod events;
pub mod fill;
pub mod flowcontrol;
pub mod kinds;
pub mod lifecycle;
pub mod networking;
pub mod node;
pub(crate) mod object_meta;
pub(crate) mod owners;
pub mod podspec;
pub mod policy;
pub mod rbac;
pub(crate) mod resource;
pub mod scheduling;
pub(crate) mod service_addresses;
pub(crate) mod service_ips;
pub mod storage;
pub(crate) mod store;
pub mod strategy;
pub(crate) mod unenforced;

#[cfg(test)]
pub(crate) mod testing;
