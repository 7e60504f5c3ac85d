//! ResourceClaim: a wish for devices.
//!
//! Source: `pkg/registry/resource/resourceclaim/strategy.go` at v1.37.

use std::collections::HashSet;

use coracle_api::status::FieldErrors;
use serde_json::Value;

use super::devices;
use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    lifecycle::Lifecycle,
    strategy::{ALL_METADATA, BuiltIn, Column, ResourceInfo, Strategy, Subresource},
    value::items,
};

/// The strategy of ResourceClaims.
pub struct ResourceClaim;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ResourceClaim",
    plural: "resourceclaims",
    singular: "resourceclaim",
    subresources: &[Subresource::Status],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "State",
        "A summary of the current state (allocated, pending, reserved, etc.).",
    ),
    AGE,
];

impl BuiltIn for ResourceClaim {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ResourceClaim {
    fn status_keeps(&self) -> &'static [&'static str] {
        ALL_METADATA
    }

    fn default(&self, object: &mut Value) {
        fill::object(object, "spec");
        devices::default(&mut object["spec"]);
        fill::object(object, "status");
    }

    fn lifecycle(&self) -> Lifecycle {
        Lifecycle::Status
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        devices::claim(&mut errors, "spec", &object["spec"]);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::immutable_field(&mut errors, "spec", new, old);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (status, before) = (&new["status"], &old["status"]);
        let reserved = items(&status["reservedFor"]);
        let mut seen = HashSet::new();
        for (index, consumer) in reserved.iter().enumerate() {
            let path = format!("status.reservedFor[{index}]");
            for field in ["resource", "name", "uid"] {
                check::required(&mut errors, &format!("{path}.{field}"), &consumer[field]);
            }
            if !seen.insert(&consumer["uid"]) {
                errors.duplicate(format!("{path}.uid"), &consumer["uid"]);
            }
        }
        if status["allocation"].is_null() && !reserved.is_empty() {
            errors.forbidden(
                "status.reservedFor",
                "may not be specified when `allocated` is not set",
            );
        }
        if !before["allocation"].is_null() && !status["allocation"].is_null() {
            check::immutable(
                &mut errors,
                "status.allocation",
                &status["allocation"],
                &before["allocation"],
            );
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let status = &object["status"];
        let mut states = Vec::new();
        if !object["metadata"]["deletionTimestamp"].is_null() {
            states.push("deleted");
        }
        match (
            status["allocation"].is_object(),
            items(&status["reservedFor"]).is_empty(),
        ) {
            (false, _) if states.is_empty() => states.push("pending"),
            (false, _) => {}
            (true, true) => states.push("allocated"),
            (true, false) => states.extend(["allocated", "reserved"]),
        }
        vec![
            cells::name(object),
            states.join(",").into(),
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
    fn claims_are_checked() {
        let of = |request: Value| json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}});
        let good = of(json!({"name": "r", "exactly": {"deviceClassName": "gpu"}}));
        for (claim, expect) in [
            (good.clone(), ""),
            (
                of(json!({"name": "r"})),
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ),
            (
                of(json!({"name": "r", "exactly": {}})),
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
            ),
            (
                of(
                    json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "x"}}),
                ),
                "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"x\": supported values: \"All\", \"ExactCount\"",
            ),
        ] {
            assert_eq!(create_errors(&ResourceClaim, claim), expect);
        }
        let old = created(&ResourceClaim, good);
        assert_eq!(old["spec"]["devices"]["requests"][0]["exactly"]["count"], 1);
        let errors = update_errors(&ResourceClaim, with(&old, "/spec/devices", json!({})), &old);
        assert!(errors.ends_with("field is immutable"), "{errors}");
        assert_eq!(
            json!(ResourceClaim.row(&old, 0)),
            json!(["c", "pending", "<unknown>"])
        );
    }
}
