//! Pod: containers that run together on one node.

mod columns;

use serde_json::Value;

use crate::registry::cells;
use crate::registry::strategy::{Column, Deletion, ResourceInfo, Strategy, Subresource};

/// The strategy of Pods.
pub struct Pod;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource::Attach,
        Subresource::Binding,
        Subresource::EphemeralContainers,
        Subresource::Eviction,
        Subresource::Exec,
        Subresource::Log,
        Subresource::Portforward,
        Subresource::Proxy,
        Subresource::Resize,
        Subresource::Status,
    ],
    ..super::V1
};

const FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

impl Strategy for Pod {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        FIELDS
    }

    fn field(&self, object: &Value, path: &str) -> String {
        let Some((part, field)) = path.split_once('.') else { return String::new() };
        match &object[part][field] {
            Value::Bool(value) => value.to_string(),
            _ if path == "spec.hostNetwork" => "false".to_owned(),
            value => cells::string(value).to_owned(),
        }
    }

    fn deletion(&self, object: &Value, grace_secs: Option<i64>) -> Deletion {
        let spec = &object["spec"];
        let mut grace = grace_secs.or_else(|| spec["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
        // Nobody would confirm: not yet on a node, or already at its end.
        let phase = cells::string(&object["status"]["phase"]);
        if cells::string(&spec["nodeName"]).is_empty() || matches!(phase, "Succeeded" | "Failed") {
            grace = 0;
        }
        if grace < 0 {
            grace = 1;
        }
        if grace == 0 { Deletion::Immediate } else { Deletion::Graceful(grace) }
    }

    fn columns(&self) -> &'static [Column] {
        columns::COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        columns::row(object, now_secs)
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        columns::row_conditions(object)
    }
}
