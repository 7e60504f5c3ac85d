//! ClusterRole: what may be done, in all namespaces and outside of them.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::rules;
use crate::strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy};

/// The strategy of ClusterRoles.
pub struct ClusterRole;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ClusterRole",
    plural: "clusterroles",
    singular: "clusterrole",
    scope: Scope::Cluster,
    create_on_update: true,
    ..super::V1
};

impl BuiltIn for ClusterRole {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ClusterRole {
    fn validate(&self, object: &Value) -> FieldErrors {
        rules::role(object, false)
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
