//! ResourceSlice: devices that a driver offers.
//!
//! Source: `pkg/registry/resource/resourceslice/strategy.go` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    kinds::podspec::scheduling,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::{self, items, number, string},
};

/// The strategy of ResourceSlices.
pub struct ResourceSlice;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ResourceSlice",
    plural: "resourceslices",
    singular: "resourceslice",
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Node",
        "NodeName identifies the node which provides the resources in this slice.",
    ),
    text(
        "Driver",
        "Driver identifies the DRA driver providing the capacity information.",
    ),
    text(
        "Pool",
        "Pool describes the pool that this ResourceSlice belongs to.",
    ),
    AGE,
];

const MAX_DEVICES: usize = 128;

impl BuiltIn for ResourceSlice {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.driver", "spec.nodeName"]
    }
}

impl Strategy for ResourceSlice {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        devices::driver(&mut errors, "spec.driver", &spec["driver"]);
        let pool = &spec["pool"];
        check::required(&mut errors, "spec.pool.name", &pool["name"]);
        if number(&pool["resourceSliceCount"]) <= 0 {
            let count = number(&pool["resourceSliceCount"]).into();
            errors.invalid(
                "spec.pool.resourceSliceCount",
                &count,
                "must be greater than zero",
            );
        }
        check::not_negative(&mut errors, "spec.pool.generation", &pool["generation"]);
        place(&mut errors, spec);
        let list = items(&spec["devices"]);
        if list.len() > MAX_DEVICES {
            errors.too_many("spec.devices", list.len(), MAX_DEVICES);
        }
        let mut names = HashSet::new();
        for (index, device) in list.iter().enumerate() {
            let path = format!("spec.devices[{index}]");
            if check::required(&mut errors, &format!("{path}.name"), &device["name"]) {
                check::dns_label(&mut errors, &format!("{path}.name"), &device["name"]);
            }
            if !names.insert(&device["name"]) {
                errors.duplicate(format!("{path}.name"), &device["name"]);
            }
            for (index, taint) in items(&device["taints"]).iter().enumerate() {
                devices::taint(&mut errors, &format!("{path}.taints[{index}]"), taint);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        let (new, old) = (&new["spec"], &old["spec"]);
        check::immutable(&mut errors, "spec.driver", &new["driver"], &old["driver"]);
        check::immutable(
            &mut errors,
            "spec.pool.name",
            &new["pool"]["name"],
            &old["pool"]["name"],
        );
        check::immutable(
            &mut errors,
            "spec.nodeName",
            &new["nodeName"],
            &old["nodeName"],
        );
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.driver" => string(&object["spec"]["driver"]).to_owned(),
            "spec.nodeName" => string(&object["spec"]["nodeName"]).to_owned(),
            _ => String::new(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        vec![
            cells::name(object),
            value::string_or(&spec["nodeName"], "<unset>").into(),
            string(&spec["driver"]).into(),
            string(&spec["pool"]["name"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// Exactly one way of saying where the devices are.
fn place(errors: &mut FieldErrors, spec: &Value) {
    let has = |field: &str| !spec[field].is_null() && spec[field] != false && spec[field] != "";
    let fields = [
        "nodeName",
        "nodeSelector",
        "allNodes",
        "perDeviceNodeSelection",
    ];
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match fields.iter().filter(|field| has(field)).count() {
        0 => errors.required("spec", ONE),
        1 => {}
        _ => errors.invalid("spec", spec, format!("{ONE}, but multiple fields are set")),
    }
    if has("nodeName") {
        check::dns_subdomain(errors, "spec.nodeName", &spec["nodeName"]);
    }
    if has("nodeSelector") {
        scheduling::node_selector(errors, "spec.nodeSelector", &spec["nodeSelector"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors, with};

    #[test]
    fn slices_are_checked() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {
            "driver": "d.example", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a"}]}});
        for (pointer, value, expect) in [
            ("/spec/devices/0/name", json!("b"), ""),
            ("/spec/driver", json!(""), "spec.driver: Required value"),
            (
                "/spec/pool/resourceSliceCount",
                json!(0),
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            ),
            (
                "/spec/nodeName",
                Value::Null,
                "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
            ),
            (
                "/spec/devices/1",
                json!({"name": "a"}),
                "spec.devices[1].name: Duplicate value: \"a\"",
            ),
        ] {
            assert_eq!(
                create_errors(&ResourceSlice, with(&slice, pointer, value.clone())),
                expect,
                "{pointer}"
            );
        }
        let old = created(&ResourceSlice, slice);
        assert_eq!(
            update_errors(
                &ResourceSlice,
                with(&old, "/spec/nodeName", json!("x")),
                &old
            ),
            "spec.nodeName: Invalid value: \"x\": field is immutable"
        );
        assert_eq!(
            json!(ResourceSlice.row(&old, 0)),
            json!(["s", "n", "d.example", "p", "<unknown>"])
        );
        assert_eq!(ResourceSlice.field(&old, "spec.driver"), "d.example");
    }
}
