//! Kinds and their storage: one generic store, one strategy a kind.

pub mod apps;
pub mod cells;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod kinds;
pub mod fill;
pub mod lifecycle;
pub mod podspec;
pub mod strategy;
