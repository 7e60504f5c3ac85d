//! Schemas of OpenAPI, version 3, as JSON.

use serde_json::Value as Json;

use super::{build::Schema, decl::ListKind};

fn lend(json: &Json) -> &dyn Schema {
    json
}

/// `additionalProperties` may be a boolean, which says nothing of values.
fn below<'a>(json: &'a Json, keyword: &str) -> Option<&'a dyn Schema> {
    json.get(keyword)
        .filter(|schema| schema.is_object())
        .map(lend)
}

impl Schema for Json {
    fn type_name(&self) -> &str {
        self["type"].as_str().unwrap_or("")
    }

    fn format(&self) -> &str {
        self["format"].as_str().unwrap_or("")
    }

    fn items(&self) -> Option<&dyn Schema> {
        below(self, "items")
    }

    fn properties(&self) -> Vec<(&str, &dyn Schema)> {
        let properties = self["properties"].as_object().into_iter().flatten();
        properties
            .map(|(name, schema)| (&**name, lend(schema)))
            .collect()
    }

    fn additional_properties(&self) -> Option<&dyn Schema> {
        below(self, "additionalProperties")
    }

    fn required(&self) -> Vec<&str> {
        let required = self["required"].as_array().into_iter().flatten();
        required.filter_map(Json::as_str).collect()
    }

    fn default_value(&self) -> Option<&Json> {
        self.get("default").filter(|default| !default.is_null())
    }

    fn enumeration(&self) -> Vec<&Json> {
        self["enum"].as_array().into_iter().flatten().collect()
    }

    fn max_length(&self) -> Option<i64> {
        self["maxLength"].as_i64()
    }

    fn max_items(&self) -> Option<i64> {
        self["maxItems"].as_i64()
    }

    fn max_properties(&self) -> Option<i64> {
        self["maxProperties"].as_i64()
    }

    fn is_nullable(&self) -> bool {
        self["nullable"] == true
    }

    fn is_int_or_string(&self) -> bool {
        self["x-kubernetes-int-or-string"] == true
    }

    fn is_embedded_resource(&self) -> bool {
        self["x-kubernetes-embedded-resource"] == true
    }

    fn list_kind(&self) -> ListKind {
        match self["x-kubernetes-list-type"].as_str() {
            Some("set") => ListKind::Set,
            Some("map") => {
                let keys = self["x-kubernetes-list-map-keys"].as_array();
                let keys = keys.into_iter().flatten().filter_map(Json::as_str);
                ListKind::Map(keys.map(str::to_owned).collect())
            }
            _ => ListKind::Atomic,
        }
    }
}
