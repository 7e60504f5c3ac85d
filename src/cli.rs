//! The command line: flags as they are written. What they mean is decided in [`crate::settings`].

mod control_plane;
mod net;
mod store;

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::Ipv4Net;

pub(crate) use self::{
    control_plane::{ControlPlaneArgs, JoinArgs, SchedulerArgs, WhyArgs},
    net::{NetArgs, Output},
    store::{EtcdArgs, Store, StoreArgs, StoreCommand},
};

/// A whole Kubernetes cluster, node and control plane, small enough to carry.
#[derive(Debug, Parser)]
#[command(
    name = "coracle",
    version,
    propagate_version = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// How to log.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,

    /// Log more: -v debug, with what requests and pods take; -vv trace. RUST_LOG-style filters go
    /// into CORACLE_LOG.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// See [`LogArgs::log_format`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run control plane and node in one process: a cluster on one machine.
    Up(Box<UpArgs>),
    /// Run the control plane: API server, scheduler, controllers.
    Server(ServerArgs),
    /// Run a node that joins a server.
    Agent(AgentArgs),
    /// Run one more scheduler, beside the server's, for pods of other schedulerNames.
    Scheduler(SchedulerArgs),
    /// Say why a pod is where it is, or nowhere: what each plugin of the scheduler says about each
    /// node.
    Why(WhyArgs),
    /// Say what this node programs for a pod, a Service or a policy, or where a packet would go.
    Net(NetArgs),
    /// Manage the tokens by which nodes and servers join.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Manage the images of this node.
    #[command(subcommand)]
    Image(ImageCommand),
    /// Manage what keeps the objects: back it up, restore it, copy it.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Say what this machine has of what a node needs, and what to do about the rest.
    Check(CheckArgs),
    /// Remove what a stopped node left running: pods, mounts, namespaces, cgroups, rules.
    Reset(ResetArgs),
    /// Print the version.
    Version,
}

/// Where data is kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct DataDir {
    /// What survives a reboot.
    #[arg(long, default_value = "/var/lib/coracle", value_name = "DIR")]
    #[arg(env = "CORACLE_DATA_DIR", hide_env_values = true)]
    pub(crate) data_dir: PathBuf,
}

/// The addresses that pods and Services get; the same on every machine of a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Where Services get their addresses from.
    #[arg(long, default_value = "10.96.0.0/16", value_name = "CIDR", value_parser = ipv4_range)]
    pub(crate) service_cidr: Ipv4Net,

    /// Where nodes get the addresses of their pods from.
    #[arg(long, default_value = "10.244.0.0/16", value_name = "CIDR", value_parser = ipv4_range)]
    pub(crate) cluster_cidr: Ipv4Net,

    /// Leaves names of Services to a server of your own, behind a Service at the tenth address
    /// of the Services' range.
    #[arg(long)]
    pub(crate) no_dns: bool,
}

fn ipv4_range(text: &str) -> Result<Ipv4Net, &'static str> {
    text.parse()
        .map_err(|_| "expected an IPv4 range such as 10.96.0.0/16")
}

/// The node's own flags.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// What does not survive a reboot: sockets, namespaces, sandboxes.
    #[arg(long, default_value = "/run/coracle", value_name = "DIR")]
    #[arg(env = "CORACLE_RUN_DIR", hide_env_values = true)]
    pub(crate) run_dir: PathBuf,

    /// Where volumes of the class local-path go that are made for this node [default: agent/storage
    /// in the data directory]. It has to be there. What was made elsewhere before stays there.
    #[arg(long, value_name = "DIR")]
    pub(crate) local_storage_directory: Option<PathBuf>,

    /// The node's name [default: the host name].
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// The node's address [default: that of the default route, else the first one].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) node_ip: Option<IpAddr>,

    /// More labels of the node.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) node_label: Vec<String>,

    /// Registry mirrors and credentials, in the form of k3s's registries.yaml.
    #[arg(long, value_name = "FILE")]
    pub(crate) registries: Option<PathBuf>,

    /// The cgroup above all pods.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub(crate) cgroup_root: String,

    /// Most pods on this node.
    #[arg(long, default_value_t = 110, value_name = "N")]
    pub(crate) max_pods: u32,

    /// Most processes and threads in one pod; -1 for as many as the node bears.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub(crate) pod_max_pids: i64,

    /// Sysctls beyond the safe ones that pods may set, such as net.core.somaxconn or net.ipv4.*;
    /// only of a pod's own network and IPC namespaces.
    #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
    pub(crate) allowed_unsafe_sysctls: Vec<String>,

    /// How little of the machine may be left before it takes no more pods, such as
    /// memory.available<100Mi,nodefs.available<10%; empty for never.
    #[arg(long, default_value = coracle_agent::eviction::DEFAULT_HARD, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: coracle_agent::eviction::Thresholds,

    /// What is kept from pods for the node's own daemons, such as
    /// cpu=100m,memory=512Mi,ephemeral-storage=1Gi,pid=1000.
    #[arg(long, default_value = "", value_name = "NAME=QUANTITY,...")]
    pub(crate) kube_reserved: coracle_agent::Reserved,

    /// What is kept from pods for the operating system, in the same form.
    #[arg(long, default_value = "", value_name = "NAME=QUANTITY,...")]
    pub(crate) system_reserved: coracle_agent::Reserved,

    /// Seconds that pressure lasts at least.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) eviction_pressure_transition_period: u64,

    /// Directory of CNI configurations to use instead of Coracle's own network.
    #[arg(long, value_name = "DIR")]
    pub(crate) cni_conf_dir: Option<PathBuf>,

    /// Directory, such as /etc/cni/net.d, to which Coracle's own network is written as a CNI
    /// configuration; plugins that others put after it there are called for each pod.
    #[arg(long, value_name = "DIR", conflicts_with = "cni_conf_dir")]
    pub(crate) cni_chain_dir: Option<PathBuf>,

    /// Where CNI plugins are [default: /opt/cni/bin, /usr/lib/cni].
    #[arg(long, value_name = "DIR")]
    pub(crate) cni_bin_dir: Vec<PathBuf>,

    /// Name servers of pods with dnsPolicy ClusterFirst [default: the tenth address of the
    /// Services' range, where the node itself answers].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) cluster_dns: Vec<IpAddr>,

    /// Who else is asked for the names below a domain, such as example.org=10.0.0.1; all others
    /// are asked for where the node asks.
    #[arg(long, value_name = "DOMAIN=ADDRESS,...")]
    pub(crate) dns_forward: Vec<coracle_agent::config::StubDomain>,

    /// On which of the node's addresses node ports are: primary (the node's InternalIP), all, or
    /// ranges [default: all].
    #[arg(long, value_delimiter = ',', value_name = "primary|all|CIDR,...")]
    pub(crate) nodeport_addresses: Vec<coracle_agent::config::NodePortAddresses>,

    /// What keeps the rules of Services, host ports and masquerade: iptables; nftables; or auto,
    /// which is nftables where the kernel has what it takes. A change under load loses no
    /// connection.
    #[arg(long, default_value = "auto", value_name = "auto|iptables|nftables")]
    pub(crate) proxy_mode: coracle_agent::config::ProxyMode,

    /// The shim [default: coracle-shim beside this program].
    #[arg(long, value_name = "FILE")]
    pub(crate) shim: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The API servers: any of the cluster's, or an address that leads to them. The node learns of
    /// the others, and goes on with them when one fails.
    #[arg(
        long,
        required = true,
        value_delimiter = ',',
        value_name = "https://ADDRESS:PORT"
    )]
    pub(crate) server: Vec<String>,

    /// Where on 127.0.0.1 others on this node reach whichever server is well [default: 6444, or any
    /// if that is taken].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    pub(crate) lb_server_port: Option<u16>,

    /// The token to join with (`coracle token create`); not needed once this node has its
    /// certificates.
    #[arg(
        long,
        env = "CORACLE_TOKEN",
        hide_env_values = true,
        default_value = "",
        value_name = "TOKEN"
    )]
    pub(crate) token: String,

    #[command(flatten)]
    pub(crate) data: DataDir,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it.
    Create {
        #[command(flatten)]
        api: ApiArgs,
        /// How long it is good for, such as 24h or 30m; 0 is for ever.
        #[arg(long, default_value = "24h", value_name = "DURATION")]
        ttl: String,
        /// What it is for.
        #[arg(long, default_value = "", value_name = "TEXT")]
        description: String,
        /// Print the command by which a node joins, with the token in it.
        #[arg(long)]
        print_join_command: bool,
    },
    /// Print the token by which servers join this one: whoever has it has the cluster.
    Server {
        #[command(flatten)]
        data: DataDir,
        /// Print the command by which a server joins, with the token in it.
        #[arg(long)]
        print_join_command: bool,
    },
    /// List the tokens, without their secrets.
    List {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Delete a token: no node can join with it any more.
    Delete {
        #[command(flatten)]
        api: ApiArgs,
        /// The token or its ID (the six characters after `::`).
        token: String,
    },
}

/// How to reach the API as administrator.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    /// The administrator's kubeconfig [default: DATA_DIR/admin.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import a docker or OCI archive.
    Import {
        #[command(flatten)]
        data: DataDir,
        /// The archive, plain or compressed.
        file: PathBuf,
    },
    /// List the images.
    List {
        #[command(flatten)]
        data: DataDir,
    },
    /// Pull an image from its registry or the registry's mirrors.
    Pull {
        #[command(flatten)]
        data: DataDir,
        /// Registry mirrors and credentials.
        #[arg(long, value_name = "FILE")]
        registries: Option<PathBuf>,
        /// Such as nginx:1.27 or registry.example/app@sha256:...
        reference: String,
    },
    /// Remove a tag; the image goes with its last one.
    Remove {
        #[command(flatten)]
        data: DataDir,
        /// A reference or an image ID.
        reference: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The cgroup above all pods.
    #[arg(long, default_value = "/", value_name = "PATH")]
    pub(crate) cgroup_root: String,

    /// What the node's rules will be kept over: see coracle agent.
    #[arg(long, default_value = "auto", value_name = "auto|iptables|nftables")]
    pub(crate) proxy_mode: coracle_agent::config::ProxyMode,

    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) data: DataDir,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Also delete the data directory: certificates, objects, images, logs. What pods have written
    /// to persistent volumes of this node stays.
    #[arg(long)]
    pub(crate) delete_data: bool,

    /// Delete that as well.
    #[arg(long, requires = "delete_data")]
    pub(crate) delete_local_volumes: bool,
}

#[cfg(test)]
mod tests;
