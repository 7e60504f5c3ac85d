//! The two small programs between the agent and the kernel.
//!
//! * [`shim`] (`coracle-shim`): one process a pod, one thread, resident. It never links libcontainer.
//! * [`oci`] (`coracle-oci`): run by the shim for each container and each exec, for milliseconds. It alone links
//!   libcontainer, which clones, changes directory and namespaces of its caller and so wants a process of its own.
//!
//! `docs/adr/0002-shim-without-libcontainer.md` says why they are two.

pub mod oci;
pub mod shim;
