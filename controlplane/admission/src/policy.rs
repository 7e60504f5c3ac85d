//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies: what both have in common.
//!
//! ```text
//! a task       index: policies and bindings of the cache > compiled, once for each generation
//! each write   index > matching (policy, then binding) > params > validation or mutation, for each of them
//! ```
//!
//! | module | does |
//! |---|---|
//! | `index` | which policies there are, compiled, with their bindings |
//! | `params` | the objects that a binding hands to its policy |
//! | `view` | a write as the expressions of a policy see it |
//! | `validation` | the expressions of a validating policy |
//! | `mutation` | the expressions of a mutating policy, and what they make of an object |
//! | `type_check` | whether a validating policy fits the kinds that it is about |
//! | `reinvocation` | which mutating policies look once more |
//!
//! What is written of a policy is checked when it is written (`coracle_registry`). Policies are
//! never asked about policies, nor about reviews: nobody could take back a policy that refuses
//! everything.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy` at v1.37.

mod index;
mod mutation;
mod params;
pub(crate) mod reinvocation;
pub(crate) mod type_check;
mod validation;
mod view;

pub(crate) mod mutating;
pub(crate) mod validating;

use coracle_registry::api_resource::ApiResource;

/// What nobody is asked about: policies, and reviews, without which nothing works.
///
/// Source: `admissionResources` in `.../policy/generic/plugin.go`,
/// `pkg/kubeapiserver/admission/exclusion/resources.go`.
fn is_exempt(resource: &ApiResource) -> bool {
    let plural = &*resource.plural;
    match &*resource.group {
        "admissionregistration.k8s.io" => matches!(
            plural,
            "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        ),
        "authentication.k8s.io" => matches!(plural, "selfsubjectreviews" | "tokenreviews"),
        "authorization.k8s.io" => matches!(
            plural,
            "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews"
        ),
        _ => false,
    }
}
