//! CSINode: which volume drivers run on a node.
//!
//! Source: `pkg/registry/storage/csinode/strategy.go`, `pkg/apis/storage/validation` at v1.37.

use std::collections::{HashMap, HashSet};

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, integer},
    check, fill, lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::{self, items, string},
};

/// The strategy of CSINodes.
pub struct CsiNode;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    scope: Scope::Cluster,
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    integer(
        "Drivers",
        "Drivers indicates the number of CSI drivers registered on the node",
    ),
    AGE,
];

const MAX_NODE_ID: usize = 192;

impl BuiltIn for CsiNode {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for CsiNode {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        fill::value(&mut object["spec"], "drivers", Value::Null);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        // Written by nobody yet.
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        lifecycle::keep(new, old, "status");
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let drivers = items(&object["spec"]["drivers"]);
        let mut names = HashSet::new();
        for (index, driver) in drivers.iter().enumerate() {
            let path = format!("spec.drivers[{index}]");
            super::driver_name(&mut errors, &format!("{path}.name"), &driver["name"]);
            let id = &driver["nodeID"];
            check::required(&mut errors, &format!("{path}.nodeID"), id);
            if string(id).len() > MAX_NODE_ID {
                let message = format!("must be {MAX_NODE_ID} characters or less");
                errors.invalid(format!("{path}.nodeID"), id, message);
            }
            check::not_negative(
                &mut errors,
                &format!("{path}.allocatable.count"),
                &driver["allocatable"]["count"],
            );
            let mut keys = HashSet::new();
            for key in items(&driver["topologyKeys"]) {
                let path = format!("{path}.topologyKeys");
                if !keys.insert(key) {
                    errors.duplicate(&path, key);
                }
                check::qualified_name(&mut errors, &path, key);
            }
            if !names.insert(&driver["name"]) {
                errors.duplicate(format!("{path}.name"), &driver["name"]);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let drivers: HashMap<_, _> = items(&new["spec"]["drivers"])
            .iter()
            .rev()
            .map(|driver| (&driver["name"], driver))
            .collect();
        for before in items(&old["spec"]["drivers"]) {
            let Some(after) = drivers.get(&before["name"]) else {
                continue;
            };
            if ["nodeID", "topologyKeys"]
                .iter()
                .any(|field| after[*field] != before[*field])
            {
                errors.immutable("CSINodeDriver", after);
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::len(&object["spec"]["drivers"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn nodes_drivers_are_checked() {
        let of = |drivers: Value| json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}});
        for (drivers, expect) in [
            (json!([{"name": "a.example", "nodeID": "1"}]), ""),
            (
                json!([{"name": "a.example"}]),
                "spec.drivers[0].nodeID: Required value",
            ),
            (
                json!([{"name": "a.example", "nodeID": "1"}, {"name": "a.example", "nodeID": "1"}]),
                "spec.drivers[1].name: Duplicate value: \"a.example\"",
            ),
        ] {
            assert_eq!(create_errors(&CsiNode, of(drivers)), expect);
        }
        let old = created(&CsiNode, of(json!([{"name": "a.example", "nodeID": "1"}])));
        let errors = update_errors(
            &CsiNode,
            with(&old, "/spec/drivers/0/nodeID", json!("2")),
            &old,
        );
        assert!(errors.ends_with("field is immutable"), "{errors}");
        assert_eq!(json!(CsiNode.row(&old, 0)), json!(["n", 1, "<unknown>"]));
    }
}
