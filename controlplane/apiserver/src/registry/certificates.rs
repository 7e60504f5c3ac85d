//! The kinds of group `certificates.k8s.io`.

pub mod certificatesigningrequest;

use super::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("certificates.k8s.io", "v1");
