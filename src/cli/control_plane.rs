//! Flags of a server, alone or beside a node.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;

use super::{ApiArgs, StoreArgs};

/// The control plane's own flags.
#[derive(Debug, Clone, Args)]
pub(crate) struct ControlPlaneArgs {
    /// Where the API server listens.
    #[arg(long, default_value = "0.0.0.0:6443", value_name = "ADDRESS:PORT")]
    pub(crate) bind: SocketAddr,

    /// The address that nodes and pods reach the API server at [default: --bind's, or this
    /// machine's].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise_address: Option<IpAddr>,

    /// More names or addresses for the server certificate.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) tls_san: Vec<String>,

    /// An address that always leads to a server of this cluster, such as a load balancer's: it is
    /// in the certificates, and kubeconfigs and commands to join name it [default:
    /// --advertise-address].
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) control_plane_endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) join: JoinArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Where the administrator's kubeconfig is written [default: DATA_DIR/admin.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,

    /// Static bearer tokens: a line `token,user,uid,"group1,group2"` for each.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,

    /// What plugins of admission are told: an AdmissionConfiguration (apiserver.config.k8s.io/v1).
    /// PodSecurity takes something: the policy of namespaces whose labels say nothing, and whom
    /// none is held against; so do EventRateLimit, PodNodeSelector and PodTolerationRestriction. It
    /// is this server's alone: give it to each.
    #[arg(long, value_name = "FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,

    /// Plugins of admission that are on besides those that are anyway (docs/admission-plugins.md).
    /// Their order is always the same. For this server alone, too.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) enable_admission_plugins: Vec<String>,

    /// Plugins of admission that are off, though they are on by default.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) disable_admission_plugins: Vec<String>,

    /// How pods of different nodes reach each other: `direct` to nodes of the same subnet (the
    /// network must know the way to others), `overlay` (VXLAN) everywhere, as clouds need it that
    /// drop packets with pods' addresses, or `auto`: direct within a subnet, overlay between
    /// subnets. All nodes follow, also when it is changed.
    #[arg(long, default_value = "auto", value_parser = ["direct", "overlay", "auto"], value_name = "WAY")]
    pub(crate) pod_network: String,

    /// UDP port of the overlay, on every node.
    #[arg(long, default_value_t = 4789, value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    pub(crate) vxlan_port: u16,

    /// Makes no StorageClass `local-path`, by which claims get directories of the nodes that their
    /// pods are on. One that is there stays.
    #[arg(long)]
    pub(crate) no_local_storage: bool,

    /// Who serves Services of type LoadBalancer that name no class: `nodes`, with the addresses of
    /// nodes, or `none`, where another load balancer of the cluster does. Those of the class
    /// coracle.dev/node are served anyway.
    #[arg(long, default_value = "nodes", value_parser = ["nodes", "none"], value_name = "WHO")]
    pub(crate) load_balancer: String,

    /// Profiles of the scheduler: a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1).
    /// What it says of leader election and connections is for `coracle scheduler`.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: Option<PathBuf>,

    /// Seconds of silence after which a node is Unknown.
    #[arg(long, default_value_t = 50, value_name = "SECONDS")]
    pub(crate) node_monitor_grace_period: u64,

    /// Seconds that pods stay on a node that is not ready, unless they say otherwise.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) pod_eviction_timeout: u64,
}

/// A scheduler of its own.
#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// How it reaches the API server, and as whom [default: clientConnection.kubeconfig of
    /// --scheduler-config].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// What it does: a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Its
    /// schedulerNames must be no other scheduler's, and its leaderElection.resourceName no other
    /// group's of schedulers.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: PathBuf,
}

/// What is asked about the placing of a pod.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The pod, also as kubectl prints it: pod/NAME.
    #[arg(value_parser = pod_name)]
    pub(crate) pod: String,

    /// Its namespace.
    #[arg(short, long, default_value = "default", value_name = "NAMESPACE")]
    pub(crate) namespace: String,

    #[command(flatten)]
    pub(crate) api: ApiArgs,

    /// What its scheduler was started with, if that is a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: Option<PathBuf>,
}

fn pod_name(text: &str) -> Result<String, Infallible> {
    let name = text.strip_prefix("pod/").unwrap_or(text);
    Ok(name.to_owned())
}

/// How a server comes to others.
#[derive(Debug, Clone, Args)]
pub(crate) struct JoinArgs {
    /// A server of the cluster to join, which shares its store: certificate authorities, keys and
    /// settings come from there. Needed once.
    #[arg(long, value_name = "https://ADDRESS[:PORT]")]
    pub(crate) join: Option<String>,

    /// The server token: with --join, what `coracle token server` prints; on the first server of a
    /// shared store, one of your own choice [default: a random one].
    #[arg(
        long = "token",
        env = "CORACLE_SERVER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) server_token: Option<String>,
}
