//! What neither webhooks nor policies are asked about: they could make it impossible to get rid of
//! them, or to tell who asks.
//!
//! Source: `IsExemptAdmissionConfigurationResource` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go` at v1.37.

use coracle_registry::{api_resource::ApiResource, kinds::admissionregistration::UNASKED};

const GROUP: &str = "admissionregistration.k8s.io";
const CONFIGURATIONS: [&str; 6] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// Whether nobody is asked about requests to a resource.
#[must_use]
pub fn is_exempt(resource: &ApiResource) -> bool {
    let mut configurations = CONFIGURATIONS.into_iter();
    let mut unasked = UNASKED.into_iter();
    configurations.any(|plural| resource.is(GROUP, plural))
        || unasked.any(|(group, plural)| resource.is(group, plural))
}
