//! DeviceClass: a kind of devices that claims can ask for.
//!
//! Source: `pkg/registry/resource/deviceclass/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::registry::cells::{self, AGE, NAME, string};
use crate::registry::strategy::{Column, ResourceInfo, Scope, Strategy};
use crate::registry::{check, fill, lifecycle};

/// The strategy of DeviceClasses.
pub struct DeviceClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, AGE];

impl Strategy for DeviceClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
    }

    fn prepare_for_create(&self, object: &mut Value) {
        lifecycle::first_generation(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let changed = new["spec"] != old["spec"];
        lifecycle::next_generation(new, old, changed);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        devices::selectors(&mut errors, "spec.selectors", &spec["selectors"]);
        devices::configuration(&mut errors, "spec.config", &spec["config"]);
        if !string(&spec["extendedResourceName"]).is_empty() {
            check::qualified_name(&mut errors, "spec.extendedResourceName", &spec["extendedResourceName"]);
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![cells::name(object), cells::age(object, now_secs)]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::testing::create_errors;

    #[test]
    fn classes_are_checked() {
        for (spec, expect) in [
            (json!({"selectors": [{"cel": {"expression": "true"}}]}), ""),
            (json!({"selectors": [{}]}), "spec.selectors[0].cel: Required value"),
            (
                json!({"config": [{"opaque": {"driver": "d.example"}}]}),
                "spec.config[0].opaque.parameters: Required value",
            ),
        ] {
            assert_eq!(create_errors(&DeviceClass, json!({"spec": spec})), expect);
        }
    }
}
