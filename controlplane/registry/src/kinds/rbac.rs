//! The kinds of group `rbac.authorization.k8s.io`.

pub mod clusterrole;
pub mod clusterrolebinding;
pub mod role;
pub mod rolebinding;
mod rules;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("rbac.authorization.k8s.io", "v1");
