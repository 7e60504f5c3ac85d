//! Role: what may be done in a namespace.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::rules;
use crate::strategy::{BuiltIn, Column, ResourceInfo, Strategy};

/// The strategy of Roles.
pub struct Role;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Role",
    plural: "roles",
    singular: "role",
    create_on_update: true,
    ..super::V1
};

impl BuiltIn for Role {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for Role {
    fn validate(&self, object: &Value) -> FieldErrors {
        rules::role(object, true)
    }

    fn name_error(&self, name: &str) -> Option<String> {
        rules::name_error(name)
    }

    fn columns(&self) -> &'static [Column] {
        rules::ROLE_COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        rules::role_row(object)
    }
}
