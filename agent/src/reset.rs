//! Takes a stopped node apart: pods, mounts, cgroups, rules, routes, links, the run directory.
//!
//! For `coracle reset`; refused while an agent runs. Goes on when a step fails and reports every
//! failure at the end. What is removed is found in the system, not remembered: a node that was
//! killed at any moment leaves nothing either.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use coracle_cni::{
    bandwidth, bridge,
    netlink::{Link, Netlink, Request, RouteNetlinkMessage},
};
use coracle_netfilter::{
    iptables::{Iptables, IptablesError, untracked},
    nftables::{
        self,
        node::{self, network},
        policies, services,
    },
};
use coracle_telemetry::ErrorChain;

use crate::{
    AgentConfig,
    config::{LOCAL_VOLUMES, STORAGE},
    dns, mounts,
    network::{cni::chain, routes},
    node_lock::{LockError, NodeLock},
    removal, run, runtime,
    volume::storage::{self, MARKER},
};

/// Why something is left.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The node runs.
    #[error(transparent)]
    Running(#[from] LockError),
    /// Steps that failed, one sentence each.
    #[error("not everything could be removed: {}", .0.join("; "))]
    Left(Vec<String>),
}

/// Directories of persistent volumes that this node has made, wherever they are, also on a disk
/// that is not there now: what is in them is their users'. Of a storage directory that somebody has
/// chosen, only those that a record names.
///
/// # Errors
/// A directory or a record cannot be read.
pub fn kept_volumes(config: &AgentConfig) -> io::Result<Vec<PathBuf>> {
    let mut found = storage::recorded(&config.local_volumes_dir())?;
    let own = config.agent_dir().join(STORAGE);
    match fs::read_dir(&own) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entries => {
            for entry in entries? {
                let path = entry?.path();
                if !path.ends_with(MARKER) {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Deletes the data directory but for `volumes`, wherever in there they are, and the records of all
/// that there are.
///
/// # Errors
/// The first thing that could not be deleted; all others are.
pub fn remove_all_but_volumes(data_dir: &Path, volumes: &[PathBuf]) -> io::Result<()> {
    let agent = data_dir.join("agent");
    let mut kept = vec![agent.join(STORAGE), agent.join(LOCAL_VOLUMES)];
    kept.extend_from_slice(volumes);
    remove_all_but(data_dir, &kept)
}

fn remove_all_but(dir: &Path, kept: &[PathBuf]) -> io::Result<()> {
    let mut first = Ok(());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if kept.contains(&path) {
            continue;
        }
        let holds_some = kept.iter().any(|one| one.starts_with(&path));
        let removed = match holds_some && path.is_dir() && !path.is_symlink() {
            true => remove_all_but(&path, kept),
            // A link to where they are is not what they are.
            false if holds_some => Ok(()),
            false => removal::remove_tree(&path),
        };
        first = first.and(removed);
    }
    first
}

/// The tables that may hold rules of ours.
const TABLES: [&str; 4] = ["nat", "filter", "mangle", untracked::TABLE];
const OWN_CHAINS: &str = "CORACLE-";

/// See the module.
///
/// # Errors
/// [`ResetError`] lists what is left; running it again is harmless.
pub async fn reset(config: AgentConfig) -> Result<(), ResetError> {
    let _lock = if config.run_dir.is_dir() {
        Some(NodeLock::acquire_soon(&config.run_dir).await?)
    } else {
        None
    };
    let mut failures = Vec::new();
    if let Err(error) = remove_pods(&config).await {
        failures.push(format!("pods: {}", ErrorChain(&*error)));
    }
    let rest = tokio::task::spawn_blocking(move || remove_rest(&config));
    match rest.await {
        Ok(more) => failures.extend(more),
        Err(error) => failures.push(format!("the removal ended early: {error}")),
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(ResetError::Left(failures))
    }
}

/// Through the runtime, as if every pod had been deleted.
async fn remove_pods(config: &AgentConfig) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if !config.run_dir.join("sandboxes").exists() {
        return Ok(());
    }
    // Plugins that came after the own network hear of the end, too.
    let config = AgentConfig {
        cni_chain_dir: chain::recorded(&config.agent_dir().join("cni")),
        ..config.clone()
    };
    let runtime = run::real_parts(&config, None).await?.runtime;
    for sandbox in runtime.list_pod_sandboxes().await? {
        runtime.stop_pod_sandbox(&sandbox.id).await?;
        runtime.remove_pod_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

/// What goes, and how.
type Step<'a> = (&'static str, Box<dyn FnOnce() -> Result<(), String> + 'a>);

fn remove_rest(config: &AgentConfig) -> Vec<String> {
    let steps: [Step<'_>; 12] = [
        (
            "mounts",
            Box::new(|| {
                mounts::detach_below(&[&config.run_dir, &config.agent_dir().join("pods")])
                    .map_err(|error| error.to_string())
            }),
        ),
        ("rules", Box::new(remove_rules)),
        (
            "nftables",
            Box::new(|| services::remove().map_err(|error| ErrorChain(&error).to_string())),
        ),
        (
            "nftables of the node",
            Box::new(|| node::remove().map_err(|error| ErrorChain(&error).to_string())),
        ),
        (
            "nftables of networks",
            Box::new(|| network::remove_all().map_err(|error| error.to_string())),
        ),
        (
            "policies",
            Box::new(|| policies::remove().map_err(|error| ErrorChain(&error).to_string())),
        ),
        (
            "address for names",
            Box::new(|| dns::give_back().map_err(|error| ErrorChain(&error).to_string())),
        ),
        ("routes", Box::new(remove_routes)),
        ("bridge", Box::new(|| remove_bridge(&config.bridge))),
        (
            "CNI configuration",
            Box::new(|| {
                let state = config.agent_dir().join("cni");
                chain::withdraw(&state).map_err(|error| error.to_string())
            }),
        ),
        ("cgroups", Box::new(|| remove_cgroups(&config.cgroup_root))),
        ("run directory", Box::new(|| remove_dir(&config.run_dir))),
    ];
    steps
        .into_iter()
        .filter_map(|(what, step)| step().err().map(|why| format!("{what}: {why}")))
        .collect()
}

fn remove_rules() -> Result<(), String> {
    let iptables = match Iptables::find() {
        Ok(iptables) => iptables,
        // Where nftables keeps all rules it need not be installed.
        Err(error) => {
            return match nftables::has_chains(OWN_CHAINS) {
                Ok(false) => Ok(()),
                Ok(true) | Err(_) => Err(error.to_string()),
            };
        }
    };
    let remove = || -> Result<(), IptablesError> {
        iptables.remove_all(&TABLES, OWN_CHAINS)?;
        // An earlier run may have used the other one.
        iptables.clean_other_variant(&TABLES, OWN_CHAINS).map(drop)
    };
    remove().map_err(|error| error.to_string())
}

fn remove_routes() -> Result<(), String> {
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let routes = netlink.routes().map_err(|error| error.to_string())?;
    let requests: Vec<Request> = routes
        .iter()
        .filter(|route| route.protocol == routes::PROTOCOL)
        .map(|route| {
            Request::change(
                "remove a route",
                RouteNetlinkMessage::DelRoute(route.message()),
            )
        })
        .collect();
    if requests.is_empty() {
        return Ok(());
    }
    netlink.batch(requests).map_err(|error| error.to_string())
}

fn remove_bridge(name: &str) -> Result<(), String> {
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    routes::vxlan::remove_link(&mut netlink).map_err(|error| error.to_string())?;
    let bridge = netlink.link(name).map_err(|error| error.to_string())?;
    let bridge = bridge.map(|link| link.index);
    // The pods' own links end with their namespaces, perhaps a moment later.
    let is_others = |link: &Link| bridge.is_none_or(|own| link.controller != Some(own));
    bandwidth::collect(&mut netlink, is_others).map_err(|error| error.to_string())?;
    bridge::remove(&mut netlink, name).map_err(|error| error.to_string())
}

/// The pods' cgroups, and what of the way there is empty without them.
fn remove_cgroups(root: &str) -> Result<(), String> {
    let pods = format!("{}/kubepods", root.trim_end_matches('/'));
    runtime::remove_cgroups(&pods).map_err(|error| ErrorChain(&error).to_string())
}

fn remove_dir(path: &Path) -> Result<(), String> {
    removal::remove_tree(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_volumes_outlives_everything_else() {
        let dir = tempfile::tempdir().expect("directory");
        let mut config = AgentConfig::new("n1", "192.0.2.1".parse().expect("address"));
        config.data_dir = dir.path().join("data");
        let agent = config.agent_dir();
        for path in ["agent/pods/p", "agent/local-volumes", "server"] {
            fs::create_dir_all(config.data_dir.join(path)).expect("directory");
        }
        assert_eq!(kept_volumes(&config).expect("read"), Vec::<PathBuf>::new());
        let own = agent.join("storage/pvc-1_default_data");
        let elsewhere = dir.path().join("disk/pvc-2_default_data");
        for path in [&own, &elsewhere] {
            fs::create_dir_all(path).expect("directory");
            fs::write(path.join("f"), "x").expect("file");
        }
        let record = serde_json::json!({"volume": "pvc-2", "base": dir.path().join("disk"),
            "directory": "pvc-2_default_data", "state": "Made"});
        fs::write(agent.join("local-volumes/2"), record.to_string()).expect("record");
        config.local_storage_dir = Some(dir.path().join("disk"));
        // Chosen in the data directory itself, and one of a disk that is not there.
        let within = config.data_dir.join("volumes/pvc-3_default_data");
        fs::create_dir_all(&within).expect("directory");
        fs::write(config.data_dir.join("volumes/other"), "x").expect("file");
        let away = PathBuf::from("/nonexistent/disk/pvc-4_default_data");
        for (number, path) in [(3, &within), (4, &away)] {
            let (base, directory) = (path.parent(), path.file_name());
            let record = serde_json::json!({"volume": format!("pvc-{number}"), "base": base,
                "directory": directory.and_then(|name| name.to_str()), "state": "Made"});
            let file = agent.join(format!("local-volumes/{number}"));
            fs::write(file, record.to_string()).expect("record");
        }
        let found = kept_volumes(&config).expect("read");
        let mut expected = vec![own.clone(), elsewhere.clone(), within.clone(), away];
        expected.sort();
        assert_eq!(found, expected);
        remove_all_but_volumes(&config.data_dir, &found).expect("remove");
        assert!(own.join("f").exists() && elsewhere.join("f").exists() && within.exists());
        assert!(!config.data_dir.join("volumes/other").exists());
        let mut left: Vec<_> = fs::read_dir(&agent)
            .expect("directory")
            .map(|entry| entry.expect("entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["local-volumes", "storage"]);
        assert_eq!(
            fs::read_dir(&config.data_dir).expect("directory").count(),
            2
        );
    }
}
