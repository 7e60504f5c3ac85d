//! What holds of a new pod alone: it has what only others may give it not yet, and its seccomp
//! annotations say what its fields say.
//!
//! Source: `ValidatePodCreate` and `validateSeccompAnnotationsAndFields` in
//! `pkg/apis/core/validation/validation.go` at v1.37. AppArmor's annotations are in
//! [`super::app_armor`].

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::defaults::CONTAINER_LISTS;
use crate::value::{items, string};

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const LOCALHOST: &str = "localhost/";

/// Checks the spec of a new pod.
pub fn validate(errors: &mut FieldErrors, pod: &Value) {
    let spec = &pod["spec"];
    if !items(&spec["ephemeralContainers"]).is_empty() {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    let is_gated = !items(&spec["schedulingGates"]).is_empty();
    if is_gated && !string(&spec["nodeName"]).is_empty() {
        let message = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden("spec.nodeName", message);
    }
    seccomp_matches(errors, "spec", &pod["metadata"]["annotations"], spec);
}

/// Checks the seccomp annotations of a new pod, or of a template, against the fields.
pub(super) fn seccomp_matches(
    errors: &mut FieldErrors,
    path: &str,
    annotations: &Value,
    spec: &Value,
) {
    if !annotations.is_object() {
        return;
    }
    seccomp_match(errors, path, &annotations[SECCOMP_POD], spec);
    for list in CONTAINER_LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let key = format!("{SECCOMP_CONTAINER}{}", string(&container["name"]));
            let path = format!("{path}.{list}[{index}]");
            seccomp_match(errors, &path, &annotations[&key], container);
        }
    }
}

fn seccomp_match(errors: &mut FieldErrors, path: &str, annotation: &Value, holder: &Value) {
    let profile = &holder["securityContext"]["seccompProfile"];
    let Some(text) = annotation.as_str() else {
        return;
    };
    let is_type = match string(&profile["type"]) {
        "Unconfined" => text == "unconfined",
        "RuntimeDefault" => matches!(text, "runtime/default" | "docker/default"),
        "Localhost" => match text.strip_prefix(LOCALHOST) {
            Some(name) if profile["localhostProfile"] != name => {
                let message = "seccomp profile in annotation and field must match";
                let path = format!("{path}.securityContext.seccompProfile.localhostProfile");
                return errors.forbidden(path, message);
            }
            found => found.is_some(),
        },
        _ => true,
    };
    if !is_type {
        let message = "seccomp type in annotation and field must match";
        errors.forbidden(
            format!("{path}.securityContext.seccompProfile.type"),
            message,
        );
    }
}
