//! Groups of Kubernetes' own: a definition in one says where it was approved.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apihelpers/helpers.go`,
//! `pkg/controller/apiapproval/apiapproval_controller.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::conditions::Condition;
use crate::value::string;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What the annotation says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

/// What is wrong with the approval of a definition that is made, or changed.
#[must_use]
pub fn errors(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (state, why) = approval(new);
    // Who changes something else is not asked for it.
    if !is_protected(new) || old.is_some_and(|old| approval(old).0 == state) {
        return errors;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    match state {
        Approval::Missing => errors.required(path, why),
        Approval::Invalid => errors.invalid(path, &new["metadata"]["annotations"][ANNOTATION], why),
        Approval::Bypassed | Approval::Approved => {}
    }
    errors
}

/// What is told of it, of a definition in such a group.
#[must_use]
pub fn condition(definition: &Value) -> Option<Condition> {
    if !is_protected(definition) {
        return None;
    }
    let (state, message) = approval(definition);
    let (status, reason) = match state {
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Invalid => ("False", "InvalidAnnotation"),
    };
    Some(Condition {
        kind: "KubernetesAPIApprovalPolicyConformant",
        status,
        reason: reason.to_owned(),
        message,
    })
}

fn is_protected(definition: &Value) -> bool {
    let group = string(&definition["spec"]["group"]);
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn approval(definition: &Value) -> (Approval, String) {
    let said = string(&definition["metadata"]["annotations"][ANNOTATION]);
    let needed = format!("protected groups must have approval annotation {ANNOTATION:?}");
    if said.is_empty() {
        return (Approval::Missing, format!("{needed}, {SEE}"));
    }
    if said.starts_with("unapproved") {
        return (Approval::Bypassed, format!("not approved: {said:?}"));
    }
    let url = said.parse::<http::Uri>().ok();
    if url.is_some_and(|url| url.scheme().is_some() && url.host().is_some()) {
        return (Approval::Approved, format!("approved in {said}"));
    }
    let either = "with either a URL or a reason starting with \"unapproved\"";
    (Approval::Invalid, format!("{needed} {either}, {SEE}"))
}
