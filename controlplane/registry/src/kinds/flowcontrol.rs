//! The kinds of group `flowcontrol.apiserver.k8s.io`. They are kept and checked; requests are not
//! sorted by them.

pub mod flowschema;
pub mod prioritylevelconfiguration;

use crate::strategy::{ResourceInfo, Scope};

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo {
    scope: Scope::Cluster,
    ..ResourceInfo::in_group("flowcontrol.apiserver.k8s.io", "v1")
};
