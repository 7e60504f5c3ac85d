//! ClusterRoleBinding: who has a role everywhere.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::rules;
use crate::{
    cells::{AGE, NAME, text, wide},
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
        rules::binding(object, &["ClusterRole"], false)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        rules::same_role(&mut errors, new, old);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        rules::name_error(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        rules::binding_row(object, now_secs)
    }
}
