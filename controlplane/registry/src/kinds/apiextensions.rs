//! The kind of group `apiextensions.k8s.io`: what other kinds there are.

pub mod customresourcedefinition;
pub mod definition;

use crate::strategy::{ResourceInfo, Scope};

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo {
    scope: Scope::Cluster,
    ..ResourceInfo::in_group("apiextensions.k8s.io", "v1")
};
