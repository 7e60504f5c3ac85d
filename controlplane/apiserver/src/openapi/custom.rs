//! Kinds that came at run time as OpenAPI schemas: what was given, and what every kind has.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder/builder.go` at v1.37.

use std::sync::Arc;

use coracle_api::schema::{self, Structural};
use coracle_registry::api_resource::ApiResource;
use serde_json::{Value, json};

use super::META;
use crate::published::Definitions;

/// How the document of v2 refers to its parts.
const V2: &str = "#/definitions/";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// What OpenAPI tells of a kind with this schema.
pub(crate) fn definitions(info: &Arc<ApiResource>, schema: &Arc<Structural>) -> Definitions {
    let mut parts: Vec<&str> = info.group.split('.').rev().collect();
    parts.extend([&*info.version, &*info.kind]);
    let name = parts.join(".");
    let foreign = ["ObjectMeta", "ListMeta"]
        .iter()
        .filter_map(|name| schema::table().by_name(&format!("{META}{name}")));
    let (own, info, schema) = (name.clone(), Arc::clone(info), Arc::clone(schema));
    let schemas = move |prefix: &str| {
        let one = object(&info, schema.published(), prefix);
        let list = list(&info, &format!("{prefix}{own}"), prefix);
        vec![(own.clone(), one), (format!("{own}List"), list)]
    };
    Definitions {
        name,
        schemas: Box::new(schemas),
        foreign: foreign.collect(),
    }
}

fn object(info: &ApiResource, mut schema: Value, prefix: &str) -> Value {
    if prefix == V2 {
        as_v2(&mut schema);
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    add_every_object(&mut schema, prefix, "ObjectMeta");
    schema["x-kubernetes-group-version-kind"] = gvk(info, &info.kind);
    schema
}

/// Takes out what OpenAPI v2 cannot say. Clients that validate by it refuse what they do not
/// understand, so that where more is allowed than it can say, nothing is said.
///
/// Source: `ToStructuralOpenAPIV2` in
/// `k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2/conversion.go` at v1.37.
fn as_v2(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    let is = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let is_open = is("x-kubernetes-preserve-unknown-fields");
    let (is_nullable, is_either) = (is("nullable"), is("x-kubernetes-int-or-string"));
    for keyword in ["anyOf", "oneOf", "not", "nullable"] {
        map.remove(keyword);
    }
    if is_nullable || is_either {
        map.remove("type");
    }
    if is_nullable || is_open {
        for keyword in ["items", "properties", "additionalProperties"] {
            map.remove(keyword);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        map.get_mut(keyword).into_iter().for_each(as_v2);
    }
    if let Some(Value::Array(all)) = map.get_mut("allOf") {
        all.iter_mut().for_each(as_v2);
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(as_v2);
    }
}

fn list(info: &ApiResource, item: &str, prefix: &str) -> Value {
    let kind = format!("{}List", info.kind);
    let items = json!({"type": "array", "description": format!("List of {}.", info.plural), "items": {"$ref": item}});
    let mut schema = json!({
        "type": "object", "description": format!("{kind} is a list of {}", info.kind),
        "required": ["items"], "properties": {"items": items},
        "x-kubernetes-group-version-kind": gvk(info, &kind),
    });
    add_every_object(&mut schema, prefix, "ListMeta");
    schema
}

fn add_every_object(schema: &mut Value, prefix: &str, metadata: &str) {
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
    let reference = json!([{"$ref": format!("{prefix}{META}{metadata}")}]);
    schema["properties"]["metadata"] =
        json!({"description": "Standard object's metadata.", "allOf": reference});
}

fn gvk(info: &ApiResource, kind: &str) -> Value {
    json!([{"group": info.group, "version": info.version, "kind": kind}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_says_nothing_that_it_cannot_say() {
        let mut schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "nullable": true},
            "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "string"}}},
            "d": {"type": "array", "items": {"type": "string", "not": {"pattern": "^a"}}}}});
        as_v2(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
            "a": {}, "b": {"x-kubernetes-int-or-string": true},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "d": {"type": "array", "items": {"type": "string"}}})
        );
    }
}
