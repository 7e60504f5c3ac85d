//! How full the persistent volumes of a pod are: what their file systems say. Volumes that share a
//! file system share its figures, as upstream, and a host path has none.
//!
//! Source: `pkg/volume/metrics_statfs.go`, `pkg/kubelet/server/stats/volume_stat_calculator.go` at
//! v1.37.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use nix::sys::statvfs::statvfs;

use super::{VolumeManager, claim};
use crate::{blocking::blocking, pod::PodExt};

/// What does not answer has no figures.
const LIMIT: Duration = Duration::from_secs(2);

/// What a volume has and what is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeUsage {
    /// As the pod calls it.
    pub(crate) name: String,
    /// Of the pod's namespace.
    pub(crate) claim: String,
    pub(crate) room: Room,
}

/// Bytes and inodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) capacity_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) inodes_used: u64,
}

impl Room {
    fn of(path: &Path) -> Option<Self> {
        let found = statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Some(Self {
            capacity_bytes: bytes(found.blocks()),
            available_bytes: bytes(found.blocks_available()),
            used_bytes: bytes(found.blocks().saturating_sub(found.blocks_free())),
            inodes: found.files(),
            inodes_free: found.files_free(),
            inodes_used: found.files().saturating_sub(found.files_free()),
        })
    }
}

impl VolumeManager {
    /// Of the volumes that the pod has by claims.
    pub(crate) async fn usage(&self, pod: &Pod) -> Vec<VolumeUsage> {
        let volumes = pod.spec_or_default().volumes.iter().flatten();
        let claims: Vec<(String, String)> = volumes
            .filter_map(|volume| Some((volume.name.clone(), claim::of(pod, volume)?.name)))
            .collect();
        if claims.is_empty() {
            return Vec::new();
        }
        let (records, uid) = (self.records(), pod.uid());
        let found = blocking(move || {
            let path = |(name, claim): (String, String)| {
                let record = records.find(&uid, &claim)?;
                let local = record.claimed.spec()?.local.as_ref()?;
                let path = PathBuf::from(&local.path);
                record.claimed.ready.then_some((name, claim, path))
            };
            claims.into_iter().filter_map(path).collect::<Vec<_>>()
        });
        let mut used = Vec::new();
        for (name, claim, path) in found.await {
            let looked = self.looks.run(&path, LIMIT, Room::of).await;
            if let Some(room) = looked.flatten() {
                used.push(VolumeUsage { name, claim, room });
            }
        }
        used
    }
}
