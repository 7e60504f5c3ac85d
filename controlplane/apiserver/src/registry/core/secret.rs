//! Secret: data that only few may read.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of Secrets.
pub struct Secret;

static INFO: ResourceInfo =
    ResourceInfo { kind: "Secret", plural: "secrets", singular: "secret", ..super::V1 };

static COLUMNS: &[Column] = &[
    NAME,
    text("Type", "Used to facilitate programmatic handling of secret data."),
    text("Data", "Data contains the secret data."),
    AGE,
];

impl Strategy for Secret {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn field(&self, object: &Value, path: &str) -> String {
        if path == "type" { cells::string(&object["type"]).to_owned() } else { String::new() }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        vec![
            cells::name(object),
            cells::string(&object["type"]).into(),
            cells::len(&object["data"]).into(),
            cells::age(object, now_secs),
        ]
    }
}
