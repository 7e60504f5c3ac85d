//! Local persistent volumes: directories of this node, which outlive the pods that use them.
//!
//! Containers get the directory itself, nothing is mounted on the way. Those that the cluster has
//! made for the node are made and kept by [`Storage`]; all others somebody has put there, and they
//! are never made, emptied or removed.
//!
//! Ownership is given once a pod, and not at all while another pod has the volume: that one's files
//! would go away under it. A large tree takes longer than anybody waits; the work goes on by
//! itself, and says in the pod's record that it is done.
//!
//! Source: `pkg/volume/local/local.go`, `pkg/volume/volume_linux.go` at v1.37.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use coracle_api::volume::{annotation, local_path};
use k8s_openapi::api::core::v1::{LocalVolumeSource, PersistentVolume};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;

use super::{
    claim::record::{Claimed, Record, Records},
    error::VolumePluginError,
    group_tree::{self, Policy},
    jobs::Jobs,
    layout,
    plugin::{SetUp, Source, VolumePlugin},
    storage::{Storage, StorageError},
};
use crate::{
    events::{EventRecorder, EventType},
    pod::PodExt,
};

/// For the look at a path.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// For saying that a directory is about to be made.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// For ownership; whoever asks gives up earlier.
const OWNERSHIP_LIMIT: Duration = Duration::from_secs(600);
/// Then people are told that it takes long.
const TELL_AFTER: Duration = Duration::from_secs(30);
const IN_PROGRESS: &str = "VolumePermissionChangeInProgress";
const ADVICE: &str = "is taking longer than expected, consider using OnRootMismatch - \
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods";

/// The plugin.
pub(super) struct Local {
    records: Records,
    storage: Arc<Storage>,
    client: Client,
    events: EventRecorder,
    looks: Jobs,
    ownership: Jobs,
    progress: Arc<Mutex<HashMap<PathBuf, Arc<Progress>>>>,
}

/// How far the change of a tree's ownership is.
#[derive(Default)]
struct Progress {
    files: AtomicU64,
    is_told: AtomicBool,
}

/// What has become of a wish for a group.
enum Given {
    AsWished,
    /// Another pod has the volume, and this group.
    Not {
        group: u32,
    },
}

fn asked_for(source: Source<'_>) -> Option<(&Claimed, &LocalVolumeSource)> {
    match source {
        Source::Inline(_) => None,
        Source::Persistent(claimed) => Some((claimed, claimed.spec()?.local.as_ref()?)),
    }
}

#[async_trait]
impl VolumePlugin for Local {
    fn name(&self) -> &'static str {
        layout::LOCAL
    }

    fn supports(&self, source: Source<'_>) -> bool {
        asked_for(source).is_some()
    }

    async fn set_up(&self, wanted: &SetUp<'_>) -> Result<PathBuf, VolumePluginError> {
        let (claimed, source) = asked_for(wanted.source).ok_or(VolumePluginError::Unsupported)?;
        let path = PathBuf::from(&source.path);
        let options = claimed.spec().and_then(|spec| spec.mount_options.as_ref());
        if options.is_some_and(|options| !options.is_empty()) {
            return Err(VolumePluginError::MountOptions);
        }
        if self.storage.is_ours(&claimed.volume) {
            if !claimed.ready && annotation(&claimed.volume.metadata, local_path::MADE).is_none() {
                self.look(&path, claimed, Storage::note).await?;
                self.say_that_it_is_made(claimed).await?;
            }
            self.look(&path, claimed, Storage::ensure).await?;
        } else {
            let looked = self.looks.run(&path, LOOK_LIMIT, check);
            looked.await.unwrap_or_else(|| Err(hangs(&path)))?;
        }
        let group = wanted
            .fs_group()
            .and_then(|group| u32::try_from(group).ok());
        if let Some(group) = group.filter(|_| !claimed.ready && !wanted.read_only) {
            self.give(wanted, claimed, &path, group).await?;
        }
        Ok(path)
    }
}

impl Local {
    pub(super) fn new(
        records: Records,
        storage: Arc<Storage>,
        client: Client,
        events: EventRecorder,
    ) -> Self {
        Self {
            records,
            storage,
            client,
            events,
            looks: Jobs::default(),
            ownership: Jobs::default(),
            progress: Arc::default(),
        }
    }

    /// Something about a volume that the cluster has made for this node.
    async fn look(
        &self,
        path: &Path,
        claimed: &Claimed,
        at: fn(&Storage, &PersistentVolume) -> Result<(), StorageError>,
    ) -> Result<(), VolumePluginError> {
        let (storage, volume) = (Arc::clone(&self.storage), claimed.volume.clone());
        let looked = self.looks.run(path, LOOK_LIMIT, move |_| {
            at(&storage, &volume).map_err(VolumePluginError::from)
        });
        looked.await.unwrap_or_else(|| Err(hangs(path)))
    }

    /// So that a node that has lost what it knew does not make an empty directory in its place.
    async fn say_that_it_is_made(&self, claimed: &Claimed) -> Result<(), VolumePluginError> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let said = json!({"metadata": {"uid": claimed.volume.metadata.uid, "annotations": {local_path::MADE: "true"}}});
        let (params, said) = (PatchParams::default(), Patch::Merge(said));
        let request = volumes.patch_metadata(claimed.name(), &params, &said);
        match tokio::time::timeout(REQUEST_LIMIT, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(VolumePluginError::Unsaid(Some(Box::new(error)))),
            Err(_) => Err(VolumePluginError::Unsaid(None)),
        }
    }

    /// Gives the volume to the pod's group, or finds that an earlier try has.
    async fn give(
        &self,
        wanted: &SetUp<'_>,
        claimed: &Claimed,
        path: &Path,
        group: u32,
    ) -> Result<(), VolumePluginError> {
        let progress = Arc::clone(self.progress.lock().entry(path.to_owned()).or_default());
        let work = Ownership {
            records: self.records.clone(),
            record: Record {
                dir: wanted.dir.to_owned(),
                claimed: claimed.clone(),
            },
            pod: wanted.pod.uid(),
            group,
            policy: policy(wanted),
        };
        let (counted, all) = (Arc::clone(&progress), Arc::clone(&self.progress));
        let job = self.ownership.run(path, OWNERSHIP_LIMIT, move |path| {
            let given = work.give(path, &counted.files);
            all.lock().remove(path);
            given
        });
        let mut job = std::pin::pin!(job);
        let given = tokio::select! {
            given = &mut job => given,
            () = tokio::time::sleep(TELL_AFTER) => {
                self.tell(wanted, &progress);
                job.await
            }
        };
        let given = given.unwrap_or(Err(VolumePluginError::Late(OWNERSHIP_LIMIT)))?;
        if let Given::Not { group: has } = given {
            let name = claimed.name();
            let message = format!(
                "The requested fsGroup is {group}, but the volume {name} has GID {has}. The volume may not be shareable."
            );
            self.warn(wanted, "AlreadyMountedVolume", message);
        }
        Ok(())
    }

    fn tell(&self, wanted: &SetUp<'_>, progress: &Progress) {
        let dir = wanted.dir.strip_prefix(&self.records.pods_dir);
        let dir = dir.unwrap_or(wanted.dir).display();
        let message = if progress.is_told.swap(true, Ordering::Relaxed) {
            let files = progress.files.load(Ordering::Relaxed);
            format!("Setting volume ownership for {dir}, processed {files} files")
        } else {
            format!("Setting volume ownership for {dir} {ADVICE}")
        };
        self.warn(wanted, IN_PROGRESS, message);
    }

    fn warn(&self, wanted: &SetUp<'_>, reason: &'static str, message: String) {
        let kind = EventType::Warning;
        self.events.pod(wanted.pod, None, kind, reason, message);
    }
}

fn hangs(path: &Path) -> VolumePluginError {
    VolumePluginError::LocalHangs {
        path: path.display().to_string(),
    }
}

fn policy(wanted: &SetUp<'_>) -> Policy {
    let context = wanted.pod.spec_or_default().security_context.as_ref();
    match context.and_then(|context| context.fs_group_change_policy.as_deref()) {
        Some("OnRootMismatch") => Policy::OnRootMismatch,
        _ => Policy::Always,
    }
}

/// The work on a tree.
struct Ownership {
    records: Records,
    record: Record,
    pod: crate::runtime::types::PodUid,
    group: u32,
    policy: Policy,
}

impl Ownership {
    /// Blocks for as long as it takes.
    fn give(&self, path: &Path, files: &AtomicU64) -> Result<Given, VolumePluginError> {
        if self.record.is_ready_by_now() {
            return Ok(Given::AsWished);
        }
        let dir = &self.record.dir;
        let volume = &self.record.claimed.volume;
        let others = self
            .records
            .holders(volume, Some(&self.pod))
            .map_err(VolumePluginError::io("read the records of", dir))?;
        let given = if others.iter().any(|other| other.claimed.ready) {
            let found = fs::metadata(path).map_err(VolumePluginError::io("look at", path))?;
            if found.gid() == self.group {
                Given::AsWished
            } else {
                Given::Not { group: found.gid() }
            }
        } else {
            group_tree::set_group(path, self.group, self.policy, files)
                .map_err(VolumePluginError::io("change the group of", path))?;
            Given::AsWished
        };
        self.record
            .set_ready()
            .map_err(VolumePluginError::io("write the record of", dir))?;
        Ok(given)
    }
}

/// Of a path that somebody else keeps.
fn check(path: &Path) -> Result<(), VolumePluginError> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(VolumePluginError::Backsteps {
            path: path.display().to_string(),
        });
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(found) if found.file_type().is_block_device() => Err(VolumePluginError::LocalDevice),
        Ok(_) => Err(VolumePluginError::LocalKind),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(VolumePluginError::NoLocalPath {
                path: path.display().to_string(),
            })
        }
        Err(error) => Err(VolumePluginError::io("look at", path)(error)),
    }
}
