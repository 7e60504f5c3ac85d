//! Objects within objects: `x-kubernetes-embedded-resource`.
//!
//! Not here: how kinds may be called, and their metadata, which decoding has brought in form.
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
        self.each_embedded(object, &mut |path, map| check_types(map, path, &mut found));
        found
    }

    /// Calls `visit` with the path of each object within, and with itself.
    pub fn each_embedded(&self, object: &Value, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
        self.root.each_embedded(object, "", visit);
    }
}

impl Node {
    fn each_embedded(
        &self,
        value: &Value,
        path: &str,
        visit: &mut dyn FnMut(&str, &Map<String, Value>),
    ) {
        match value {
            Value::Object(map) => {
                if self.is_embedded {
                    visit(path, map);
                }
                for (name, value) in map {
                    if let Some(node) = self.properties.get(name) {
                        node.each_embedded(value, &child(path, name), visit);
                    } else if let Additional::Of(node) = &self.additional {
                        node.each_embedded(value, &format!("{path}[{name}]"), visit);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &self.items else { return };
                for (at, item) in list.iter().enumerate() {
                    items.each_embedded(item, &format!("{path}[{at}]"), visit);
                }
            }
            _ => {}
        }
    }
}

fn check_types(map: &Map<String, Value>, path: &str, found: &mut Violations) {
    for name in ["apiVersion", "kind"] {
        let path = child(path, name);
        match map.get(name) {
            None => found.required(&path, ""),
            Some(Value::String(text)) if text.is_empty() => found.required(&path, ""),
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let what = format!("unexpected GroupVersion string: {text}");
                found.invalid(&path, &map[name], what);
            }
            Some(Value::String(_)) => {}
            Some(other) => found.invalid(&path, other, "must be a string"),
        }
    }
}
