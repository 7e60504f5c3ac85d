//! The user's plugins, executed as the CNI specification says (section 2 and 4).
//!
//! DEL and CHECK get what ADD had, also when the files in the configuration directory have changed
//! or the agent was killed in between: see [`cache`].

mod cache;
mod collect;
mod program;
mod status;

use std::{
    ffi::OsString,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use coracle_cni::{error::WireError, result::CniResult};
use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use self::{
    cache::{Cache, Cached},
    program::answer,
};
use super::{IFNAME, conflist};
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetworkRequest},
    runtime::types::{PodRef, SandboxId},
};

/// For one plugin call; address management over the network may take its time.
const DEADLINE: Duration = Duration::from_secs(60);
/// Where distributions put plugins.
const PLUGIN_DIRS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The plugins of one configuration directory.
#[derive(Debug)]
pub(super) struct Plugins {
    conf_dir: PathBuf,
    plugin_dirs: Vec<PathBuf>,
    cache: Cache,
    /// What the plugins said last: see [`status`].
    status: Mutex<Option<Result<(), String>>>,
}

impl Plugins {
    pub(super) fn new(conf_dir: PathBuf, plugin_dirs: &[PathBuf], state_dir: &Path) -> Self {
        let plugin_dirs = match plugin_dirs {
            [] => PLUGIN_DIRS.iter().map(PathBuf::from).collect(),
            dirs => dirs.to_vec(),
        };
        Self {
            conf_dir,
            plugin_dirs,
            cache: Cache::new(state_dir.join("results")),
            status: Mutex::default(),
        }
    }

    pub(super) fn ready(&self) -> Result<(), NetworkError> {
        let list = conflist::load(&self.conf_dir).map_err(|why| NetworkError::NotReady { why })?;
        for index in 0..list.plugins.len() {
            let kind = conflist::plugin_type(&list, index);
            find(&self.plugin_dirs, kind).ok_or_else(|| NetworkError::NotReady {
                why: self.not_found(kind),
            })?;
        }
        self.told(&list)
    }

    pub(super) async fn add(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        if let Some(Cached {
            result: Some(result),
            ..
        }) = self.cache.get(&request.sandbox_id).await
        {
            return addresses(&result);
        }
        let list = self.list().await?;
        let mut cached = Cached {
            list,
            pod: request.pod.clone(),
            netns: request.netns.clone(),
            port_mappings: request.port_mappings.clone(),
            result: None,
        };
        self.cache.put(&request.sandbox_id, &cached).await?;
        let added = self.add_all(&request.sandbox_id, &cached).await;
        match added.and_then(|result| Ok((addresses(&result)?, result))) {
            Ok((addresses, result)) => {
                cached.result = Some(result);
                self.cache.put(&request.sandbox_id, &cached).await?;
                Ok(addresses)
            }
            Err(error) => {
                // The first error is the one to tell; DEL comes again when the sandbox is removed.
                if let Err(undo) = self.del(request).await {
                    tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&undo), "cannot undo a failed ADD");
                }
                Err(error)
            }
        }
    }

    pub(super) async fn del(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        match self.cache.get(&request.sandbox_id).await {
            Some(cached) => self.del_cached(&request.sandbox_id, cached).await,
            None => {
                self.del_forgotten(request).await;
                Ok(())
            }
        }
    }

    /// What is not remembered was never attached, was detached before, or its record was lost: DEL
    /// knows. Its failure must not keep a sandbox that may never have had a network.
    async fn del_forgotten(&self, request: &PodNetworkRequest) {
        let Ok(list) = self.list().await else {
            return;
        };
        let cached = Cached {
            list,
            pod: request.pod.clone(),
            netns: request.netns.clone(),
            port_mappings: request.port_mappings.clone(),
            result: None,
        };
        if let Err(error) = self.del_all(&request.sandbox_id, &cached).await {
            tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&error), "cannot DEL a sandbox that is not remembered");
        }
    }

    pub(super) async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        let Some(Cached {
            result: Some(result),
            list,
            ..
        }) = self.cache.get(&request.sandbox_id).await
        else {
            return Err(NetworkError::NotReady {
                why: format!("sandbox {} was not attached", request.sandbox_id),
            });
        };
        if list.disable_check || !conflist::knows_check(&list.cni_version) {
            return Ok(());
        }
        for index in 0..list.plugins.len() {
            let conf = conflist::plugin_conf(&list, index, Some(&result), &request.port_mappings);
            let kind = conflist::plugin_type(&list, index);
            self.run(
                kind,
                "CHECK",
                &request.sandbox_id,
                &request.pod,
                Some(&request.netns),
                &conf,
            )
            .await?;
        }
        Ok(())
    }

    /// DEL for every remembered attachment that is not in `valid`, then the verb GC where the
    /// network has it.
    pub(super) async fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        let mut first = Ok(());
        for id in self.cache.ids().await {
            if valid.contains(&id) {
                continue;
            }
            let Some(cached) = self.cache.get(&id).await else {
                continue;
            };
            first = first.and(self.del_cached(&id, cached).await);
        }
        first.and(self.collect(valid).await)
    }

    /// What the configuration directory says now.
    async fn list(&self) -> Result<conflist::NetworkList, NetworkError> {
        let dir = self.conf_dir.clone();
        let loaded = blocking(move || conflist::load(&dir)).await;
        loaded.map_err(|why| NetworkError::NotReady { why })
    }

    async fn add_all(&self, id: &SandboxId, cached: &Cached) -> Result<Value, NetworkError> {
        let mut previous = None;
        for index in 0..cached.list.plugins.len() {
            let kind = conflist::plugin_type(&cached.list, index);
            let conf = conflist::plugin_conf(
                &cached.list,
                index,
                previous.as_ref(),
                &cached.port_mappings,
            );
            let answer = self
                .run(kind, "ADD", id, &cached.pod, Some(&cached.netns), &conf)
                .await?;
            previous = Some(
                serde_json::from_slice(&answer).map_err(|error| malformed(kind, "ADD", &error))?,
            );
        }
        Ok(previous.unwrap_or_default())
    }

    async fn del_cached(&self, id: &SandboxId, mut cached: Cached) -> Result<(), NetworkError> {
        let mut done = self.del_all(id, &cached).await;
        if done.is_err()
            && cached.result.is_none()
            && let Ok(list) = self.list().await
        {
            // ADD never succeeded with that configuration, perhaps because of it: the sandbox must
            // not hang on it.
            cached.list = list;
            done = self.del_all(id, &cached).await;
        }
        done?;
        self.cache.remove(id).await
    }

    async fn del_all(&self, id: &SandboxId, cached: &Cached) -> Result<(), NetworkError> {
        // A namespace that is gone must not stop plugins from cleaning up on the node: then none is
        // named.
        let path = cached.netns.clone();
        let exists = blocking(move || path.exists()).await;
        let netns = exists.then_some(cached.netns.as_path());
        let mut first = Ok(());
        for index in (0..cached.list.plugins.len()).rev() {
            let kind = conflist::plugin_type(&cached.list, index);
            let conf = conflist::plugin_conf(
                &cached.list,
                index,
                cached.result.as_ref(),
                &cached.port_mappings,
            );
            let done = self.run(kind, "DEL", id, &cached.pod, netns, &conf).await;
            first = first.and(done.map(drop));
        }
        first
    }

    async fn run(
        &self,
        kind: &str,
        command: &'static str,
        id: &SandboxId,
        pod: &PodRef,
        netns: Option<&Path>,
        conf: &Value,
    ) -> Result<Vec<u8>, NetworkError> {
        let attachment: [(&str, OsString); 4] = [
            ("CNI_CONTAINERID", id.0.clone().into()),
            ("CNI_NETNS", netns.unwrap_or(Path::new("")).into()),
            ("CNI_IFNAME", IFNAME.into()),
            ("CNI_ARGS", cni_args(id, pod).into()),
        ];
        self.call(kind, command, &attachment, conf).await
    }

    /// A verb with what says what it is for: nothing, if it is for the whole network.
    async fn call(
        &self,
        kind: &str,
        command: &'static str,
        about: &[(&str, OsString)],
        conf: &Value,
    ) -> Result<Vec<u8>, NetworkError> {
        let exec = |source| NetworkError::Exec {
            plugin: kind.to_owned(),
            command,
            source,
        };
        let (dirs, wanted) = (self.plugin_dirs.clone(), kind.to_owned());
        let found = blocking(move || find(&dirs, &wanted)).await;
        let path = found.ok_or_else(|| {
            let why = self.not_found(kind);
            exec(io::Error::new(io::ErrorKind::NotFound, why))
        })?;
        let search =
            std::env::join_paths(&self.plugin_dirs).map_err(|e| exec(io::Error::other(e)))?;
        let mut plugin = Command::new(path);
        plugin
            .env("CNI_COMMAND", command)
            .envs(about.iter().map(|(name, value)| (name, value)))
            .env("CNI_PATH", search)
            .env("LC_ALL", "C");
        let output = timeout(DEADLINE, answer(plugin, conf.to_string()))
            .await
            .map_err(|_| exec(io::Error::new(io::ErrorKind::TimedOut, "deadline passed")))?
            .map_err(exec)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let wire: Option<WireError> = serde_json::from_slice(&output.stdout).ok();
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let (code, message) = match wire {
            Some(wire) if wire.details.is_empty() => (wire.code, wire.msg),
            Some(wire) => (wire.code, format!("{}: {}", wire.msg, wire.details)),
            None => (999, format!("{}: {stderr}", output.status)),
        };
        Err(NetworkError::Plugin {
            plugin: kind.to_owned(),
            command,
            code,
            message,
        })
    }

    fn not_found(&self, kind: &str) -> String {
        let dirs: Vec<String> = self
            .plugin_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        format!("CNI plugin {kind} is in none of {}", dirs.join(", "))
    }
}

fn find(dirs: &[PathBuf], kind: &str) -> Option<PathBuf> {
    let mut paths = dirs.iter().map(|dir| dir.join(kind));
    paths.find(|path| path.is_file())
}

fn cni_args(id: &SandboxId, pod: &PodRef) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.uid
    )
}

/// The pod's addresses: of its first link, one of each family at most, as a status has them.
pub(super) fn addresses(result: &Value) -> Result<Vec<IpAddr>, NetworkError> {
    // Before version 0.3.0 a result had one address of each family:
    // `{"ip4": {"ip": "10.0.0.5/24"}}`.
    let oldest = ["ip4", "ip6"]
        .iter()
        .filter_map(|family| result[family]["ip"].as_str()?.parse::<ipnet::IpNet>().ok());
    let oldest: Vec<IpAddr> = oldest.map(|net| net.addr()).collect();
    if !oldest.is_empty() {
        return Ok(oldest);
    }
    let result: CniResult = serde_json::from_value(result.clone())
        .map_err(|error| malformed("the last one", "ADD", &error))?;
    let is_pods = |index: usize| {
        let link = result.interfaces.get(index);
        link.is_none_or(|link| link.name == IFNAME && !link.sandbox.is_empty())
    };
    let own = result.ips.iter();
    let own = own.filter(|ip| ip.interface.is_none_or(is_pods));
    let own = own.map(|ip| ip.address.addr());
    let first = |is_wanted: fn(&IpAddr) -> bool| own.clone().find(is_wanted);
    let found = [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)];
    let found: Vec<IpAddr> = found.into_iter().flatten().collect();
    if found.is_empty() {
        return Err(unusable(
            "the last one",
            "ADD",
            format!("its result has no address for {IFNAME}"),
        ));
    }
    Ok(found)
}

fn malformed(plugin: &str, command: &'static str, error: &serde_json::Error) -> NetworkError {
    unusable(
        plugin,
        command,
        format!("its result cannot be read: {error}"),
    )
}

fn unusable(plugin: &str, command: &'static str, message: String) -> NetworkError {
    NetworkError::Plugin {
        plugin: plugin.to_owned(),
        command,
        code: 6,
        message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_read_from_results_of_every_version() {
        let results = [
            json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.5/24", "gateway": "10.0.0.1"}}),
            json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.0.0.5/24"}]}),
            json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.5/24"}]}),
        ];
        for result in results {
            assert_eq!(
                addresses(&result).unwrap(),
                ["10.0.0.5".parse::<IpAddr>().unwrap()],
                "{result}"
            );
        }
    }

    #[test]
    fn a_pod_has_the_addresses_of_its_first_link() {
        let several = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/ns"}, {"name": "net1", "sandbox": "/ns"}],
            "ips": [{"address": "10.9.0.5/24", "interface": 2}, {"address": "fd00::5/64", "interface": 1},
                    {"address": "10.0.0.5/24", "interface": 1}, {"address": "10.0.1.5/24", "interface": 1}]});
        let expected = ["10.0.0.5", "fd00::5"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&several).unwrap(), expected);
        for nothing in [
            json!({"ips": []}),
            json!({"interfaces": [{"name": "br0"}], "ips": [{"address": "10.0.0.5/24", "interface": 0}]}),
        ] {
            let why = addresses(&nothing).unwrap_err().to_string();
            assert!(why.contains("no address for eth0"), "{why}");
        }
    }
}
