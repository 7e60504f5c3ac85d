//! Checks and cells that the kinds of this group share.
//!
//! Source: `pkg/apis/rbac/validation/validation.go` at v1.37.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use crate::{
    cells::{self, CREATED_AT, NAME},
    check, fill,
    strategy::Column,
    value::{items, string},
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The columns of roles.
pub(super) static ROLE_COLUMNS: &[Column] = &[NAME, CREATED_AT];

/// The cells of [`ROLE_COLUMNS`].
pub(super) fn role_row(object: &Value) -> Vec<Value> {
    vec![cells::name(object), cells::created_at(object)]
}

/// Why an object of this group cannot be called so.
pub(super) fn name_error(name: &str) -> Option<String> {
    name::path_segment_errors(name).into_iter().next()
}

/// Checks a Role or ClusterRole.
pub(super) fn role(object: &Value, is_namespaced: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, rule) in items(&object["rules"]).iter().enumerate() {
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
    errors
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
pub(super) fn binding(object: &Value, kinds: &[&str], is_namespaced: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
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
    if check::required(&mut errors, "roleRef.name", &role["name"]) {
        let messages = name::path_segment_errors(string(&role["name"]));
        check::invalid_all(&mut errors, "roleRef.name", &role["name"], messages);
    }
    for (index, one) in items(&object["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        subject(&mut errors, &path, one, is_namespaced);
    }
    errors
}

/// A binding stays with its role.
pub(super) fn same_role(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if new["roleRef"] != old["roleRef"] {
        errors.invalid("roleRef", &new["roleRef"], "cannot change roleRef");
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

/// The row of a binding.
pub(super) fn binding_row(object: &Value, now_secs: i64) -> Vec<Value> {
    let role = &object["roleRef"];
    let [users, groups, accounts] = subject_cells(object);
    vec![
        cells::name(object),
        format!("{}/{}", string(&role["kind"]), string(&role["name"])).into(),
        cells::age(object, now_secs),
        users,
        groups,
        accounts,
    ]
}

/// The users, groups and service accounts of a binding, as cells.
fn subject_cells(object: &Value) -> [Value; 3] {
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
