//! The user's plugins, executed as the CNI specification says (section 2 and 4).
//!
//! DEL and CHECK get what ADD had, also when the files in the configuration directory have changed
//! or the agent was killed in between: see [`cache`].

mod cache;
mod collect;
mod detach;
mod program;
mod result;
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
use serde_json::{Value, json};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

pub(super) use self::result::addresses;
use self::{
    cache::{Cache, Cached},
    program::answer,
};
use super::{
    IFNAME, PLUGIN, capabilities, chain,
    conflist::{self, NetworkList},
};
use crate::{
    blocking::blocking,
    network::{NetworkError, PodNetworkRequest},
    runtime::types::SandboxId,
};

/// For one plugin's ADD; address management over the network may take its time.
const DEADLINE: Duration = Duration::from_secs(60);
/// For all plugins of one attachment together.
const CHECK: Duration = Duration::from_secs(50);
/// Where distributions put plugins.
const PLUGIN_DIRS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// Where a network's plugins are named.
#[derive(Debug, Clone)]
enum Source {
    /// In the first file of this directory.
    Directory(PathBuf),
    /// In this file, after the own network's.
    Chain(PathBuf),
    /// Nowhere any more: the own network is alone, but for what an earlier run has attached.
    Past,
}

impl Source {
    fn load(&self) -> Result<NetworkList, NetworkError> {
        let loaded = match self {
            Self::Directory(dir) => conflist::load(dir),
            Self::Chain(file) => chain::after_own(file),
            Self::Past => Ok(NetworkList::default()),
        };
        loaded.map_err(|why| NetworkError::NotReady { why })
    }
}

/// The plugins of one configuration.
#[derive(Debug)]
pub(super) struct Plugins {
    source: Source,
    plugin_dirs: Vec<PathBuf>,
    cache: Cache,
    /// What the plugins said last: see [`status`].
    status: Mutex<Option<Result<(), String>>>,
}

impl Plugins {
    /// All of a network: what `conf_dir` says.
    pub(super) fn new(conf_dir: PathBuf, plugin_dirs: &[PathBuf], state_dir: &Path) -> Self {
        Self::of(Source::Directory(conf_dir), plugin_dirs, state_dir)
    }

    /// Those that others have put after the own network's in `file`, if they can.
    pub(super) fn chained(
        file: Option<PathBuf>,
        plugin_dirs: &[PathBuf],
        state_dir: &Path,
    ) -> Self {
        let source = file.map_or(Source::Past, Source::Chain);
        Self::of(source, plugin_dirs, state_dir)
    }

    fn of(source: Source, plugin_dirs: &[PathBuf], state_dir: &Path) -> Self {
        let plugin_dirs = match plugin_dirs {
            [] => PLUGIN_DIRS.iter().map(PathBuf::from).collect(),
            dirs => dirs.to_vec(),
        };
        Self {
            source,
            plugin_dirs,
            cache: Cache::new(state_dir.join("results")),
            status: Mutex::default(),
        }
    }

    pub(super) fn ready(&self) -> Result<(), NetworkError> {
        let list = self.source.load()?;
        for index in 0..list.plugins.len() {
            let kind = conflist::plugin_type(&list, index);
            find(&self.plugin_dirs, kind).ok_or_else(|| NetworkError::NotReady {
                why: not_found(&self.plugin_dirs, kind),
            })?;
        }
        self.told(&list)
    }

    /// After what the own network said, if it is that.
    pub(super) async fn add(
        &self,
        request: &PodNetworkRequest,
        own: Option<&CniResult>,
    ) -> Result<Vec<IpAddr>, NetworkError> {
        if let Some(Cached {
            result: Some(result),
            ..
        }) = self.cache.get(&request.sandbox_id).await
        {
            return addresses(&result);
        }
        let capabilities = capabilities::of(request)?;
        let list = self.list().await?;
        if let (Some(own), true) = (own, list.plugins.is_empty()) {
            return Ok(own.addresses());
        }
        let mut cached = Cached::new(list, request, capabilities);
        cached.plugin_dirs.clone_from(&self.plugin_dirs);
        self.cache.put(&request.sandbox_id, &cached).await?;
        let added = self.add_all(&request.sandbox_id, &cached, own).await;
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

    pub(super) async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        let cached = self.cache.get(&request.sandbox_id).await;
        if cached.is_none() && !matches!(self.source, Source::Directory(_)) {
            // Nobody came after the own network then.
            return Ok(());
        }
        let Some(cached) = cached.filter(|cached| cached.result.is_some()) else {
            return Err(NetworkError::NotReady {
                why: format!("sandbox {} was not attached", request.sandbox_id),
            });
        };
        let list = &cached.list;
        if list.disable_check || !conflist::knows_check(&list.cni_version) {
            return Ok(());
        }
        let end = Instant::now() + CHECK;
        for index in 0..list.plugins.len() {
            let (result, known) = (cached.result.as_ref(), &cached.capabilities);
            let conf = conflist::plugin_conf(list, index, result, known);
            let kind = conflist::plugin_type(list, index);
            let about = cached.about(&request.sandbox_id, Some(&cached.netns));
            let limit = part_of(end, list.plugins.len() - index);
            self.call(kind, "CHECK", &about, &conf, limit).await?;
        }
        Ok(())
    }

    /// What the configuration says now.
    async fn list(&self) -> Result<NetworkList, NetworkError> {
        let source = self.source.clone();
        blocking(move || source.load()).await
    }

    async fn add_all(
        &self,
        id: &SandboxId,
        cached: &Cached,
        own: Option<&CniResult>,
    ) -> Result<Value, NetworkError> {
        let list = &cached.list;
        let own = own.map(|own| result::read(PLUGIN, json!(own), &list.cni_version));
        let mut previous = own.transpose()?;
        for index in 0..list.plugins.len() {
            let kind = conflist::plugin_type(list, index);
            let conf = conflist::plugin_conf(list, index, previous.as_ref(), &cached.capabilities);
            let about = cached.about(id, Some(&cached.netns));
            let answer = self.call(kind, "ADD", &about, &conf, DEADLINE).await?;
            previous = Some(result::parse(kind, &answer, &list.cni_version)?);
        }
        Ok(previous.unwrap_or_default())
    }

    /// A verb with what says what it is for: nothing, if it is for the whole network.
    async fn call(
        &self,
        kind: &str,
        command: &'static str,
        about: &[(&str, OsString)],
        conf: &Value,
        limit: Duration,
    ) -> Result<Vec<u8>, NetworkError> {
        let call = (kind, command);
        Self::call_in(&self.plugin_dirs, call, about, conf, limit).await
    }

    /// The same of a plugin that is in one of these directories.
    async fn call_in(
        dirs: &[PathBuf],
        (kind, command): (&str, &'static str),
        about: &[(&str, OsString)],
        conf: &Value,
        limit: Duration,
    ) -> Result<Vec<u8>, NetworkError> {
        let exec = |source| NetworkError::Exec {
            plugin: kind.to_owned(),
            command,
            source,
        };
        let (all, wanted) = (dirs.to_vec(), kind.to_owned());
        let found = blocking(move || find(&all, &wanted)).await;
        let path = found.ok_or_else(|| {
            let why = not_found(dirs, kind);
            exec(io::Error::new(io::ErrorKind::NotFound, why))
        })?;
        let search = std::env::join_paths(dirs).map_err(|e| exec(io::Error::other(e)))?;
        let mut plugin = Command::new(path);
        plugin
            .env("CNI_COMMAND", command)
            .envs(about.iter().map(|(name, value)| (name, value)))
            .env("CNI_PATH", search)
            .env("LC_ALL", "C");
        let output = timeout(limit, answer(plugin, conf.to_string()))
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
}

fn not_found(dirs: &[PathBuf], kind: &str) -> String {
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    format!("CNI plugin {kind} is in none of {}", dirs.join(", "))
}

fn find(dirs: &[PathBuf], kind: &str) -> Option<PathBuf> {
    let mut paths = dirs.iter().map(|dir| dir.join(kind));
    paths.find(|path| path.is_file())
}

/// What one of `many` may take, all of which have to be through at `end`.
fn part_of(end: Instant, many: usize) -> Duration {
    let left = end.saturating_duration_since(Instant::now());
    left / u32::try_from(many).unwrap_or(u32::MAX).max(1)
}
