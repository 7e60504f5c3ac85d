//! DeviceTaintRule: keeps pods from devices, whatever their driver says.
//!
//! Source: `pkg/registry/resource/devicetaintrule/strategy.go` at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::{
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, ResourceInfo, Scope, Strategy, Subresource},
    value::string,
};

/// The strategy of DeviceTaintRules.
pub struct DeviceTaintRule;

static INFO: ResourceInfo = ResourceInfo {
    kind: "DeviceTaintRule",
    plural: "devicetaintrules",
    singular: "devicetaintrule",
    scope: Scope::Cluster,
    subresources: &[Subresource::Status],
    ..super::V1
};

impl BuiltIn for DeviceTaintRule {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for DeviceTaintRule {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        // The time is the rule's own.
        let created = object["metadata"]["creationTimestamp"].clone();
        if created.is_string() {
            fill::within(&mut object["spec"], "taint", |taint| {
                fill::value(taint, "timeAdded", created)
            });
        }
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::GenerationAndStatus
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let selector = &spec["deviceSelector"];
        if !string(&selector["driver"]).is_empty() {
            devices::driver(
                &mut errors,
                "spec.deviceSelector.driver",
                &selector["driver"],
            );
        }
        if !string(&selector["device"]).is_empty() {
            check::dns_label(
                &mut errors,
                "spec.deviceSelector.device",
                &selector["device"],
            );
        }
        devices::taint(&mut errors, "spec.taint", &spec["taint"]);
        errors
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::create_errors;

    #[test]
    fn rules_are_checked() {
        let of = |taint: Value| json!({"spec": {"deviceSelector": {"driver": "d.example"}, "taint": taint}});
        assert_eq!(
            create_errors(
                &DeviceTaintRule,
                of(json!({"key": "a", "effect": "NoSchedule"}))
            ),
            ""
        );
        assert_eq!(
            create_errors(&DeviceTaintRule, of(json!({"key": "a"}))),
            "spec.taint.effect: Required value"
        );
    }
}
