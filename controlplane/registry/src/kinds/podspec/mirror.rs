//! The annotation of mirror pods. Much is forgiven who has it, from eviction to its token, so that
//! it comes with the pod or not at all.
//!
//! Source: `ValidatePodSpecificAnnotations` and `ValidatePodSpecificAnnotationUpdates` in
//! `pkg/apis/core/validation/validation.go` at v1.37. Those of AppArmor are in
//! [`super::app_armor`]; the others have fields by now.

use coracle_api::{meta::MIRROR, status::FieldErrors};
use serde_json::Value;

use crate::value::string;

/// Checks the annotation of a pod or a template: a mirror is of what runs on a node already.
pub fn validate(errors: &mut FieldErrors, path: &str, annotations: &Value, spec: &Value) {
    let value = &annotations[MIRROR];
    if value.is_string() && string(&spec["nodeName"]).is_empty() {
        errors.invalid(
            at(path),
            value,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
}

/// Checks that nobody changes it, whatever is written.
pub fn validate_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    const PATH: &str = "metadata.annotations";
    let [after, before] = [new, old].map(|pod| pod["metadata"]["annotations"][MIRROR].as_str());
    match (after, before) {
        (Some(_), None) => errors.forbidden(at(PATH), "may not add mirror pod annotation"),
        (after, Some(_)) if after != before => {
            errors.forbidden(at(PATH), "may not remove or update mirror pod annotation");
        }
        _ => {}
    }
    validate(errors, PATH, &new["metadata"]["annotations"], &new["spec"]);
}

fn at(path: &str) -> String {
    format!("{path}[{MIRROR}]")
}
