//! Checks and cells that the kinds of this group share.
//!
//! Source: `pkg/apis/rbac/validation/validation.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    check, fill,
    value::{items, string},
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// `rules` of a Role or ClusterRole.
pub(super) fn rules(errors: &mut FieldErrors, rules: &Value, is_namespaced: bool) {
    for (index, rule) in items(rules).iter().enumerate() {
        let path = format!("rules[{index}]");
        let count = |field: &str| items(&rule[field]).len();
        if count("verbs") == 0 {
            errors.required(
                format!("{path}.verbs"),
                "verbs must contain at least one value",
            );
        }
        if count("nonResourceURLs") > 0 {
            let urls = format!("{path}.nonResourceURLs");
            if is_namespaced {
                let message = "namespaced rules cannot apply to non-resource URLs";
                errors.invalid(&urls, &rule["nonResourceURLs"], message);
            }
            if count("apiGroups") + count("resources") + count("resourceNames") > 0 {
                let message = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(urls, &rule["nonResourceURLs"], message);
            }
            continue;
        }
        if count("apiGroups") == 0 {
            errors.required(
                format!("{path}.apiGroups"),
                "resource rules must supply at least one api group",
            );
        }
        if count("resources") == 0 {
            errors.required(
                format!("{path}.resources"),
                "resource rules must supply at least one resource",
            );
        }
    }
}

/// Fills in `roleRef` and `subjects`.
pub(super) fn binding_defaults(object: &mut Value) {
    fill::within(object, "roleRef", |role| {
        fill::text(role, "apiGroup", GROUP)
    });
    fill::each(object, "subjects", |subject| {
        if subject["kind"] != "ServiceAccount" {
            fill::text(subject, "apiGroup", GROUP);
        }
    });
}

/// Checks a binding. `kinds` are what may be bound.
pub(super) fn binding(
    errors: &mut FieldErrors,
    object: &Value,
    kinds: &[&str],
    is_namespaced: bool,
) {
    let role = &object["roleRef"];
    if string(&role["apiGroup"]) != GROUP {
        errors.not_supported(
            "roleRef.apiGroup",
            &string(&role["apiGroup"]).into(),
            &[GROUP],
        );
    }
    if !kinds.contains(&string(&role["kind"])) {
        errors.not_supported("roleRef.kind", &string(&role["kind"]).into(), kinds);
    }
    if check::required(errors, "roleRef.name", &role["name"]) {
        check::invalid_all(
            errors,
            "roleRef.name",
            &role["name"],
            name::path_segment_errors(string(&role["name"])),
        );
    }
    for (index, one) in items(&object["subjects"]).iter().enumerate() {
        subject(errors, &format!("subjects[{index}]"), one, is_namespaced);
    }
}

fn subject(errors: &mut FieldErrors, path: &str, subject: &Value, is_namespaced: bool) {
    let group = string(&subject["apiGroup"]);
    let name_path = format!("{path}.name");
    let named = check::required(errors, &name_path, &subject["name"]);
    match string(&subject["kind"]) {
        "ServiceAccount" => {
            if named {
                check::dns_subdomain(errors, &name_path, &subject["name"]);
            }
            if !group.is_empty() {
                errors.not_supported(format!("{path}.apiGroup"), &subject["apiGroup"], &[""]);
            }
            if !is_namespaced {
                check::required(errors, &format!("{path}.namespace"), &subject["namespace"]);
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(format!("{path}.apiGroup"), &group.into(), &[GROUP]);
            }
        }
        kind => errors.not_supported(
            format!("{path}.kind"),
            &kind.into(),
            &["Group", "ServiceAccount", "User"],
        ),
    }
}

/// The role of a binding, as a cell.
pub(super) fn role_cell(object: &Value) -> Value {
    format!(
        "{}/{}",
        string(&object["roleRef"]["kind"]),
        string(&object["roleRef"]["name"])
    )
    .into()
}

/// The users, groups and service accounts of a binding, as cells.
pub(super) fn subject_cells(object: &Value) -> [Value; 3] {
    ["User", "Group", "ServiceAccount"].map(|kind| {
        let names: Vec<_> = items(&object["subjects"])
            .iter()
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match (kind, string(&subject["namespace"])) {
                ("ServiceAccount", namespace) if !namespace.is_empty() => {
                    format!("{namespace}/{}", string(&subject["name"]))
                }
                _ => string(&subject["name"]).to_owned(),
            })
            .collect();
        names.join(", ").into()
    })
}
