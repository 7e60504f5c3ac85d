//! Role: what may be done in a namespace.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::rules;
use crate::{
    cells,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
};

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
        let mut errors = FieldErrors::new();
        rules::rules(&mut errors, &object["rules"], true);
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        name::path_segment_errors(name).into_iter().next()
    }

    fn columns(&self) -> &'static [Column] {
        &super::COLUMNS
    }

    fn row(&self, object: &Value, _now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::created_at(object)]
    }
}
