//! The kinds of group `admissionregistration.k8s.io`. They are kept and checked; nothing here calls
//! a webhook or evaluates an expression, and expressions are not compiled.

pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
mod policies;
mod rules;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;
pub(crate) mod webhooks;

use crate::strategy::{ResourceInfo, Scope};

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo {
    scope: Scope::Cluster,
    ..ResourceInfo::in_group("admissionregistration.k8s.io", "v1")
};
