//! The kinds of group `discovery.k8s.io`.

pub mod endpointslice;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("discovery.k8s.io", "v1");
