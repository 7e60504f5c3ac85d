//! discovery.
