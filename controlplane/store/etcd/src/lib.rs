//! The store on etcd: for a cluster that has outgrown one server.
//!
//! Keys are those of `coracle-store` under a prefix (`/coracle/registry/pods/default/web`); values
//! are the same JSON as in SQLite, not the protobuf that Kubernetes' own API server keeps in etcd.
//! Revisions are etcd's. What a cluster needs of etcd: a version of 3.4 or later, and that nobody
//! else writes under the prefix. An etcd of its own is better, because compaction is of all of it.
//!
//! ```text
//! txn    If mod_revision = .. Then put, delete Else get (the present, for the conflict)
//! range  linearizable, or at a revision
//! watch  everything under the prefix, from a revision; a batch a revision, in a bounded queue
//! ```
//!
//! A call goes to one member until that one fails, and so do the watches: who has written through a
//! member finds the event on its way. What failed without being sent, and every read, is tried on
//! the others. A transaction whose answer is lost is never sent again: [`StoreError::Unsure`].
//!
//! | module | what |
//! |---|---|
//! | [`config`] | where etcd is and how to speak to it; what contradicts itself |
//! | [`error`] | what etcd and the network say, in sentences |
//! | `members` | the members, which of them is used, deadlines and second tries |
//! | `record` | whose data it is, and of which version |
//! | `keys`, `request` | from the store's terms to etcd's, and back |
//! | `revision` | how far etcd is: one question for all who ask at a time |
//! | `back` | whether etcd has gone back, as by restoring a backup under a running server |
//! | `watch`, `follow`, `gone` | watches; what brings them to a revision at which nothing was written here; what deleted keys were |
//! | [`status`] | what `coracle check` tells |
//! | `testing` (feature) | starts an etcd for a test |
#![forbid(unsafe_code)]

mod back;
mod backend;
pub mod config;
pub mod error;
mod follow;
mod gone;
mod keys;
mod members;
mod record;
mod request;
mod revision;
pub mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod version;
mod watch;

pub use backend::EtcdBackend;
pub use config::{ConfigError, EtcdConfig, EtcdTls};
pub use error::{CallError, OpenError};

#[cfg(doc)]
use coracle_store::StoreError;
