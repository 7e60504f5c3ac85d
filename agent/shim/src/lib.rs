//! The two small programs between the agent and the kernel.
//!
//! * [`shim`] (`coracle-shim`): one process a pod, one thread, resident. It never links
//!   libcontainer.
//! * [`oci`] (`coracle-oci`): run by the shim for each container and each exec, for milliseconds.
//!   It alone links libcontainer, which clones, changes directory and namespaces of its caller and
//!   so wants a process of its own.
//!
//! Raw calls of both stand in `sys`, and nowhere else.
//!
//! `docs/adr/0003-one-shim-a-pod-and-a-helper-for-libcontainer.md` says why they are two.

#![allow(
    clippy::disallowed_methods,
    reason = "both programs have one thread and exist to fork and to change namespaces"
)]

pub mod oci;
pub mod shim;
mod sys;
