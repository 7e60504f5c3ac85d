//! DeviceClass: a kind of devices that claims can ask for.
//!
//! Source: `pkg/registry/resource/deviceclass/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::{
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, ResourceInfo, Scope, Strategy},
    value::string,
};

/// The strategy of DeviceClasses.
pub struct DeviceClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "DeviceClass",
    plural: "deviceclasses",
    singular: "deviceclass",
    scope: Scope::Cluster,
    ..super::V1
};

impl BuiltIn for DeviceClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for DeviceClass {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        devices::selectors(&mut errors, "spec.selectors", &spec["selectors"]);
        devices::configuration(&mut errors, "spec.config", &spec["config"]);
        if !string(&spec["extendedResourceName"]).is_empty() {
            check::qualified_name(
                &mut errors,
                "spec.extendedResourceName",
                &spec["extendedResourceName"],
            );
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn classes_are_checked() {
        for (spec, expect) in [
            (json!({"selectors": [{"cel": {"expression": "true"}}]}), ""),
            (
                json!({"selectors": [{}]}),
                "spec.selectors[0].cel: Required value",
            ),
            (
                json!({"config": [{"opaque": {"driver": "d.example"}}]}),
                "spec.config[0].opaque.parameters: Required value",
            ),
        ] {
            assert_eq!(create_errors(&DeviceClass, json!({"spec": spec})), expect);
        }
    }
}
