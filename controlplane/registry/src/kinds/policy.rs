//! The kinds of group `policy`.

pub mod poddisruptionbudget;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("policy", "v1");
