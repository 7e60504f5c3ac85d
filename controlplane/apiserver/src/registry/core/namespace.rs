//! Namespace: what the other kinds live in.

use serde_json::{Value, json};

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Scope, Strategy, Subresource};

/// The strategy of Namespaces.
pub struct Namespace;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    subresources: &[Subresource::Finalize, Subresource::Status],
    // A collection of namespaces cannot be deleted at once.
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, text("Status", "The status of the namespace"), AGE];

impl Strategy for Namespace {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::string(&object["status"]["phase"]).into(), cells::age(object, now_secs)]
    }
}
