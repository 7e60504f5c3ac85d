//! Volumes: makes what a pod's containers mount, keeps it current, takes it away.
//!
//! One directory a volume, as [`layout`] says; host paths and local volumes are used where they
//! are. A kind of volume is a [`VolumePlugin`] in the list of [`VolumeManager::new`].
//! [`VolumeManager::ensure`] is idempotent and doubles as the refresh of ConfigMaps, Secrets and
//! tokens: what has not changed is not touched. A claim is looked up and goes on record
//! ([`claim`]) before its volume is touched. Attach/detach is not here yet: a volume of an unknown
//! kind is an error that the pod waits with.

mod atomic_writer;
mod claim;
mod claiming;
mod config_map;
mod downward_api;
mod empty_dir;
mod error;
mod files;
mod group_tree;
mod host_path;
mod jobs;
mod layout;
mod local;
mod mounter;
mod ownership;
mod payload;
mod plugin;
mod projected;
mod secret;
mod service_account_token;
mod stats;
pub(crate) mod storage;
mod sub_path;
mod teardown;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use k8s_openapi::api::core::v1::{Pod, Volume};
use parking_lot::Mutex;

use self::{
    claim::{ClaimError, Claims, Uses},
    claiming::Place,
    config_map::ConfigMaps,
    downward_api::DownwardApi,
    empty_dir::EmptyDir,
    error::{VolumeError, VolumePluginError},
    files::FileVolumes,
    host_path::HostPath,
    jobs::Jobs,
    layout::{SUB_PATHS, VOLUMES},
    local::Local,
    plugin::{SetUp, Source, VolumePlugin},
    projected::Projected,
    secret::Secrets,
    service_account_token::Tokens,
};
use crate::{
    blocking::blocking,
    config::AgentConfig,
    events::EventRecorder,
    node::{NodeView, facts::Machine},
    objects::Objects,
    pod::PodExt,
    removal,
    runtime::types::PodUid,
};

pub(crate) use claim::record::Records;
#[cfg(test)]
pub(crate) use mounter::NoMounts;
pub(crate) use mounter::{Mounter, SystemMounter};
pub(crate) use stats::{Room, VolumeUsage};
pub(crate) use storage::{Storage, StorageError};
pub(crate) use sub_path::SubPathError;

/// What a container mounts of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountedVolume {
    /// The directory or file on the node.
    pub(crate) path: PathBuf,
    pub(crate) read_only: bool,
    /// Processes of the pod are to be in this group, too.
    pub(crate) group: Option<u32>,
}

/// By name, those that containers use.
pub(crate) type MountedVolumes = BTreeMap<String, MountedVolume>;

/// For one volume: what it is made of may be asked of the API, one object after the other.
const SET_UP_LIMIT: Duration = Duration::from_secs(60);

/// Makes, refreshes and removes volumes.
pub(crate) struct VolumeManager {
    pods_dir: PathBuf,
    mounter: Arc<dyn Mounter>,
    /// The first that supports a volume makes it.
    plugins: Arc<[Box<dyn VolumePlugin>]>,
    claims: Claims,
    records: Records,
    storage: Arc<Storage>,
    /// Who takes a volume for one pod has it before another looks.
    taking: Arc<Mutex<()>>,
    /// How full volumes are.
    looks: Jobs,
    place: Place,
}

/// What volumes are made with.
pub(crate) struct VolumeParts {
    pub(crate) config: AgentConfig,
    pub(crate) client: kube::Client,
    pub(crate) objects: Arc<Objects>,
    pub(crate) mounter: Arc<dyn Mounter>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) events: EventRecorder,
    pub(crate) node: NodeView,
}

/// Why a volume is not there.
enum Missing {
    /// Nobody knows yet what it is.
    Claim(ClaimError),
    Volume(VolumeError),
}

impl VolumeManager {
    pub(crate) fn new(parts: VolumeParts) -> Self {
        let (objects, machine) = (&parts.objects, &parts.machine);
        let config_maps = || ConfigMaps {
            objects: Arc::clone(objects),
        };
        let secrets = || Secrets {
            objects: Arc::clone(objects),
        };
        let downward_api = || DownwardApi {
            machine: Arc::clone(machine),
            node_ip: parts.config.node_ip,
        };
        let projected = Projected {
            config_maps: config_maps(),
            secrets: secrets(),
            downward_api: downward_api(),
            tokens: Tokens::new(parts.client.clone()),
        };
        let pods_dir = parts.config.pods_dir();
        let records = Records {
            pods_dir: pods_dir.clone(),
        };
        let storage = Arc::new(Storage::new(
            &parts.config.node_name,
            &parts.config.storage_dir(),
            &parts.config.local_volumes_dir(),
        ));
        let local = Local::new(
            records.clone(),
            Arc::clone(&storage),
            parts.client.clone(),
            parts.events,
        );
        let mounter = &parts.mounter;
        let plugins: [Box<dyn VolumePlugin>; 7] = [
            Box::new(HostPath::default()),
            Box::new(EmptyDir {
                mounter: Arc::clone(mounter),
                machine: Arc::clone(machine),
            }),
            Box::new(FileVolumes::new(config_maps(), mounter)),
            Box::new(FileVolumes::new(secrets(), mounter)),
            Box::new(FileVolumes::new(downward_api(), mounter)),
            Box::new(FileVolumes::new(projected, mounter)),
            Box::new(local),
        ];
        Self {
            pods_dir,
            mounter: parts.mounter,
            plugins: plugins.into(),
            claims: Claims {
                client: parts.client,
            },
            records,
            storage,
            taking: Arc::default(),
            looks: Jobs::default(),
            place: Place {
                config: parts.config,
                view: parts.node,
            },
        }
    }

    /// Makes all volumes that containers of the pod use, or brings them up to date with objects no
    /// older than `max_age`.
    ///
    /// # Errors
    /// The first volume that failed; the others are made all the same.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        max_age: Duration,
    ) -> Result<MountedVolumes, VolumeError> {
        let volumes = pod.spec_or_default().volumes.iter().flatten();
        let used = volumes.filter(|volume| Uses::of(pod, &volume.name).any());
        let made = futures::future::join_all(used.map(|volume| async move {
            let name = volume.name.clone();
            (name, self.ensure_one(pod, volume, max_age).await)
        }))
        .await;
        collected(made)
    }

    async fn ensure_one(
        &self,
        pod: &Pod,
        volume: &Volume,
        max_age: Duration,
    ) -> Result<MountedVolume, Missing> {
        let failed = |name: &str| {
            let volume = name.to_owned();
            move |source| Missing::Volume(VolumeError::SetUp { volume, source })
        };
        if let Some(reference) = claim::of(pod, volume) {
            let record = self.claimed(pod, volume, &reference).await?;
            let name = record.claimed.name().to_owned();
            let mounted = self.ensure_claimed(pod, record, &reference, max_age).await;
            return mounted.map_err(failed(&name));
        }
        let source = Source::Inline(volume);
        let made = async {
            let plugin = self.plugin(source)?;
            let wanted = SetUp {
                pod,
                source,
                read_only: false,
                dir: &self.dir(&pod.uid(), plugin.name(), &volume.name),
                max_age,
            };
            set_up(plugin, &wanted).await
        };
        let path = made.await.map_err(failed(&volume.name))?;
        Ok(MountedVolume {
            path,
            read_only: false,
            group: None,
        })
    }

    fn plugin(&self, source: Source<'_>) -> Result<&dyn VolumePlugin, VolumePluginError> {
        let mut plugins = self.plugins.iter();
        plugins
            .find(|plugin| plugin.supports(source))
            .map(|plugin| &**plugin)
            .ok_or(VolumePluginError::Unsupported)
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

    /// Directories that the node makes.
    pub(crate) fn storage(&self) -> Arc<Storage> {
        Arc::clone(&self.storage)
    }

    /// What pods have of persistent volumes.
    pub(crate) fn records(&self) -> Records {
        self.records.clone()
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
        layout::of_plugin(&self.pod_dir(uid).join(VOLUMES), plugin).join(name)
    }
}

async fn set_up(
    plugin: &dyn VolumePlugin,
    wanted: &SetUp<'_>,
) -> Result<PathBuf, VolumePluginError> {
    // A worker that waits for a volume hears of nothing else, its pod's deletion included.
    tokio::time::timeout(SET_UP_LIMIT, plugin.set_up(wanted))
        .await
        .unwrap_or(Err(VolumePluginError::Late(SET_UP_LIMIT)))
}

/// All volumes, or what is to be told of those that are missing.
///
/// Source: `WaitForAttachAndMount` in `pkg/kubelet/volumemanager/volume_manager.go` at v1.37.
fn collected(
    made: Vec<(String, Result<MountedVolume, Missing>)>,
) -> Result<MountedVolumes, VolumeError> {
    let (mut volumes, mut unmounted, mut unknown, mut why) =
        (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
    let mut first = None;
    for (name, outcome) in made {
        match outcome {
            Ok(volume) => {
                volumes.insert(name, volume);
                continue;
            }
            Err(Missing::Volume(error)) if unknown.is_empty() => first = first.or(Some(error)),
            Err(Missing::Volume(_)) => {}
            Err(Missing::Claim(error)) => {
                why.push(ErrorChain(&error).to_string());
                unknown.push(name.clone());
            }
        }
        unmounted.push(name);
    }
    let listed = |mut names: Vec<String>| {
        names.sort();
        names.join(" ")
    };
    match first {
        Some(error) => Err(error),
        None if unmounted.is_empty() => Ok(volumes),
        None => Err(VolumeError::Process {
            unmounted: listed(unmounted),
            failed: listed(unknown),
            why: why.join("; "),
        }),
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
