//! ReplicaSet: so many pods of one template.

use serde_json::Value;

use crate::registry::cells::{self, AGE, CONTAINERS, IMAGES, NAME, integer, wide};
use crate::registry::strategy::{Column, ResourceInfo, Strategy, Subresource};

/// The strategy of ReplicaSets.
pub struct ReplicaSet;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ReplicaSet",
    plural: "replicasets",
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer("Desired", "Replicas is the number of desired pods."),
    integer("Current", "Replicas is the most recently observed number of non-terminating pods."),
    integer("Ready", "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition."),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Selector is a label query over pods that should match the replica count."),
];

impl Strategy for ReplicaSet {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "status.replicas" => cells::number(&object["status"]["replicas"]).to_string(),
            _ => String::new(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [containers, images] = cells::containers_and_images(&spec["template"]);
        vec![
            cells::name(object),
            cells::number(&spec["replicas"]).into(),
            cells::number(&status["replicas"]).into(),
            cells::number(&status["readyReplicas"]).into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&spec["selector"]).into(),
        ]
    }
}
