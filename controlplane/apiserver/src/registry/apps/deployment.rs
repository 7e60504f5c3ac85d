//! Deployment: pods of one template, replaced step by step when the template changes.

use serde_json::Value;

use crate::registry::cells::{self, AGE, CONTAINERS, IMAGES, NAME, text, wide};
use crate::registry::strategy::{Column, ResourceInfo, Strategy, Subresource};

/// The strategy of Deployments.
pub struct Deployment;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    subresources: &[Subresource::Scale, Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Ready", "Number of the pod with ready state"),
    text("Up-to-date", "Total number of non-terminated pods targeted by this deployment that have the desired template spec."),
    text("Available", "Total number of available pods (ready for at least minReadySeconds) targeted by this deployment."),
    AGE,
    CONTAINERS,
    IMAGES,
    wide("Selector", "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment."),
];

impl Strategy for Deployment {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let [containers, images] = cells::containers_and_images(&spec["template"]);
        vec![
            cells::name(object),
            format!("{}/{}", cells::number(&status["readyReplicas"]), cells::number(&spec["replicas"])).into(),
            cells::number(&status["updatedReplicas"]).into(),
            cells::number(&status["availableReplicas"]).into(),
            cells::age(object, now_secs),
            containers,
            images,
            cells::label_selector(&spec["selector"]).into(),
        ]
    }
}
