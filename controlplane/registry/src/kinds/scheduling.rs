//! The kinds of group `scheduling.k8s.io`.

pub mod priorityclass;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("scheduling.k8s.io", "v1");
