//! ControllerRevision: a former state of a controller's template, for rollbacks. Immutable.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, NONE, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of ControllerRevisions.
pub struct ControllerRevision;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Controller", "Controller of the object"),
    text("Revision", "Revision indicates the revision of the state represented by Data."),
    AGE,
];

impl Strategy for ControllerRevision {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let owner = cells::items(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true);
        vec![
            cells::name(object),
            owner.map_or_else(|| NONE.to_owned(), controller).into(),
            cells::number(&object["revision"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// `statefulset.apps/web`.
fn controller(owner: &Value) -> String {
    let kind = cells::string(&owner["kind"]).to_lowercase();
    let name = cells::string(&owner["name"]);
    match cells::string(&owner["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
