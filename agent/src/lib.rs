//! The node agent: kubelet's and kube-proxy's work in one process.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | what the agent is told |
//! | `run`, `context` | puts the parts together and keeps them running; what each pod worker gets of them |
//! | `reset` | takes a stopped node apart |
//! | `join` | certificates: how the node gets its identity and keeps it |
//! | `balancer` | the way to the API servers: which there are, how they are, which one is used |
//! | `node_lock` | one agent a run directory |
//! | `blocking` | work that blocks, away from the threads that serve everything else |
//! | `node`, `reserved` | registration, status and Lease of the Node object; what is kept from pods |
//! | `informers` | what the node follows in the API, each kind once |
//! | `pod_manager` | the pods wanted here, kept on disk |
//! | `sync_loop` | one `select!` over everything that happens |
//! | `admission` | whether the node takes a pod (pure) |
//! | `pod_workers` | one task a pod: sync, terminate, remove |
//! | `pod_actions`, `pod_status`, `allocation`, `backoff` | what to do and what to report (pure) |
//! | `container_config`, `pod_files` | from a Pod to what the runtime is asked for |
//! | `objects`, `service_index` | ConfigMaps, Secrets and Services that pods here use |
//! | `pod`, `quantity` | questions about a Pod; resource quantities as numbers |
//! | `volume` | what containers mount |
//! | `local_volumes` | how volumes go that the cluster has made for this node |
//! | `prober`, `lifecycle` | probes and hooks |
//! | `dns` | names of Services, answered on the node |
//! | `status_manager`, `events` | the only writer of pod statuses; what events are about |
//! | `server`, `logs` | the HTTPS API on port 10250, container logs |
//! | `qos_cgroups` | the share of each QoS class, and of all pods |
//! | [`eviction`], `psi` | what the machine is short of, and which pods go for it |
//! | [`swap`] | whether what volumes hold in memory may reach the disk |
//! | `gc`, `removal`, `mounts` | images and files that nobody needs, and how they go |
//! | [`runtime`] | runs sandboxes and containers through one shim a pod |
//! | [`image`] | pulls, imports and keeps images |
//! | [`network`] | attaches pods to the network, routes between nodes |
//! | [`explain`], `inquiries` | where packets go and why, for who asks; questions to the tasks that own a plan |
//! | `connections` | the kernel's table of connections: makes room in it, tells when it is full |
//! | [`proxy`] | has `coracle-netfilter` program Services |
//! | `fuzzing` | entries for the fuzz targets (feature `fuzzing`) |

mod admission;
mod allocation;
mod backoff;
mod balancer;
mod blocking;
pub mod config;
mod connections;
mod container_config;
mod context;
mod dns;
mod events;
pub mod eviction;
pub mod explain;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gc;
pub mod image;
pub mod informers;
mod inquiries;
mod join;
mod lifecycle;
mod local_volumes;
mod logs;
mod mounts;
pub mod network;
mod node;
mod node_lock;
mod notices;
mod objects;
mod pod;
mod pod_actions;
mod pod_files;
mod pod_manager;
mod pod_status;
mod pod_workers;
mod policy;
mod prober;
pub mod proxy;
mod psi;
mod qos_cgroups;
mod quantity;
mod removal;
mod reserved;
mod reset;
mod run;
pub mod runtime;
mod server;
mod service_index;
mod status_manager;
mod status_reason;
pub mod swap;
mod sync_loop;
mod volume;

pub use config::{AgentConfig, ApiAccess, ConfigError};
pub use join::{JoinError, TokenError};
pub use node::address::{default_route_address, own_addresses};
pub use node_lock::LockError;
pub use removal::remove_tree;
pub use reserved::{Reserved, ReservedError};
pub use reset::{ResetError, kept_volumes, remove_all_but_volumes, reset};

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

/// Why the agent gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A value in the configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The node has no identity and cannot get one.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Another agent works there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A directory or file of the agent cannot be used.
    #[error("use {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The CA of the API's clients is no certificate in PEM form.
    #[error("read the CA of API clients in {}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// The registries file cannot be used.
    #[error("--registries")]
    Registries {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The image store cannot be opened.
    #[error("open the image store")]
    Images {
        /// Why.
        #[source]
        source: image::StoreError,
    },
    /// The container runtime cannot start.
    #[error("start the container runtime")]
    Runtime {
        /// Why.
        #[source]
        source: runtime::RuntimeError,
    },
    /// A part that should run as long as the agent has ended.
    #[error("a part of the agent ended: {task}")]
    TaskEnded {
        /// Which.
        task: &'static str,
    },
}

/// Runs a node until `shutdown` fires, then stops in order and leaves its pods running.
///
/// # Errors
/// What keeps a node from starting at all: its configuration, directories or credentials. What
/// fails later is retried, logged and shown in the node's conditions.
pub async fn run(
    config: AgentConfig,
    access: ApiAccess,
    shutdown: CancellationToken,
) -> Result<(), AgentError> {
    // A token of our own: a part that ends early stops the agent, not its caller.
    run::run(config, access, shutdown.child_token()).await
}
