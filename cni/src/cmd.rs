//! The commands of a plugin, one a file. Used by the binary and by the agent alike.

mod add;
mod check;
mod del;
mod gc;
pub mod version;

use std::path::PathBuf;

use coracle_netns::{NetNs, NetNsError};

pub use add::{add, add_to, prepare};
pub use check::check;
pub use del::{del, release};
pub use gc::gc;

use crate::{error::CniError, ipam::store::Owner};

/// One interface of one sandbox: what a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// CNI_CONTAINERID.
    pub container_id: String,
    /// CNI_IFNAME.
    pub ifname: String,
    /// CNI_NETNS; may be missing for DEL.
    pub netns: Option<PathBuf>,
}

impl Attachment {
    /// As the reservations know it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
        }
    }

    fn open_netns(&self) -> Result<NetNs, CniError> {
        let path = self.netns.as_deref().ok_or(CniError::InvalidEnvironment {
            name: "CNI_NETNS",
            why: "required variable missing".into(),
        })?;
        NetNs::open(path).map_err(|error: NetNsError| {
            if error.is_gone() {
                CniError::UnknownNamespace(error)
            } else {
                CniError::Namespace(error)
            }
        })
    }
}
