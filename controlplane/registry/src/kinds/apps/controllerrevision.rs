//! ControllerRevision: a former state of a controller's template, for rollbacks. Immutable.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, NONE, text},
    check,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value,
};

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
    text(
        "Revision",
        "Revision indicates the revision of the state represented by Data.",
    ),
    AGE,
];

impl BuiltIn for ControllerRevision {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if object["data"].is_null() {
            errors.required("data", "data is mandatory");
        }
        check::not_negative(&mut errors, "revision", &object["revision"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        check::immutable_field(&mut errors, "data", new, old);
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let owner = value::items(&object["metadata"]["ownerReferences"])
            .iter()
            .find(|owner| owner["controller"] == true);
        vec![
            cells::name(object),
            owner.map_or_else(|| NONE.to_owned(), controller).into(),
            value::number(&object["revision"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// `statefulset.apps/web`.
fn controller(owner: &Value) -> String {
    let kind = value::string(&owner["kind"]).to_lowercase();
    let name = value::string(&owner["name"]);
    match value::string(&owner["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, update_errors};

    #[test]
    fn revisions_are_checked_and_immutable() {
        let old = json!({"revision": 1, "data": {"a": 1}});
        assert_eq!(create_errors(&ControllerRevision, old.clone()), "");
        assert_eq!(
            create_errors(&ControllerRevision, json!({"revision": 1})),
            "data: Required value: data is mandatory"
        );
        let new = json!({"revision": 1, "data": {"a": 2}});
        assert_eq!(
            update_errors(&ControllerRevision, new, &old),
            "data: Invalid value: {\"a\":2}: field is immutable"
        );
    }

    #[test]
    fn rows_name_the_controller() {
        let revision = json!({"metadata": {"name": "web-1", "ownerReferences": [
            {"controller": true, "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}]}, "revision": 4});
        assert_eq!(
            json!(ControllerRevision.row(&revision, 0)),
            json!(["web-1", "statefulset.apps/web", 4, "<unknown>"])
        );
    }
}
