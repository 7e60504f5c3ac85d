//! kinds.
