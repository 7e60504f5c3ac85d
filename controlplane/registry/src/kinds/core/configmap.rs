//! ConfigMap: plain configuration data.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    kinds::core::keys,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value,
};

/// The strategy of ConfigMaps.
pub struct ConfigMap;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text("Data", "Data contains the configuration data."),
    AGE,
];

impl BuiltIn for ConfigMap {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }
}

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        keys::names(&mut errors, "data", &object["data"]);
        for key in value::keys(&object["binaryData"]) {
            if !object["data"][key].is_null() {
                errors.invalid(
                    format!("data[{key}]"),
                    &key.into(),
                    "duplicate of key present in binaryData",
                );
            }
        }
        keys::names(&mut errors, "binaryData", &object["binaryData"]);
        let bytes = keys::text_bytes(&object["data"]) + keys::base64_bytes(&object["binaryData"]);
        if bytes > keys::MAX_BYTES {
            errors.too_long("", &Value::Null, keys::MAX_BYTES);
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        keys::stays_immutable(&mut errors, new, old, &["data", "binaryData"]);
        errors.extend(self.validate(new));
        errors
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let data = value::len(&object["data"]) + value::len(&object["binaryData"]);
        vec![
            cells::name(object),
            data.into(),
            cells::age(object, now_secs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, update_errors};

    #[test]
    fn config_maps_are_checked() {
        for (object, expect) in [
            (json!({"data": {"a.b-c_D": "x"}}), ""),
            (
                json!({"data": {"a/b": "x"}}),
                "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
            ),
            (
                json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}}),
                "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
            ),
            (json!({"data": {"a": "x".repeat(1 << 20)}}), ""),
            (
                json!({"data": {"a": "x".repeat((1 << 20) + 1)}}),
                ": Too long: may not be more than 1048576 bytes",
            ),
        ] {
            assert_eq!(create_errors(&ConfigMap, object), expect);
        }
    }

    #[test]
    fn immutable_means_immutable() {
        let old = json!({"data": {"a": "x"}, "immutable": true});
        for (new, expect) in [
            (old.clone(), ""),
            (
                json!({"data": {"a": "y"}, "immutable": true}),
                "data: Forbidden: field is immutable when `immutable` is set",
            ),
            (
                json!({"data": {"a": "x"}}),
                "immutable: Forbidden: field is immutable when `immutable` is set",
            ),
        ] {
            assert_eq!(update_errors(&ConfigMap, new, &old), expect);
        }
    }

    #[test]
    fn rows_count_keys() {
        let object =
            json!({"metadata": {"name": "a"}, "data": {"a": "", "b": ""}, "binaryData": {"c": ""}});
        assert_eq!(
            json!(ConfigMap.row(&object, 0)),
            json!(["a", 3, "<unknown>"])
        );
    }
}
