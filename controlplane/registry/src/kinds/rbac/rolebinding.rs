//! RoleBinding: who has a role in a namespace.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::rules;
use crate::{
    cells::{self, AGE, NAME, text, wide},
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
};

/// The strategy of RoleBindings.
pub struct RoleBinding;

static INFO: ResourceInfo = ResourceInfo {
    kind: "RoleBinding",
    plural: "rolebindings",
    singular: "rolebinding",
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Role",
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace.",
    ),
    AGE,
    wide("Users", "Users in the roleBinding"),
    wide("Groups", "Groups in the roleBinding"),
    wide("ServiceAccounts", "ServiceAccounts in the roleBinding"),
];

impl BuiltIn for RoleBinding {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for RoleBinding {
    fn default(&self, object: &mut Value) {
        rules::binding_defaults(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        rules::binding(&mut errors, object, &["ClusterRole", "Role"], true);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        if new["roleRef"] != old["roleRef"] {
            errors.invalid("roleRef", &new["roleRef"], "cannot change roleRef");
        }
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        name::path_segment_errors(name).into_iter().next()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let [users, groups, accounts] = rules::subject_cells(object);
        vec![
            cells::name(object),
            rules::role_cell(object),
            cells::age(object, now_secs),
            users,
            groups,
            accounts,
        ]
    }
}

#[cfg(test)]
mod tests;
