//! The kinds of group `node.k8s.io`.

pub mod runtimeclass;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("node.k8s.io", "v1");
