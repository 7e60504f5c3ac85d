//! Objects within objects: `x-kubernetes-embedded-resource`.
//!
//! Not here: their metadata, which decoding has brought in form.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta/validation.go` at v1.37.

use serde_json::{Map, Value};

use crate::{
    schema::{Additional, Node, Schema},
    violation::{Violations, child},
};

impl Schema {
    /// What is wrong with the types of objects within.
    #[must_use]
    pub fn validate_embedded(&self, object: &Value) -> Violations {
        let mut found = Violations::default();
        self.root.check_embedded(object, "", &mut found);
        found
    }
}

impl Node {
    fn check_embedded(&self, value: &Value, path: &str, found: &mut Violations) {
        match value {
            Value::Object(map) => {
                if self.is_embedded {
                    check_types(map, path, found);
                }
                for (name, value) in map {
                    if let Some(node) = self.properties.get(name) {
                        node.check_embedded(value, &child(path, name), found);
                    } else if let Additional::Of(node) = &self.additional {
                        node.check_embedded(value, &format!("{path}[{name}]"), found);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, item) in list.iter().enumerate() {
                    items.check_embedded(item, &format!("{path}[{at}]"), found);
                }
            }
            _ => {}
        }
    }
}

fn check_types(map: &Map<String, Value>, path: &str, found: &mut Violations) {
    for name in ["apiVersion", "kind"] {
        let path = child(path, name);
        let what = match map.get(name) {
            None => {
                found.required(&path, "must not be empty");
                continue;
            }
            Some(Value::String(text)) if text.is_empty() => "must not be empty",
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let what = format!("unexpected GroupVersion string: {text}");
                found.invalid(&path, &map[name], what);
                continue;
            }
            Some(Value::String(_)) => continue,
            Some(_) => "must be a string",
        };
        found.invalid(&path, &map[name], what);
    }
}
