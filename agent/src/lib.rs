//! The node agent: kubelet's and kube-proxy's work in one process.

pub mod network;
pub mod runtime;
