//! What of a pod's volumes matters for placing it: the claims that it uses, and disks that few may
//! mount at once.

use k8s_openapi::api::core::v1::{PodSpec, Volume};

/// The volumes of one pod that have a say in where it may be. Most pods have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodVolumes {
    pub(crate) claims: Vec<PodClaim>,
    pub(crate) disks: Vec<Disk>,
}

/// A claim that a pod uses, in the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodClaim {
    pub(crate) name: String,
    /// It is made from the pod, and the pod's own.
    pub(crate) is_ephemeral: bool,
}

/// A disk that is named in the pod itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    Gce {
        name: String,
        is_read_only: bool,
    },
    Ebs {
        id: String,
    },
    Iscsi {
        target: String,
        is_read_only: bool,
    },
    Rbd {
        monitors: Vec<String>,
        pool: String,
        image: String,
        is_read_only: bool,
    },
}

impl PodVolumes {
    /// `None` if no volume has a say.
    pub(super) fn of(spec: &PodSpec, pod: &str) -> Option<Box<Self>> {
        let volumes = || spec.volumes.iter().flatten();
        let claims: Vec<_> = volumes().filter_map(|one| claim(one, pod)).collect();
        let disks: Vec<_> = volumes().filter_map(disk).collect();
        (!claims.is_empty() || !disks.is_empty()).then(|| Box::new(Self { claims, disks }))
    }
}

impl Disk {
    /// Whether a node cannot mount both, each for a pod.
    ///
    /// Source: `isVolumeConflict` in
    /// `pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go` at v1.37.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Gce { name, is_read_only },
                Self::Gce {
                    name: other_name,
                    is_read_only: other_is_read_only,
                },
            ) => name == other_name && !(*is_read_only && *other_is_read_only),
            (Self::Ebs { id }, Self::Ebs { id: other_id }) => id == other_id,
            (
                Self::Iscsi {
                    target,
                    is_read_only,
                },
                Self::Iscsi {
                    target: other_target,
                    is_read_only: other_is_read_only,
                },
            ) => target == other_target && !(*is_read_only && *other_is_read_only),
            (
                Self::Rbd {
                    monitors,
                    pool,
                    image,
                    is_read_only,
                },
                Self::Rbd {
                    monitors: other_monitors,
                    pool: other_pool,
                    image: other_image,
                    is_read_only: other_is_read_only,
                },
            ) => {
                (pool, image) == (other_pool, other_image)
                    && monitors.iter().any(|one| other_monitors.contains(one))
                    && !(*is_read_only && *other_is_read_only)
            }
            _ => false,
        }
    }
}

/// Source: `VolumeClaimName` in `k8s.io/component-helpers/storage/ephemeral/ephemeral.go` at v1.37.
fn claim(volume: &Volume, pod: &str) -> Option<PodClaim> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(PodClaim {
            name: source.claim_name.clone(),
            is_ephemeral: false,
        });
    }
    volume.ephemeral.as_ref()?;
    Some(PodClaim {
        name: format!("{pod}-{}", volume.name),
        is_ephemeral: true,
    })
}

fn disk(volume: &Volume) -> Option<Disk> {
    if let Some(gce) = &volume.gce_persistent_disk {
        return Some(Disk::Gce {
            name: gce.pd_name.clone(),
            is_read_only: gce.read_only.unwrap_or(false),
        });
    }
    if let Some(ebs) = &volume.aws_elastic_block_store {
        let id = ebs.volume_id.clone();
        return Some(Disk::Ebs { id });
    }
    if let Some(iscsi) = &volume.iscsi {
        return Some(Disk::Iscsi {
            target: iscsi.iqn.clone(),
            is_read_only: iscsi.read_only.unwrap_or(false),
        });
    }
    let rbd = volume.rbd.as_ref()?;
    Some(Disk::Rbd {
        monitors: rbd.monitors.clone(),
        pool: rbd.pool.clone().unwrap_or_default(),
        image: rbd.image.clone(),
        is_read_only: rbd.read_only.unwrap_or(false),
    })
}
