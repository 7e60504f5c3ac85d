//! CSIDriver: what a volume driver of the cluster can do and wants.
//!
//! Source: `pkg/registry/storage/csidriver/strategy.go`, `pkg/apis/storage/validation` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, flag, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::{items, string},
};

/// The strategy of CSIDrivers.
pub struct CsiDriver;

static INFO: ResourceInfo = ResourceInfo {
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    scope: Scope::Cluster,
    unconditional_update: false,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    flag(
        "AttachRequired",
        "attachRequired indicates this CSI volume driver requires an attach operation (because it implements the CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the attach volume interface which checks the volumeattachment status and waits until the volume is attached before proceeding to mounting.",
    ),
    flag(
        "PodInfoOnMount",
        "podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName, podUID, etc.) during mount operations, if set to true.",
    ),
    flag(
        "StorageCapacity",
        "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity information, if set to true.",
    ),
    text(
        "TokenRequests",
        "tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to do necessary authentication.",
    ),
    flag(
        "RequiresRepublish",
        "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to reflect any possible change in the mounted volume.",
    ),
    text(
        "Modes",
        "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports.",
    ),
    AGE,
];

impl BuiltIn for CsiDriver {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for CsiDriver {
    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        let spec = &mut object["spec"];
        fill::value(spec, "attachRequired", true);
        for field in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            fill::value(spec, field, false);
        }
        fill::value(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if items(&spec["volumeLifecycleModes"]).is_empty() {
            spec["volumeLifecycleModes"] = vec!["Persistent"].into();
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Generation
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = &object["spec"];
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        check::optional_one_of(
            &mut errors,
            "spec.fsGroupPolicy",
            &spec["fsGroupPolicy"],
            &policies,
        );
        let requests = items(&spec["tokenRequests"]);
        let mut audiences = HashSet::new();
        for (index, request) in requests.iter().enumerate() {
            let path = format!("spec.tokenRequests[{index}]");
            if !audiences.insert(string(&request["audience"])) {
                errors.duplicate(
                    format!("{path}.audience"),
                    &string(&request["audience"]).into(),
                );
            }
            let secs = &request["expirationSeconds"];
            if secs.as_i64().is_some_and(|own| own < 600) {
                let message = "may not specify a duration less than 10 minutes";
                errors.invalid(format!("{path}.expirationSeconds"), secs, message);
            }
            if secs.as_i64().is_some_and(|own| own > 1 << 32) {
                let message = "may not specify a duration larger than 2^32 seconds";
                errors.invalid(format!("{path}.expirationSeconds"), secs, message);
            }
        }
        for mode in items(&spec["volumeLifecycleModes"]) {
            check::optional_one_of(
                &mut errors,
                "spec.volumeLifecycleModes",
                mode,
                &["Ephemeral", "Persistent"],
            );
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        for field in ["attachRequired", "volumeLifecycleModes"] {
            check::immutable_field(&mut errors, &format!("spec.{field}"), new, old);
        }
        errors
    }

    fn name_error(&self, name: &str) -> Option<String> {
        super::driver_name_error(name)
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let spec = &object["spec"];
        let requests: Vec<_> = items(&spec["tokenRequests"])
            .iter()
            .map(|one| string(&one["audience"]))
            .collect();
        let modes: Vec<_> = items(&spec["volumeLifecycleModes"])
            .iter()
            .map(string)
            .collect();
        let or = |text: String, otherwise: &str| {
            if text.is_empty() {
                otherwise.to_owned()
            } else {
                text
            }
        };
        vec![
            cells::name(object),
            (spec["attachRequired"] != false).into(),
            (spec["podInfoOnMount"] == true).into(),
            (spec["storageCapacity"] == true).into(),
            or(requests.join(","), "<unset>").into(),
            (spec["requiresRepublish"] == true).into(),
            or(modes.join(","), "<none>").into(),
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
    fn drivers_are_checked() {
        let driver = json!({"metadata": {"name": "csi.example"}, "spec": {}});
        for (pointer, value, expect) in [
            ("/spec/fsGroupPolicy", json!("File"), ""),
            (
                "/spec/fsGroupPolicy",
                json!("x"),
                "spec.fsGroupPolicy: Unsupported value: \"x\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
            ),
            (
                "/spec/tokenRequests",
                json!([{"audience": "a", "expirationSeconds": 5}]),
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
            ),
            (
                "/spec/volumeLifecycleModes",
                json!(["x"]),
                "spec.volumeLifecycleModes: Unsupported value: \"x\": supported values: \"Ephemeral\", \"Persistent\"",
            ),
        ] {
            assert_eq!(
                create_errors(&CsiDriver, with(&driver, pointer, value.clone())),
                expect,
                "{value}"
            );
        }
        let old = created(&CsiDriver, driver);
        assert_eq!(
            update_errors(
                &CsiDriver,
                with(&old, "/spec/attachRequired", json!(false)),
                &old
            ),
            "spec.attachRequired: Invalid value: false: field is immutable"
        );
        assert_eq!(
            json!(CsiDriver.row(&old, 0)),
            json!([
                "csi.example",
                true,
                false,
                false,
                "<unset>",
                false,
                "Persistent",
                "<unknown>"
            ])
        );
    }
}
