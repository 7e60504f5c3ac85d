//! `coracle net`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is asked about the node's network.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 if the packet arrives, 3 if it is refused or dropped, 4 if that depends on the endpoint that is drawn or
is not known here.

  coracle net svc/shop/web                           what is programmed for a Service
  coracle net shop/cart-0                            for a pod
  coracle net netpol/shop/deny                       for a NetworkPolicy
  coracle net shop/cart-0 svc/shop/web:80            where a packet of a pod would go
  coracle net 192.0.2.7 node:30080                   one of somebody outside, to a port of this node
  coracle net shop/cart-0 10.96.0.10:53/udp          one to any address")]
pub(crate) struct NetArgs {
    /// What to show: NAMESPACE/POD, svc/NAMESPACE/NAME or netpol/NAMESPACE/NAME. With TO, who
    /// sends: NAMESPACE/POD, an address, node or node/NAME.
    #[arg(value_name = "WHAT")]
    pub(crate) what: String,

    /// Whom a packet is sent to: NAMESPACE/POD, svc/NAMESPACE/NAME, an address, node or node/NAME,
    /// with :PORT and /udp or /sctp where it needs them.
    #[arg(value_name = "TO")]
    pub(crate) to: Option<String>,

    /// Words, or one JSON object.
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Output,

    /// The agent's.
    #[arg(long, default_value = "/run/coracle", value_name = "DIR")]
    #[arg(env = "CORACLE_RUN_DIR", hide_env_values = true)]
    pub(crate) run_dir: PathBuf,
}

/// See [`NetArgs::output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}
