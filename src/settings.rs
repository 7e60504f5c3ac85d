//! From flags to the plain configurations of the parts. Asks the machine for its name and address.

use std::{
    io::ErrorKind,
    net::IpAddr,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use coracle_agent::AgentConfig;
use coracle_controlplane::{
    AdmissionConfig, PodNetworkMode, ServerConfig, scheduling::SchedulerConfig,
};

use crate::{
    cli::{ClusterArgs, ControlPlaneArgs, DataDir, NodeArgs},
    store,
};

/// What the server is told.
pub(crate) fn server_config(
    data: &DataDir,
    cluster: &ClusterArgs,
    args: &ControlPlaneArgs,
) -> anyhow::Result<ServerConfig> {
    let data_dir = resolved(&data.data_dir).context("--data-dir")?;
    let mut config = ServerConfig::new(data_dir, args.bind);
    config.advertise = match args.advertise_address {
        Some(address) => address,
        // Nobody can connect to an address that stands for all.
        None if args.bind.ip().is_unspecified() => {
            machine_address().context("choose --advertise-address")?
        }
        None => args.bind.ip(),
    };
    // Nobody needs it where there is one server.
    config.host_name = host_name().unwrap_or(config.host_name);
    config.names.clone_from(&args.tls_san);
    config
        .control_plane_endpoint
        .clone_from(&args.control_plane_endpoint);
    config.service_cidr = cluster.service_cidr;
    config.cluster_cidr = cluster.cluster_cidr;
    config.pod_network = args
        .pod_network
        .parse::<PodNetworkMode>()
        .map_err(|expected| anyhow!("--pod-network: {expected}"))?;
    config.vxlan_port = args.vxlan_port;
    config.local_storage = !args.no_local_storage;
    config.dns = !cluster.no_dns;
    let served = args.load_balancer.parse();
    config.load_balancer = served.map_err(|expected| anyhow!("--load-balancer: {expected}"))?;
    config.store = store::engine(&args.store.store, &args.store.etcd)?;
    if let Some(path) = &args.kubeconfig_out {
        config.kubeconfig_out = std::path::absolute(path).context("--kubeconfig-out")?;
    }
    config.token_auth_file.clone_from(&args.token_auth_file);
    if let Some(path) = &args.admission_control_config_file {
        let what = || format!("--admission-control-config-file {}", path.display());
        config.admission = AdmissionConfig::read(path).with_context(what)?;
    }
    let (enabled, disabled) = (
        &args.enable_admission_plugins,
        &args.disable_admission_plugins,
    );
    config.admission.select(enabled, disabled)?;
    if let Some(path) = &args.scheduler_config {
        config.scheduling = scheduler_config(path)?;
    }
    config.node_monitor_grace = Duration::from_secs(args.node_monitor_grace_period);
    config.eviction_timeout = Duration::from_secs(args.pod_eviction_timeout);
    config.validate()?;
    Ok(config)
}

/// What `--scheduler-config` names.
pub(crate) fn scheduler_config(path: &Path) -> anyhow::Result<SchedulerConfig> {
    let what = || format!("--scheduler-config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(what)?;
    SchedulerConfig::parse(&text).with_context(what)
}

/// What the agent is told.
pub(crate) fn agent_config(
    data: &DataDir,
    cluster: &ClusterArgs,
    args: &NodeArgs,
) -> anyhow::Result<AgentConfig> {
    let node_name = match &args.node_name {
        Some(name) => name.clone(),
        None => host_name().context("choose --node-name")?,
    };
    let node_ip = match args.node_ip {
        Some(address) => address,
        None => machine_address().context("choose --node-ip")?,
    };
    let mut config = AgentConfig::new(node_name, node_ip);
    config.node_ip_detected = args.node_ip.is_none();
    config.eviction_hard = args.eviction_hard.clone();
    config.kube_reserved = args.kube_reserved;
    config.system_reserved = args.system_reserved;
    config.eviction_transition = Duration::from_secs(args.eviction_pressure_transition_period);
    config.data_dir = resolved(&data.data_dir).context("--data-dir")?;
    config.run_dir = resolved(&args.run_dir).context("--run-dir")?;
    config
        .local_storage_dir
        .clone_from(&args.local_storage_directory);
    config.cgroup_root.clone_from(&args.cgroup_root);
    config.cluster_dns.clone_from(&args.cluster_dns);
    config.no_dns = cluster.no_dns;
    config.dns_forward.clone_from(&args.dns_forward);
    config.proxy_mode = args.proxy_mode;
    config
        .node_port_addresses
        .clone_from(&args.nodeport_addresses);
    config.registries.clone_from(&args.registries);
    config.cni_conf_dir.clone_from(&args.cni_conf_dir);
    config.cni_chain_dir.clone_from(&args.cni_chain_dir);
    if !args.cni_bin_dir.is_empty() {
        config.cni_bin_dirs.clone_from(&args.cni_bin_dir);
    }
    config.shim_path.clone_from(&args.shim);
    config.cluster_cidr = Some(cluster.cluster_cidr.into());
    config.service_cidr = Some(cluster.service_cidr.into());
    config.max_pods = args.max_pods;
    config
        .allowed_unsafe_sysctls
        .clone_from(&args.allowed_unsafe_sysctls);
    // -1: no limit.
    config.pod_max_pids = u32::try_from(args.pod_max_pids).ok();
    for label in &args.node_label {
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| anyhow!("--node-label {label:?}: expected KEY=VALUE"))?;
        config.labels.insert(key.to_owned(), value.to_owned());
    }
    config.validate()?;
    Ok(config)
}

/// The real path: absolute, and through no symbolic link. The kernel tells mounts by real paths,
/// and a link that is bent later must not lead the node away from what it has made. What does not
/// exist yet is made there.
fn resolved(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    for existing in absolute.ancestors() {
        match existing.canonicalize() {
            Ok(real) => {
                let rest = absolute.strip_prefix(existing)?;
                if rest.components().any(|part| part == Component::ParentDir) {
                    bail!(
                        "{}: `..` leads out of a directory that does not exist",
                        path.display()
                    );
                }
                return Ok(if rest.as_os_str().is_empty() {
                    real
                } else {
                    real.join(rest)
                });
            }
            Err(error)
                if error.kind() == ErrorKind::NotFound && existing.symlink_metadata().is_err() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("resolve {}", existing.display()));
            }
        }
    }
    Ok(absolute)
}

pub(crate) fn host_name() -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("read the host name")?;
    let name = name.to_string_lossy().to_lowercase();
    if name.is_empty() {
        bail!("this machine has no host name");
    }
    Ok(name)
}

/// The source address of the default route; without one, the first address that is not loopback.
fn machine_address() -> anyhow::Result<IpAddr> {
    if let Some(address) = coracle_agent::default_route_address() {
        return Ok(address);
    }
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(_) => false,
    };
    coracle_agent::own_addresses()
        .context("list this machine's addresses")?
        .find(is_usable)
        .ok_or_else(|| anyhow!("this machine has no address besides loopback"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_by_their_real_path() {
        let dir = tempfile::tempdir().expect("directory");
        let real = dir.path().canonicalize().expect("path").join("real");
        std::fs::create_dir(&real).expect("directory");
        std::os::unix::fs::symlink(&real, dir.path().join("link")).expect("link");
        std::os::unix::fs::symlink("/nowhere", dir.path().join("lost")).expect("link");
        for (given, expected) in [
            ("link", "real"),
            ("link/new/deep", "real/new/deep"),
            ("real", "real"),
            ("a/b", "a/b"),
        ] {
            let expected = real.with_file_name(expected);
            assert_eq!(
                resolved(&dir.path().join(given)).expect(given),
                expected,
                "{given}"
            );
        }
        for given in ["lost", "lost/x", "a/../../b"] {
            assert!(resolved(&dir.path().join(given)).is_err(), "{given}");
        }
    }
}
