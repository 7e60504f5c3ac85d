//! See the crate map in ARCHITECTURE.md.
