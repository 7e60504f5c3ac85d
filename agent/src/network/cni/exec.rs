//! The user's plugins, executed as the CNI specification says (section 2 and 4).
//!
//! DEL and CHECK get what ADD had, also when the files in the configuration directory have changed
//! or the agent was killed in between: see [`cache`].

mod cache;

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use coracle_cni::{error::WireError, result::CniResult};
use coracle_telemetry::ErrorChain;
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

use self::cache::{Cache, Cached};
use super::{IFNAME, conflist};
use crate::{
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
        }
    }

    pub(super) fn ready(&self) -> Result<(), NetworkError> {
        let list = conflist::load(&self.conf_dir).map_err(|why| NetworkError::NotReady { why })?;
        for index in 0..list.plugins.len() {
            let kind = conflist::plugin_type(&list, index);
            self.find(kind).ok_or_else(|| NetworkError::NotReady {
                why: self.not_found(kind),
            })?;
        }
        Ok(())
    }

    pub(super) async fn add(
        &self,
        request: &PodNetworkRequest,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        if let Some(Cached {
            result: Some(result),
            ..
        }) = self.cache.get(&request.sandbox_id)
        {
            return addresses(&result);
        }
        let list = conflist::load(&self.conf_dir).map_err(|why| NetworkError::NotReady { why })?;
        let mut cached = Cached {
            list,
            pod: request.pod.clone(),
            netns: request.netns.clone(),
            port_mappings: request.port_mappings.clone(),
            result: None,
        };
        self.cache.put(&request.sandbox_id, &cached)?;
        match self.add_all(&request.sandbox_id, &cached).await {
            Ok(result) => {
                let addresses = addresses(&result)?;
                cached.result = Some(result);
                self.cache.put(&request.sandbox_id, &cached)?;
                Ok(addresses)
            }
            Err(error) => {
                // The first error is the one to tell; DEL comes again when the sandbox is removed.
                if let Err(undo) = self.del(request).await {
                    tracing::warn!(sandbox = %request.sandbox_id, error = %undo, "DEL after a failed ADD");
                }
                Err(error)
            }
        }
    }

    pub(super) async fn del(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        match self.cache.get(&request.sandbox_id) {
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
        let Ok(list) = conflist::load(&self.conf_dir) else {
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
            tracing::warn!(sandbox = %request.sandbox_id, error = %ErrorChain(&error), "DEL of a sandbox that is not remembered");
        }
    }

    pub(super) async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        let Some(Cached {
            result: Some(result),
            list,
            ..
        }) = self.cache.get(&request.sandbox_id)
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

    /// DEL for every remembered attachment that is not in `valid`.
    pub(super) async fn gc(&self, valid: &[SandboxId]) -> Result<(), NetworkError> {
        let mut first = Ok(());
        for id in self.cache.ids() {
            if valid.contains(&id) {
                continue;
            }
            let Some(cached) = self.cache.get(&id) else {
                continue;
            };
            first = first.and(self.del_cached(&id, cached).await);
        }
        first
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
            && let Ok(list) = conflist::load(&self.conf_dir)
        {
            // ADD never succeeded with that configuration, perhaps because of it: the sandbox must
            // not hang on it.
            cached.list = list;
            done = self.del_all(id, &cached).await;
        }
        done?;
        self.cache.remove(id)
    }

    async fn del_all(&self, id: &SandboxId, cached: &Cached) -> Result<(), NetworkError> {
        // A namespace that is gone must not stop plugins from cleaning up on the node: then none is
        // named.
        let netns = cached.netns.exists().then_some(cached.netns.as_path());
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
        let exec = |source| NetworkError::Exec {
            plugin: kind.to_owned(),
            command,
            source,
        };
        let path = self.find(kind).ok_or_else(|| {
            exec(io::Error::new(
                io::ErrorKind::NotFound,
                self.not_found(kind),
            ))
        })?;
        let search =
            std::env::join_paths(&self.plugin_dirs).map_err(|e| exec(io::Error::other(e)))?;
        let mut child = Command::new(path)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &id.0)
            .env("CNI_NETNS", netns.unwrap_or(Path::new("")))
            .env("CNI_IFNAME", IFNAME)
            .env("CNI_PATH", search)
            .env("CNI_ARGS", cni_args(id, pod))
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(exec)?;
        let stdin = child.stdin.take();
        let input = conf.to_string();
        let work = async {
            let write = async {
                if let Some(mut pipe) = stdin {
                    // A plugin that does not read its configuration tells why on stdout.
                    drop(pipe.write_all(input.as_bytes()).await);
                }
            };
            tokio::join!(write, child.wait_with_output()).1
        };
        let output = timeout(DEADLINE, work)
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

    fn find(&self, kind: &str) -> Option<PathBuf> {
        self.plugin_dirs
            .iter()
            .map(|dir| dir.join(kind))
            .find(|path| path.is_file())
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

fn cni_args(id: &SandboxId, pod: &PodRef) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.uid
    )
}

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
    Ok(result.addresses())
}

fn malformed(plugin: &str, command: &'static str, error: &serde_json::Error) -> NetworkError {
    let message = format!("its result cannot be read: {error}");
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
}
