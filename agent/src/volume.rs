//! Volumes: makes what a pod's containers mount, keeps it current, takes it away.
//!
//! One directory a volume, `<pods>/<uid>/volumes/kubernetes.io~<plugin>/<name>`; host paths are
//! used where they are. A kind of volume is a [`VolumePlugin`] in the list of
//! [`VolumeManager::new`]. [`VolumeManager::ensure`] is idempotent and doubles as the refresh of
//! ConfigMaps, Secrets and tokens: what has not changed is not touched. Attach/detach and claims
//! are not here yet: a volume of an unknown kind is an error that the pod waits with.

mod atomic_writer;
mod config_map;
mod downward_api;
mod empty_dir;
mod error;
mod files;
mod host_path;
mod mounter;
mod ownership;
mod payload;
mod plugin;
mod projected;
mod secret;
mod service_account_token;
mod sub_path;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::{Pod, Volume};

use self::{
    config_map::ConfigMaps,
    downward_api::DownwardApi,
    empty_dir::EmptyDir,
    error::{VolumeError, VolumePluginError},
    files::FileVolumes,
    host_path::HostPath,
    plugin::{SetUp, VolumePlugin},
    projected::Projected,
    secret::Secrets,
    service_account_token::Tokens,
};
use crate::{
    blocking::blocking, node::facts::Machine, objects::Objects, pod::PodExt, removal,
    runtime::types::PodUid,
};

#[cfg(test)]
pub(crate) use mounter::NoMounts;
pub(crate) use mounter::{Mounter, SystemMounter};
pub(crate) use sub_path::SubPathError;

/// Volume name to the directory or file on the node.
pub(crate) type MountedVolumes = BTreeMap<String, PathBuf>;

/// For one volume: what it is made of may be asked of the API, one object after the other.
const SET_UP_LIMIT: Duration = Duration::from_secs(60);
/// Below a pod's directory.
const VOLUMES: &str = "volumes";
const SUB_PATHS: &str = "volume-subpaths";
/// Before a plugin's name, in the directory of its volumes.
const PLUGIN_PREFIX: &str = "kubernetes.io~";

/// Makes, refreshes and removes volumes.
pub(crate) struct VolumeManager {
    pods_dir: PathBuf,
    mounter: Arc<dyn Mounter>,
    /// The first that supports a volume makes it.
    plugins: Arc<[Box<dyn VolumePlugin>]>,
}

impl VolumeManager {
    pub(crate) fn new(
        pods_dir: &Path,
        client: kube::Client,
        objects: &Arc<Objects>,
        mounter: Arc<dyn Mounter>,
        machine: &Arc<Machine>,
        node_ip: IpAddr,
    ) -> Self {
        let config_maps = || ConfigMaps {
            objects: Arc::clone(objects),
        };
        let secrets = || Secrets {
            objects: Arc::clone(objects),
        };
        let downward_api = || DownwardApi {
            machine: Arc::clone(machine),
            node_ip,
        };
        let projected = Projected {
            config_maps: config_maps(),
            secrets: secrets(),
            downward_api: downward_api(),
            tokens: Tokens::new(client),
        };
        let plugins: [Box<dyn VolumePlugin>; 6] = [
            Box::new(HostPath::default()),
            Box::new(EmptyDir {
                mounter: Arc::clone(&mounter),
                machine: Arc::clone(machine),
            }),
            Box::new(FileVolumes::new(config_maps(), &mounter)),
            Box::new(FileVolumes::new(secrets(), &mounter)),
            Box::new(FileVolumes::new(downward_api(), &mounter)),
            Box::new(FileVolumes::new(projected, &mounter)),
        ];
        Self {
            pods_dir: pods_dir.to_owned(),
            mounter,
            plugins: plugins.into(),
        }
    }

    /// Makes all volumes of the pod, or brings them up to date with objects no older than
    /// `max_age`.
    ///
    /// # Errors
    /// The first volume that failed; the others are made all the same.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        max_age: Duration,
    ) -> Result<MountedVolumes, VolumeError> {
        let volumes = pod.spec_or_default().volumes.as_deref().unwrap_or_default();
        let made = futures::future::join_all(volumes.iter().map(|volume| async move {
            match self.ensure_one(pod, volume, max_age).await {
                Ok(path) => Ok((volume.name.clone(), path)),
                Err(source) => Err(VolumeError::SetUp {
                    volume: volume.name.clone(),
                    source,
                }),
            }
        }))
        .await;
        made.into_iter().collect()
    }

    async fn ensure_one(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<PathBuf, VolumePluginError> {
        let plugin = self
            .plugins
            .iter()
            .find(|plugin| plugin.supports(volume))
            .ok_or(VolumePluginError::Unsupported)?;
        let dir = self.dir(&pod.uid(), plugin.name(), &volume.name);
        let wanted = SetUp {
            pod,
            volume,
            dir: &dir,
            max_age,
        };
        // A worker that waits for a volume hears of nothing else, its pod's deletion included.
        tokio::time::timeout(SET_UP_LIMIT, plugin.set_up(&wanted))
            .await
            .unwrap_or(Err(VolumePluginError::Late(SET_UP_LIMIT)))
    }

    /// A path below a volume, safe against symlinks that point out of it; bind-mounted so that it
    /// stays what it was.
    pub(crate) async fn sub_path(
        &self,
        uid: &PodUid,
        volume: &Path,
        place: &str,
        path: &str,
    ) -> Result<PathBuf, SubPathError> {
        let target = self.pod_dir(uid).join(SUB_PATHS).join(place);
        let (volume, path, mounter) = (
            volume.to_owned(),
            path.to_owned(),
            Arc::clone(&self.mounter),
        );
        let late = SubPathError::Late { path: path.clone() };
        let work = blocking(move || sub_path::prepare(&volume, &path, &target, mounter.as_ref()));
        tokio::time::timeout(SET_UP_LIMIT, work)
            .await
            .unwrap_or(Err(late))
    }

    /// Unmounts and removes everything of the pod. Succeeds if there is nothing.
    ///
    /// # Errors
    /// The first volume that stays; all others are taken away nevertheless.
    pub(crate) async fn teardown(&self, uid: &PodUid) -> Result<(), VolumePluginError> {
        self.plugins.iter().for_each(|plugin| plugin.forget(uid));
        let dir = self.pod_dir(uid);
        let (mounter, plugins) = (Arc::clone(&self.mounter), Arc::clone(&self.plugins));
        blocking(move || {
            if !dir.exists() {
                return Ok(());
            }
            let sub_paths = dir.join(SUB_PATHS);
            if sub_paths.exists() {
                // They hold the volumes that they are paths of.
                mounter
                    .unmount_below(&sub_paths)
                    .map_err(VolumePluginError::io("unmount below", &sub_paths))?;
            }
            let volumes = dir.join(VOLUMES);
            let mut failures = Failures::default();
            for plugin in plugins.iter() {
                tear_down(plugin.as_ref(), &volumes, &mut failures);
            }
            failures.note(
                mounter
                    .unmount_below(&dir)
                    .map_err(VolumePluginError::io("unmount below", &dir)),
            );
            // What is not undone is found by its directory the next time.
            failures.first()?;
            failures = Failures::default();
            failures.note(remove_tree(&sub_paths));
            failures.note(remove_tree(&volumes));
            failures.first()
        })
        .await
    }

    /// `<pods>/<uid>`.
    pub(crate) fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.pods_dir.join(&uid.0)
    }

    /// Where the pod's emptyDir of that name is.
    pub(crate) fn empty_dir(&self, uid: &PodUid, name: &str) -> PathBuf {
        self.dir(uid, empty_dir::NAME, name)
    }

    fn dir(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.pod_dir(uid)
            .join(VOLUMES)
            .join(format!("{PLUGIN_PREFIX}{plugin}"))
            .join(name)
    }
}

/// What went wrong while everything was tried: the first failure is for the caller, all others are
/// logged as they come.
#[derive(Default)]
struct Failures(Option<VolumePluginError>);

impl Failures {
    fn note(&mut self, outcome: Result<(), VolumePluginError>) {
        match outcome {
            Err(error) if self.0.is_some() => {
                tracing::warn!(error = %ErrorChain(&error), "cannot take a volume away");
            }
            Err(error) => self.0 = Some(error),
            Ok(()) => {}
        }
    }

    fn first(self) -> Result<(), VolumePluginError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Has a plugin take away what of its volumes is not below `volumes`. An earlier agent may have
/// made them.
fn tear_down(plugin: &dyn VolumePlugin, volumes: &Path, failures: &mut Failures) {
    let dir = volumes.join(format!("{PLUGIN_PREFIX}{}", plugin.name()));
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return failures.note(Err(VolumePluginError::io("read", &dir)(error))),
        Ok(entries) => entries,
    };
    for entry in entries {
        let torn_down = entry
            .map_err(VolumePluginError::io("read", &dir))
            .and_then(|entry| plugin.tear_down(&entry.path()));
        failures.note(torn_down);
    }
}

/// Removes a directory with all it holds; mount points below make it fail.
fn remove_tree(dir: &Path) -> Result<(), VolumePluginError> {
    removal::remove_tree(dir).map_err(VolumePluginError::io("remove", dir))
}

fn make_dir(dir: &Path) -> Result<(), VolumePluginError> {
    use std::os::unix::fs::PermissionsExt;
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(VolumePluginError::io("create", dir))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
        .map_err(VolumePluginError::io("set the mode of", dir))
}

#[cfg(test)]
mod tests;
