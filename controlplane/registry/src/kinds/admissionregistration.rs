//! The kinds of group `admissionregistration.k8s.io`. They are kept and checked; nothing here calls
//! a webhook or evaluates an expression.

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

/// Group and plural of what neither webhooks nor policies are asked about: questions that decide
/// who gets in.
///
/// Source: `pkg/kubeapiserver/admission/exclusion/resources.go`,
/// `ExcludeAdmissionWebhookVirtualResources` at v1.37.
pub const UNASKED: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// What the names of this group's kinds have in common.
const V1: ResourceInfo = ResourceInfo {
    scope: Scope::Cluster,
    ..ResourceInfo::in_group("admissionregistration.k8s.io", "v1")
};
