//! What neither webhooks nor policies are asked about: they could make it impossible to get rid of
//! them, or to tell who asks. Those from files are asked about the former: nobody gets rid of them
//! by the API.
//!
//! Source: `IsExemptAdmissionConfigurationResource` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go` at v1.37.

use coracle_registry::{api_resource::ApiResource, kinds::admissionregistration::UNASKED};

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &[&str] = &[
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
const WEBHOOKS: &[&str] = &[
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];

/// Who may be asked about requests to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Everybody.
    All,
    /// Those that are read from files.
    Manifests,
    /// Nobody.
    Nobody,
}

/// Which webhooks are asked about a resource.
#[must_use]
pub fn asked(resource: &ApiResource) -> Asked {
    asked_but(resource, &[WEBHOOKS, POLICIES])
}

/// Which policies are asked about a resource.
///
/// Source: `.../policy/generic/plugin.go`, `pkg/kubeapiserver/admission/exclusion/resources.go`.
#[must_use]
pub fn asked_of_policies(resource: &ApiResource) -> Asked {
    asked_but(resource, &[POLICIES])
}

fn asked_but(resource: &ApiResource, own: &[&[&str]]) -> Asked {
    let mut unasked = UNASKED.into_iter();
    if unasked.any(|(group, plural)| resource.is(group, plural)) {
        return Asked::Nobody;
    }
    let mut own = own.iter().copied().flatten();
    match own.any(|plural| resource.is(GROUP, plural)) {
        true => Asked::Manifests,
        false => Asked::All,
    }
}
