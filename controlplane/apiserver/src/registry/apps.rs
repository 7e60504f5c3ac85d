//! The kinds of group `apps`.

pub mod controllerrevision;
pub mod deployment;
pub mod replicaset;

use super::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("apps", "v1");
