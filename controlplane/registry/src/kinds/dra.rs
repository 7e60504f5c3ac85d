//! The kinds of group `resource.k8s.io`, dynamic resource allocation. They are kept and checked;
//! nothing allocates, and expressions are not compiled.

pub mod deviceclass;
mod devices;
pub mod devicetaintrule;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("resource.k8s.io", "v1");
