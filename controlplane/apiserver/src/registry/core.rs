//! The kinds of the core group.

pub mod configmap;
pub mod endpoints;
pub mod event;
mod keys;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod secret;
pub mod service;
pub mod serviceaccount;

use super::strategy::ResourceInfo;

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo::in_group("", "v1");
