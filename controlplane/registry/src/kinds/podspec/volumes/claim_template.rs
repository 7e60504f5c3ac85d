//! The template of the claim that a pod gets for itself.
//!
//! Source: `validateEphemeralVolumeSource` in `pkg/apis/core/validation/validation.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{check, kinds::core::persistentvolumeclaim};

/// `volumeClaimTemplate` of an ephemeral volume.
pub(super) fn validate(errors: &mut FieldErrors, path: &str, template: &Value) {
    let path = format!("{path}.volumeClaimTemplate");
    if !template.is_object() {
        errors.required(path, "");
        return;
    }
    let metadata = &template["metadata"];
    let metadata_path = format!("{path}.metadata");
    check::annotations(
        errors,
        &format!("{metadata_path}.annotations"),
        &metadata["annotations"],
    );
    check::labels(
        errors,
        &format!("{metadata_path}.labels"),
        &metadata["labels"],
    );
    for (field, value) in metadata.as_object().into_iter().flatten() {
        let is_used = matches!(field.as_str(), "annotations" | "labels");
        if !is_used && !value.is_null() {
            errors.forbidden(format!("{metadata_path}.{field}"), "cannot be set");
        }
    }
    persistentvolumeclaim::check_spec(errors, &format!("{path}.spec"), &template["spec"]);
}
