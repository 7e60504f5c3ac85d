//! VolumeAttributesClass: attributes of volumes that can be changed while they are in use.
//!
//! Source: `pkg/registry/storage/volumeattributesclass/strategy.go`, `pkg/apis/storage/validation`
//! at v1.37.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    strategy::{BuiltIn, Column, ResourceInfo, Scope, Strategy},
    value::{self, string},
};

/// The strategy of VolumeAttributesClasses.
pub struct VolumeAttributesClass;

static INFO: ResourceInfo = ResourceInfo {
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    scope: Scope::Cluster,
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "DriverName",
        "driverName is the name of the CSI driver that handles the class.",
    ),
    AGE,
];

const MAX_PARAMETERS: usize = 512;

const DEFAULT_ANNOTATION: &str = "volumeattributesclass.alpha.kubernetes.io/is-default-class";

impl BuiltIn for VolumeAttributesClass {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for VolumeAttributesClass {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        super::driver_name(&mut errors, "driverName", &object["driverName"]);
        let parameters = &object["parameters"];
        match value::len(parameters) {
            0 => errors.required("parameters", "must contain at least one key/value pair"),
            count if count > MAX_PARAMETERS => errors.too_many("parameters", count, MAX_PARAMETERS),
            _ => {}
        }
        if value::keys(parameters).any(str::is_empty) {
            errors.invalid("parameters", &"".into(), "field can not be empty.");
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate(new);
        for field in ["driverName", "parameters"] {
            if new[field] != old[field] {
                errors.forbidden(field, format!("updates to {field} are forbidden."));
            }
        }
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let is_default = object["metadata"]["annotations"][DEFAULT_ANNOTATION] == "true";
        let name = string(&object["metadata"]["name"]);
        vec![
            if is_default {
                format!("{name} (default)").into()
            } else {
                name.into()
            },
            string(&object["driverName"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, update_errors, with};

    #[test]
    fn classes_are_checked() {
        let class = json!({"metadata": {"name": "c"}, "driverName": "csi.example", "parameters": {"iops": "5"}});
        assert_eq!(create_errors(&VolumeAttributesClass, class.clone()), "");
        assert_eq!(
            create_errors(&VolumeAttributesClass, json!({})),
            "[driverName: Required value, parameters: Required value: must contain at least one key/value pair]"
        );
        assert_eq!(
            update_errors(
                &VolumeAttributesClass,
                with(&class, "/driverName", json!("x")),
                &class
            ),
            "driverName: Forbidden: updates to driverName are forbidden."
        );
        assert_eq!(
            json!(VolumeAttributesClass.row(&class, 0)),
            json!(["c", "csi.example", "<unknown>"])
        );
    }
}
