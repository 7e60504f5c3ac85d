//! The kinds of group `certificates.k8s.io`.

pub mod certificatesigningrequest;
pub mod clustertrustbundle;
pub mod podcertificaterequest;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("certificates.k8s.io", "v1");
