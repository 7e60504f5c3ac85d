//! The kinds of group `coordination.k8s.io`.

pub mod lease;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("coordination.k8s.io", "v1");
