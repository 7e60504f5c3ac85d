//! The kinds of group `admissionregistration.k8s.io`. They are kept and checked; nothing here calls
//! a webhook or evaluates an expression.

mod expressions;
pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
mod policies;
mod rules;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;
pub(crate) mod webhooks;

use coracle_api::{meta, status::FieldErrors};
use serde_json::Value;

use crate::strategy::{ResourceInfo, Scope};

/// How the names end of what servers read from files: nobody makes such objects by the API.
///
/// Source: `pkg/apis/admissionregistration/validation/static_suffix.go` at v1.37.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

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

/// What is wrong with a new object whose name is one of files.
fn reserved_name(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if meta::name(object).ends_with(STATIC_SUFFIX) {
        let why = format!(
            "names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        errors.invalid("metadata.name", &meta::name(object).into(), why);
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::strategy::BuiltIn;

    #[test]
    fn names_of_files_are_not_for_clients() {
        let kinds: [&dyn BuiltIn; 6] = [
            &mutatingadmissionpolicy::MutatingAdmissionPolicy,
            &mutatingadmissionpolicybinding::MutatingAdmissionPolicyBinding,
            &mutatingwebhookconfiguration::MutatingWebhookConfiguration,
            &validatingadmissionpolicy::ValidatingAdmissionPolicy,
            &validatingadmissionpolicybinding::ValidatingAdmissionPolicyBinding,
            &validatingwebhookconfiguration::ValidatingWebhookConfiguration,
        ];
        for kind in kinds {
            let reserved = |name: &str| {
                let object = json!({"metadata": {"name": name}});
                let errors = kind.validate_create(&object).to_string();
                errors.contains("reserved for static manifest-based")
            };
            let plural = kind.resource().plural;
            assert!(reserved("a.static.k8s.io"), "{plural}");
            assert!(
                !reserved("a-static.k8s.io") && !reserved("static.k8s.io.a"),
                "{plural}"
            );
        }
    }
}
