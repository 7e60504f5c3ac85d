//! The kinds of group `batch`.

pub mod cronjob;
pub mod job;
mod jobspec;
mod success_policy;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("batch", "v1");
