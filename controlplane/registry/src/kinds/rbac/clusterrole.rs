//! ClusterRole: what may be done, in all namespaces and outside of them.

use coracle_api::{name, status::FieldErrors};
use serde_json::Value;

use super::rules;
use crate::{
    cells,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
};

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
        let mut errors = FieldErrors::new();
        rules::rules(&mut errors, &object["rules"], false);
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
