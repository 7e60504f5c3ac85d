//! `--join` and `--token` of `server` and `up`: hands over to the control plane's part.

use std::collections::BTreeSet;

use clap::{ArgMatches, parser::ValueSource};
use coracle_controlplane::ServerConfig;
use tokio_util::sync::CancellationToken;

use crate::cli::JoinArgs;

/// Flags that say what all servers have in common.
const SHARED: [(&str, &str); 12] = [
    ("service_cidr", "--service-cidr"),
    ("cluster_cidr", "--cluster-cidr"),
    ("bind", "--bind"),
    ("pod_network", "--pod-network"),
    ("vxlan_port", "--vxlan-port"),
    ("no_local_storage", "--no-local-storage"),
    ("no_dns", "--no-dns"),
    ("load_balancer", "--load-balancer"),
    ("node_monitor_grace_period", "--node-monitor-grace-period"),
    ("pod_eviction_timeout", "--pod-eviction-timeout"),
    ("control_plane_endpoint", "--control-plane-endpoint"),
    ("store", "--store"),
];

/// Which of those were given: what is at its default follows the other servers.
pub(crate) fn given(matches: &ArgMatches) -> BTreeSet<&'static str> {
    let Some(("server" | "up", matches)) = matches.subcommand() else {
        return BTreeSet::new();
    };
    let is_given = |id: &str| {
        matches
            .value_source(id)
            .is_some_and(|source| source != ValueSource::DefaultValue)
    };
    SHARED
        .into_iter()
        .filter_map(|(id, flag)| is_given(id).then_some(flag))
        .collect()
}

/// What the server starts with, after it has joined if it is to; `None` if it is told to stop
/// before.
#[cfg(feature = "etcd")]
pub(crate) async fn prepared(
    config: ServerConfig,
    args: &JoinArgs,
    given: BTreeSet<&'static str>,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<ServerConfig>> {
    use anyhow::Context as _;
    use coracle_controlplane::joining::{self, JoinOptions};

    let options = JoinOptions {
        first: args.join.clone(),
        token: args.server_token.clone(),
        given,
    };
    let preparing = Box::pin(joining::prepare(config, &options));
    let prepared = shutdown.run_until_cancelled(preparing).await.transpose()?;
    if let Some(config) = &prepared {
        config
            .validate()
            .context("with what the servers of this cluster share")?;
    }
    Ok(prepared)
}

/// The same where no store can be shared.
#[cfg(not(feature = "etcd"))]
pub(crate) async fn prepared(
    config: ServerConfig,
    args: &JoinArgs,
    _: BTreeSet<&'static str>,
    _: &CancellationToken,
) -> anyhow::Result<Option<ServerConfig>> {
    if args.join.is_some() || args.server_token.is_some() {
        anyhow::bail!(crate::store::WITHOUT);
    }
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn flags_at_their_defaults_are_not_given() {
        let given = |line: &str| given(&Cli::command().get_matches_from(line.split(' ')));
        assert_eq!(given("coracle server"), BTreeSet::new());
        assert_eq!(given("coracle token list"), BTreeSet::new());
        assert_eq!(
            given("coracle up --bind 0.0.0.0:6443 --vxlan-port 4789 --tls-san a"),
            BTreeSet::from(["--bind", "--vxlan-port"])
        );
        for (id, flag) in SHARED {
            assert_eq!(id.replace('_', "-"), flag.trim_start_matches("--"));
            let value = match id {
                "service_cidr" | "cluster_cidr" => "10.0.0.0/16",
                "bind" => "127.0.0.1:1",
                "pod_network" => "auto",
                "load_balancer" => "none",
                "store" => "memory",
                _ => "7",
            };
            let line = match id {
                "no_local_storage" | "no_dns" => format!("coracle server {flag}"),
                _ => format!("coracle server {flag} {value}"),
            };
            assert_eq!(given(&line), BTreeSet::from([flag]), "{line}");
        }
    }
}
