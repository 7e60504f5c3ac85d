//! ConfigMap: plain configuration data.

use serde_json::Value;

use crate::registry::cells::{self, AGE, NAME, text};
use crate::registry::strategy::{Column, ResourceInfo, Strategy};

/// The strategy of ConfigMaps.
pub struct ConfigMap;

static INFO: ResourceInfo = ResourceInfo {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    ..super::V1
};

static COLUMNS: &[Column] = &[NAME, text("Data", "Data contains the configuration data."), AGE];

impl Strategy for ConfigMap {
    fn resource(&self) -> &'static ResourceInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now_secs: i64) -> Vec<Value> {
        let data = cells::len(&object["data"]) + cells::len(&object["binaryData"]);
        vec![cells::name(object), data.into(), cells::age(object, now_secs)]
    }
}
