//! RoleBinding: who has a role in a namespace.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::rules;
use crate::{
    cells::{AGE, NAME, text, wide},
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
        rules::binding(object, &["ClusterRole", "Role"], true)
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

#[cfg(test)]
mod tests;
