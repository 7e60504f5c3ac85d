//! Kinds and their storage: one generic store, one strategy a kind.

pub mod kinds;
pub mod strategy;
