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
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_META: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_META: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// What OpenAPI tells of a kind with this schema.
pub(crate) fn definitions(info: &Arc<ApiResource>, schema: &Arc<Structural>) -> Definitions {
    let parts: Vec<&str> = info.group.split('.').rev().collect();
    let named = |kind: &str| format!("{}.{}.{kind}", parts.join("."), info.version);
    let (name, list_name) = (named(&info.kind), named(&info.list_kind));
    let foreign = ["ObjectMeta", "ListMeta"]
        .iter()
        .filter_map(|name| schema::table().by_name(&format!("{META}{name}")));
    let (own, of_list) = (name.clone(), list_name.clone());
    let (info, schema) = (Arc::clone(info), Arc::clone(schema));
    let schemas = move |prefix: &str| {
        let one = object(&info, schema.published(), prefix);
        let list = list(&info, &format!("{prefix}{own}"), prefix);
        vec![(own.clone(), one), (of_list.clone(), list)]
    };
    Definitions {
        names: vec![name.clone(), list_name.clone()],
        name,
        list_name,
        schemas: Box::new(schemas),
        foreign: foreign.collect(),
    }
}

fn object(info: &ApiResource, mut schema: Value, prefix: &str) -> Value {
    // Clients that validate by v2 refuse what is not described as soon as anything is.
    if prefix == V2 && is(&schema, PRESERVE) {
        let gvk = gvk(info, &info.kind);
        return json!({"type": "object", "x-kubernetes-group-version-kind": gvk});
    }
    unfold(&mut schema);
    if prefix == V2 {
        as_v2(&mut schema);
    }
    add_every_object(&mut schema, prefix, "ObjectMeta", OBJECT_META);
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
    add_embedded(&mut schema, prefix);
    schema["x-kubernetes-group-version-kind"] = gvk(info, &info.kind);
    schema
}

fn is(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

/// The schemas that a schema has of what is in its values.
fn children(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let map = schema.as_object_mut().into_iter().flatten();
    let below = map.filter_map(|(keyword, value)| match (keyword.as_str(), value) {
        ("items" | "additionalProperties", value @ Value::Object(_)) => Some(vec![value]),
        ("properties", Value::Object(fields)) => Some(fields.values_mut().collect()),
        _ => None,
    });
    below.flatten()
}

/// Says in words that every client knows what `x-kubernetes-int-or-string` means.
///
/// Source: `Unfold` in `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/unfold.go` at v1.37.
fn unfold(schema: &mut Value) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let is_said = schema["anyOf"] == either || schema["allOf"][0]["anyOf"] == either;
    if is(schema, "x-kubernetes-int-or-string") && !is_said {
        if schema["anyOf"].is_null() {
            schema["anyOf"] = either;
        } else {
            let mut all = vec![json!({"anyOf": either})];
            all.extend(schema["allOf"].as_array().into_iter().flatten().cloned());
            schema["allOf"] = all.into();
        }
    }
    children(schema).for_each(unfold);
}

/// Takes out what OpenAPI v2 cannot say. Clients that validate by it refuse what they do not
/// understand, so that where more is allowed than it can say, nothing is said.
///
/// Source: `ToStructuralOpenAPIV2` in
/// `k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2/conversion.go` at v1.37.
fn as_v2(schema: &mut Value) {
    let (is_nullable, is_open) = (is(schema, "nullable"), is(schema, PRESERVE));
    let nullable: Vec<String> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, field)| is(field, "nullable"))
        .map(|(name, _)| name.clone())
        .collect();
    let has_nullables = is(&schema["additionalProperties"], "nullable");
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    for keyword in ["allOf", "anyOf", "oneOf", "not", "nullable"] {
        map.remove(keyword);
    }
    if is_nullable || is_open {
        map.remove("items");
        map.remove("properties");
    }
    let is_unknown_list =
        map.get("type").is_some_and(|kind| kind == "array") && !map.contains_key("items");
    if is_nullable || is_unknown_list {
        map.remove("type");
    }
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|name| !has_nullables && !nullable.iter().any(|field| name == field));
        if required.is_empty() {
            map.remove("required");
        }
    }
    children(schema).for_each(as_v2);
}

/// What objects within objects have, whatever is said of them.
fn add_embedded(schema: &mut Value, prefix: &str) {
    children(schema).for_each(|child| add_embedded(child, prefix));
    let is_open = prefix == V2 && is(schema, PRESERVE);
    if is_open || !is(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    add_every_object(schema, prefix, "ObjectMeta", OBJECT_META);
    schema["properties"]["apiVersion"] =
        json!({"type": "string", "description": EMBEDDED_API_VERSION});
    schema["properties"]["kind"] = json!({"type": "string", "description": EMBEDDED_KIND});
    if !schema["required"].is_array() {
        schema["required"] = json!([]);
    }
    if let Some(required) = schema["required"].as_array_mut() {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
    }
}

fn list(info: &ApiResource, item: &str, prefix: &str) -> Value {
    let kind = &*info.list_kind;
    let about = format!("List of {}. More info: {CONVENTIONS}", info.plural);
    let items = json!({"type": "array", "description": about, "items": {"$ref": item}});
    let mut schema = json!({
        "type": "object", "description": format!("{kind} is a list of {}", info.kind),
        "required": ["items"], "properties": {"items": items,
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND}},
        "x-kubernetes-group-version-kind": gvk(info, kind),
    });
    add_every_object(&mut schema, prefix, "ListMeta", LIST_META);
    schema
}

/// Metadata. In v3 a reference has nothing beside it.
fn add_every_object(schema: &mut Value, prefix: &str, metadata: &str, description: &str) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let reference = format!("{prefix}{META}{metadata}");
    schema["properties"]["metadata"] = if prefix == V2 {
        json!({"description": description, "$ref": reference})
    } else {
        json!({"description": description, "allOf": [{"$ref": reference}]})
    };
}

fn gvk(info: &ApiResource, kind: &str) -> Value {
    json!([{"group": info.group, "version": info.version, "kind": kind}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_says_nothing_that_it_cannot_say() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "string", "nullable": true},
            "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": {"type": "string"}}},
            "d": {"type": "array", "items": {"type": "string", "not": {"pattern": "^a"}}},
            "e": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": {"type": "object"}},
            "f": {"type": "object", "required": ["x"], "additionalProperties": {"type": "string", "nullable": true}},
            "g": {"type": "string", "allOf": [{"maxLength": 3}]}}});
        let mut v2 = schema;
        as_v2(&mut v2);
        assert_eq!(v2["required"], json!(["b"]));
        assert_eq!(
            v2["properties"],
            json!({
            "a": {}, "b": {"x-kubernetes-int-or-string": true},
            "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "d": {"type": "array", "items": {"type": "string"}},
            "e": {"x-kubernetes-preserve-unknown-fields": true},
            "f": {"type": "object", "additionalProperties": {}}, "g": {"type": "string"}})
        );
    }

    #[test]
    fn what_may_be_more_is_not_described_in_v2() {
        let info = ApiResource::new("example.org", "v1", "Widget", "widgets");
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {"type": "object"}}});
        let v2 = object(&info, open.clone(), V2);
        assert_eq!(
            (&v2["type"], v2.as_object().unwrap().len()),
            (&json!("object"), 2)
        );
        let v3 = object(&info, open, super::super::REF_PREFIX);
        let fields: Vec<&String> = v3["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["apiVersion", "kind", "metadata", "spec"]);
    }

    #[test]
    fn objects_within_objects_are_described() {
        let info = ApiResource::new("example.org", "v1", "Widget", "widgets");
        let within = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "required": ["apiVersion"], "properties": {"spec": {"type": "object"}}});
        let open =
            json!({"type": "object", "x-kubernetes-embedded-resource": true, PRESERVE: true});
        let schema = json!({"type": "object", "properties": {"within": within, "open": open,
            "port": {"x-kubernetes-int-or-string": true}}});
        for prefix in [V2, super::super::REF_PREFIX] {
            let told = object(&info, schema.clone(), prefix);
            let within = &told["properties"]["within"];
            assert_eq!(within["required"], json!(["apiVersion", "kind"]));
            let fields: Vec<&String> = within["properties"].as_object().unwrap().keys().collect();
            assert_eq!(fields, ["apiVersion", "kind", "metadata", "spec"]);
            let is_v2 = prefix == V2;
            let of_reference = &within["properties"]["metadata"];
            assert_eq!(of_reference["$ref"].is_string(), is_v2);
            assert_eq!(told["properties"]["open"]["properties"].is_null(), is_v2);
            assert_eq!(told["properties"]["port"]["anyOf"].is_null(), is_v2);
        }
    }
}
