//! Checks of a pod's resource claims, and of what its containers use of them.
//!
//! Source: `validatePodResourceClaims` and `validateResourceClaimNames` in
//! `pkg/apis/core/validation/validation.go` at v1.37.

use std::collections::{BTreeSet, HashSet};

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    check,
    value::{items, string},
};

/// `resourceClaims` of a pod spec.
pub(super) fn pod(errors: &mut FieldErrors, path: &str, claims: &Value) {
    let mut names = BTreeSet::new();
    for (index, claim) in items(claims).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name_path = format!("{path}.name");
        if check::required(errors, &name_path, &claim["name"]) {
            if names.insert(string(&claim["name"])) {
                check::dns_label(errors, &name_path, &claim["name"]);
            } else {
                errors.duplicate(name_path, &claim["name"]);
            }
        }
        let said = ["resourceClaimName", "resourceClaimTemplateName"]
            .map(|field| (field, &claim[field]))
            .into_iter()
            .filter(|(_, name)| name.is_string());
        match said.clone().count() {
            0 => errors.invalid(
                &path,
                claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            1 => {}
            _ => errors.invalid(
                &path,
                claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for (field, name) in said {
            check::dns_subdomain(errors, &format!("{path}.{field}"), name);
        }
    }
}

/// The names that `resources.claims` may refer to.
pub(super) fn names(claims: &Value) -> BTreeSet<&str> {
    let names = items(claims).iter().map(|claim| string(&claim["name"]));
    names.filter(|name| !name.is_empty()).collect()
}

/// `resources.claims` of a container, in a pod with claims of these `names`.
pub(super) fn used(errors: &mut FieldErrors, path: &str, claims: &Value, names: &BTreeSet<&str>) {
    // Claims that are used whole, those of which requests are used, and these requests.
    let (mut whole, mut parted, mut parts) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, claim) in items(claims).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (name, request) = (string(&claim["name"]), string(&claim["request"]));
        if name.is_empty() {
            errors.required(path, "");
            continue;
        }
        if whole.contains(name) {
            errors.duplicate(&path, &name.into());
        } else if request.is_empty() {
            if parted.contains(name) {
                errors.duplicate(&path, &name.into());
            }
            whole.insert(name);
        } else {
            check::dns_label(errors, &format!("{path}.request"), &claim["request"]);
            if !parts.insert((name, request)) {
                errors.duplicate(&path, &format!("{name}/{request}").into());
            }
            parted.insert(name);
        }
        if !names.contains(name) {
            errors.not_found_because(path, &name.into(), || {
                let known: Vec<&str> = names.iter().copied().collect();
                let known = match known.as_slice() {
                    [] => " which is empty".to_owned(),
                    known => format!(": {}", known.join(", ")),
                };
                format!("must be one of the names in pod.spec.resourceClaims{known}")
            });
        }
    }
}
