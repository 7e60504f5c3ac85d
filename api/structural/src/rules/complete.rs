//! What alternatives speak of is there outside of them.
//!
//! Source: `validateStructuralCompleteness` in
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/complete.go` at v1.37.

use serde_json::Value;

use crate::violation::{Violations, child};

/// Fields that only alternatives have.
pub(super) fn check(schema: &Value, path: &str) -> Violations {
    let mut found = Violations::default();
    alternatives(schema, schema, path, path, &mut found);
    found
}

fn alternatives(within: &Value, schema: &Value, path: &str, own: &str, found: &mut Violations) {
    if let Some(not) = within.get("not").filter(|not| not.is_object()) {
        complete(not, Some(schema), path, &child(own, "not"), found);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (at, one) in within[name].as_array().into_iter().flatten().enumerate() {
            let own = child(own, &format!("{name}[{at}]"));
            complete(one, Some(schema), path, &own, found);
        }
    }
}

fn complete(one: &Value, schema: Option<&Value>, path: &str, own: &str, found: &mut Violations) {
    let Some(schema) = schema else {
        return found.required(path, &format!("because it is defined in {own}"));
    };
    alternatives(one, schema, path, own, found);
    if let Some(items) = one.get("items").filter(|items| items.is_object()) {
        let other = schema.get("items");
        complete(
            items,
            other,
            &child(path, "items"),
            &child(own, "items"),
            found,
        );
    }
    for (name, property) in one["properties"].as_object().into_iter().flatten() {
        let step = format!("properties[{name}]");
        let other = schema["properties"].get(name);
        complete(
            property,
            other,
            &child(path, &step),
            &child(own, &step),
            found,
        );
    }
}
