//! What neither webhooks nor policies are asked about: they could make it impossible to get rid of
//! them, or to tell who asks.
//!
//! Source: `IsExemptAdmissionConfigurationResource` in
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go`,
//! `pkg/kubeapiserver/admission/exclusion/resources.go` and, for webhooks, the feature
//! `ExcludeAdmissionWebhookVirtualResources`, at v1.37.

use coracle_registry::api_resource::ApiResource;

/// By group and plural.
const EXEMPT: [(&str, &[&str]); 3] = [
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    (
        "authentication.k8s.io",
        &["selfsubjectreviews", "tokenreviews"],
    ),
    (
        "authorization.k8s.io",
        &[
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
];

/// Whether nobody is asked about requests to a resource.
#[must_use]
pub fn is_exempt(resource: &ApiResource) -> bool {
    EXEMPT
        .iter()
        .any(|(group, plurals)| resource.group == *group && plurals.contains(&&*resource.plural))
}
