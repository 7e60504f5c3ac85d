//! The kinds of group `storage.k8s.io`.

pub mod storageclass;

use super::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("storage.k8s.io", "v1");
