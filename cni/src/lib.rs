//! Coracle's CNI plugin as a library: the agent calls it in-process, `main` wraps it as the binary
//! `coracle-cni`.
//!
//! | module | does |
//! |---|---|
//! | [`skel`] | environment and stdin of a plugin call, its output and exit code |
//! | [`cmd`] | ADD, DEL, CHECK, GC, STATUS, VERSION |
//! | [`conf`], [`result`], [`error`] | the wire types of the CNI specification |
//! | [`bridge`], [`veth`] | the links of the node and of a pod |
//! | [`bridged`] | what pods of one bridge send each other passes the node's rules |
//! | [`anti_spoof`] | a pod cannot send under another's address |
//! | [`bandwidth`] | how fast a pod may send and receive |
//! | [`ipam`] | crash-safe address reservations, one file an address |
//! | [`masquerade`] | source NAT for what leaves the cluster |
//! | `modprobe` | loads the module that bridges need |
//! | [`netlink`] | rtnetlink in batches on one socket |
//!
//! Everything here blocks. Namespaces are entered through `coracle-netns` only, rules are written
//! by `coracle-netfilter` only. IPv4 only.

pub mod anti_spoof;
pub mod bandwidth;
pub mod bridge;
pub mod bridged;
pub mod cmd;
pub mod conf;
pub mod error;
pub mod ipam;
pub mod masquerade;
mod modprobe;
pub mod netlink;
mod reattach;
pub mod result;
pub mod skel;
mod sysctl;
pub mod veth;

pub use cmd::{Attachment, add, add_to, check, del, gc, prepare, release};
pub use conf::NetConf;
pub use error::CniError;
pub use reattach::reattach;
