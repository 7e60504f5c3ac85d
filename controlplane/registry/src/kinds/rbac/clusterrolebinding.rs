//! ClusterRoleBinding: who has a role everywhere.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::rules;
use crate::{
    cells::{self, AGE, NAME, text, wide},
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
};

/// The strategy of ClusterRoleBindings.
pub struct ClusterRoleBinding;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    scope: Scope::Cluster,
    create_on_update: true,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Role",
        "RoleRef can reference a ClusterRole in the global namespace.",
    ),
    AGE,
    wide("Users", "Users in the clusterRoleBinding"),
    wide("Groups", "Groups in the clusterRoleBinding"),
    wide(
        "ServiceAccounts",
        "ServiceAccounts in the clusterRoleBinding",
    ),
];

impl BuiltIn for ClusterRoleBinding {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ClusterRoleBinding {
    fn default(&self, object: &mut Value) {
        rules::binding_defaults(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        rules::binding(&mut errors, object, &["ClusterRole"], false);
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
