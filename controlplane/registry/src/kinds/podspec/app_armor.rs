//! The annotations that named the AppArmor profiles of containers before v1.30, and the field that
//! has done so since.
//!
//! Nodes read the field alone: a new pod's annotation becomes the field of its container. Of a
//! template nothing is changed, as its pods come by here themselves. Source:
//! `applyAppArmorVersionSkew` in `pkg/registry/core/pod/strategy.go`, and
//! `ValidateAppArmorPodAnnotations`, `ValidatePodSpecificAnnotationUpdates`,
//! `ValidateAppArmorProfileField` and `validateAppArmorAnnotationsAndFieldsMatchOnCreate` in
//! `pkg/apis/core/validation/validation.go`.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::{Value, json};

use super::defaults::CONTAINER_LISTS;
use crate::value::{items, keys, string};

/// Before the name of the container.
pub(super) const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// With upstream's backslashes.
pub(super) const DEPRECATED: &str =
    r#"deprecated since v1.30; use the \"appArmorProfile\" field instead"#;

const UNCONFINED: &str = "unconfined";
const RUNTIME_DEFAULT: &str = "runtime/default";
const LOCALHOST: &str = "localhost/";

/// The kernel's longest path, without the byte that ends it.
const MAX_PROFILE: usize = 4095;

const PATH: &str = "metadata.annotations";

/// An annotation of a container without a profile of its own.
struct Annotated {
    list: &'static str,
    index: usize,
    key: String,
    /// What it says; `None` if that is no profile.
    profile: Option<Value>,
}

/// Those of a new pod that say something else than the pod's own field, or nothing that can be
/// understood.
fn annotated(pod: &Value) -> Vec<Annotated> {
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    let mut found = Vec::new();
    if is_of_windows(spec) || !are_any(annotations) {
        return found;
    }
    for list in CONTAINER_LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let key = key_of(container);
            let Some(text) = annotations[&key].as_str() else {
                continue;
            };
            let profile = profile_of(text);
            let has_own = container["securityContext"]["appArmorProfile"].is_object();
            let is_pods = profile.as_ref() == Some(&spec["securityContext"]["appArmorProfile"]);
            if !has_own && !is_pods {
                found.push(Annotated {
                    list,
                    index,
                    key,
                    profile,
                });
            }
        }
    }
    found
}

/// Gives the containers of a new pod what their annotations say.
pub fn fields_from_annotations(pod: &mut Value) {
    for Annotated {
        list,
        index,
        profile,
        ..
    } in annotated(pod)
    {
        if let Some(profile) = profile {
            pod["spec"][list][index]["securityContext"]["appArmorProfile"] = profile;
        }
    }
}

/// What the writer of a new pod is told, before [`fields_from_annotations`] has had it.
#[must_use]
pub fn warnings(pod: &Value) -> Vec<String> {
    let found = annotated(pod).into_iter();
    found
        .map(|one| format!("{PATH}[{}]: {DEPRECATED}", one.key))
        .collect()
}

/// Checks the annotations of a pod or a template.
pub fn validate(errors: &mut FieldErrors, path: &str, annotations: &Value, spec: &Value) {
    if !are_any(annotations) {
        return;
    }
    let containers = CONTAINER_LISTS.iter().flat_map(|list| items(&spec[list]));
    let names: HashSet<&str> = containers.map(|one| string(&one["name"])).collect();
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let Some(container) = key.strip_prefix(ANNOTATION) else {
            continue;
        };
        if !names.contains(container) {
            let name = Value::from(container);
            errors.invalid(format!("{path}[{key}]"), &name, "container not found");
        }
        let text = string(value);
        let is_known = matches!(text, "" | UNCONFINED | RUNTIME_DEFAULT);
        if !is_known && !text.starts_with(LOCALHOST) {
            let message = format!("invalid AppArmor profile name: {text:?}");
            errors.invalid(format!("{path}[{key}]"), value, message);
        }
    }
}

/// Checks that a new pod's annotations and fields do not contradict each other.
pub fn validate_match(errors: &mut FieldErrors, pod: &Value) {
    let (annotations, spec) = (&pod["metadata"]["annotations"], &pod["spec"]);
    if is_of_windows(spec) || !are_any(annotations) {
        return;
    }
    for list in CONTAINER_LISTS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            let Some(text) = annotations[&key_of(container)].as_str() else {
                continue;
            };
            let mut profile = &container["securityContext"]["appArmorProfile"];
            if !profile.is_object() {
                profile = &spec["securityContext"]["appArmorProfile"];
            }
            let (is_type, is_profile) = match string(&profile["type"]) {
                "Unconfined" => (text == UNCONFINED, true),
                "RuntimeDefault" => (text == RUNTIME_DEFAULT, true),
                "Localhost" => match text.strip_prefix(LOCALHOST) {
                    Some(name) => (true, profile["localhostProfile"] == name),
                    None => (false, true),
                },
                _ => (true, true),
            };
            let path = format!("spec.{list}[{index}].securityContext.appArmorProfile");
            if !is_type {
                let message = "apparmor type in annotation and field must match";
                errors.forbidden(format!("{path}.type"), message);
            } else if !is_profile {
                let message = "apparmor profile in annotation and field must match";
                errors.forbidden(format!("{path}.localhostProfile"), message);
            }
        }
    }
}

/// Checks that an update leaves the annotations alone: they are history by then.
pub fn validate_update(errors: &mut FieldErrors, new: &Value, old: &Value) {
    let [after, before] = [new, old].map(|pod| &pod["metadata"]["annotations"]);
    let of_profiles = |key: &&str| key.starts_with(ANNOTATION);
    for key in keys(before).filter(of_profiles) {
        if after[key] != before[key] {
            let message = "may not remove or update AppArmor annotations";
            errors.forbidden(format!("{PATH}[{key}]"), message);
        }
    }
    for key in keys(after).filter(of_profiles) {
        if before[key].is_null() {
            errors.forbidden(format!("{PATH}[{key}]"), "may not add AppArmor annotations");
        }
    }
    validate(errors, PATH, after, &new["spec"]);
}

/// Checks `localhostProfile`, which is there, of a profile of that type.
pub(super) fn local_profile(errors: &mut FieldErrors, path: &str, profile: &Value) {
    let text = string(profile);
    if text != text.trim() {
        errors.invalid(path, profile, "must not be padded with whitespace");
    } else if text.is_empty() {
        errors.required(path, "must be set when AppArmor type is Localhost");
    }
    if text.len() > MAX_PROFILE {
        errors.too_long(path, profile, MAX_PROFILE);
    }
}

/// What most pods have none of costs them nothing.
fn are_any(annotations: &Value) -> bool {
    keys(annotations).any(|key| key.starts_with(ANNOTATION))
}

fn key_of(container: &Value) -> String {
    format!("{ANNOTATION}{}", string(&container["name"]))
}

fn is_of_windows(spec: &Value) -> bool {
    spec["os"]["name"] == "windows"
}

/// The field that says the same; `None` for what the field may not say.
fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        UNCONFINED => Some(json!({"type": "Unconfined"})),
        RUNTIME_DEFAULT => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let name = annotation.strip_prefix(LOCALHOST)?;
            let mut errors = FieldErrors::new();
            local_profile(&mut errors, "", &name.into());
            errors
                .is_empty()
                .then(|| json!({"type": "Localhost", "localhostProfile": name}))
        }
    }
}
