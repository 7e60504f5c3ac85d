//! The kinds of group `net.coracle.dev`: what a node's network needs to know of the cluster.

pub mod podpeer;

use crate::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("net.coracle.dev", "v1");
