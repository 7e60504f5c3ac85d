//! Routes to other nodes.
