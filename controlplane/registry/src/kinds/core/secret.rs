//! Secret: data that only few may read.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{
    cells::{self, AGE, NAME, text},
    check, fill,
    kinds::core::keys,
    strategy::{BuiltIn, Column, ResourceInfo, Strategy},
    value::{self, string},
};

/// The strategy of Secrets.
pub struct Secret;

static INFO: ResourceInfo = ResourceInfo {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    ..super::V1
};

static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Type",
        "Used to facilitate programmatic handling of secret data.",
    ),
    text("Data", "Data contains the secret data."),
    AGE,
];

impl BuiltIn for Secret {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }
}

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        fill::text(object, "type", "Opaque");
        merge_string_data(object);
    }

    fn validate(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        keys::names(&mut errors, "data", &object["data"]);
        if keys::base64_bytes(&object["data"]) > keys::MAX_BYTES {
            errors.too_long("data", &Value::Null, keys::MAX_BYTES);
        }
        by_type(&mut errors, object);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        check::immutable_field(&mut errors, "type", new, old);
        keys::stays_immutable(&mut errors, new, old, &["data"]);
        errors.extend(self.validate(new));
        errors
    }

    fn field(&self, object: &Value, path: &str) -> String {
        if path == "type" {
            value::string(&object["type"]).to_owned()
        } else {
            String::new()
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            value::string(&object["type"]).into(),
            value::len(&object["data"]).into(),
            cells::age(object, now_secs),
        ]
    }
}

/// `stringData` is for writing only: it ends up in `data`.
fn merge_string_data(object: &mut Value) {
    let Some(Value::Object(plain)) = object
        .as_object_mut()
        .and_then(|map| map.remove("stringData"))
    else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    fill::object(object, "data");
    for (key, value) in plain {
        object["data"][key] = STANDARD.encode(string(&value)).into();
    }
}

/// What the known types ask for.
fn by_type(errors: &mut FieldErrors, object: &Value) {
    let data = &object["data"];
    let required = |errors: &mut FieldErrors, key: &str| {
        if data[key].is_null() {
            errors.required(format!("data[{key}]"), "");
        }
    };
    match string(&object["type"]) {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if string(&object["metadata"]["annotations"][key]).is_empty() {
                errors.required(format!("metadata.annotations[{key}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(errors, object, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_config(errors, object, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            errors.required("data[username]", "");
            errors.required("data[password]", "");
        }
        "kubernetes.io/ssh-auth" if string(&data["ssh-privatekey"]).is_empty() => {
            errors.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/tls" => {
            required(errors, "tls.crt");
            required(errors, "tls.key");
        }
        _ => {}
    }
}

fn docker_config(errors: &mut FieldErrors, object: &Value, key: &str) {
    let path = format!("data[{key}]");
    match STANDARD.decode(string(&object["data"][key])) {
        Ok(bytes) if bytes.is_empty() => errors.required(path, ""),
        Ok(bytes) => {
            if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
                errors.invalid(
                    path,
                    &"<secret contents redacted>".into(),
                    error.to_string(),
                );
            }
        }
        Err(_) => errors.required(path, ""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{create_errors, created, update_errors};

    #[test]
    fn string_data_becomes_data() {
        let secret = created(
            &Secret,
            json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}}),
        );
        assert_eq!(
            secret,
            json!({"type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}})
        );
    }

    #[test]
    fn secrets_are_checked() {
        for (object, expect) in [
            (json!({"stringData": {"a": "b"}}), ""),
            (
                json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
                "data[tls.key]: Required value",
            ),
            (
                json!({"type": "kubernetes.io/ssh-auth"}),
                "data[ssh-privatekey]: Required value",
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                "[data[username]: Required value, data[password]: Required value]",
            ),
            (
                json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}),
                "",
            ),
            (
                json!({"type": "kubernetes.io/service-account-token"}),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
        ] {
            assert_eq!(create_errors(&Secret, object), expect);
        }
    }

    #[test]
    fn type_is_immutable() {
        let old = created(&Secret, json!({}));
        assert_eq!(
            update_errors(&Secret, json!({"type": "x"}), &old),
            "type: Invalid value: \"x\": field is immutable"
        );
    }

    #[test]
    fn rows_count_keys() {
        let object = json!({"metadata": {"name": "a"}, "type": "Opaque", "data": {"a": ""}});
        assert_eq!(
            json!(Secret.row(&object, 0)),
            json!(["a", "Opaque", 1, "<unknown>"])
        );
        assert_eq!(Secret.field(&object, "type"), "Opaque");
    }
}
