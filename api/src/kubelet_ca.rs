//! The authority of the nodes' serving certificates: what the server tells every agent.
//!
//! Written on each Node as the annotation [`ANNOTATION`]. An agent whose certificate is of another
//! authority, because that one was lost with the server's data, asks for a new certificate at once.

/// PEM of the authority's certificate, on every Node.
pub const ANNOTATION: &str = "coracle.dev/kubelet-ca";
