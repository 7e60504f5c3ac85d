//! Kinds that came at run time as OpenAPI schemas: what was given, and what every kind has.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder/builder.go` at v1.37.

use std::sync::Arc;

use coracle_api::schema::{self, Structural};
use coracle_registry::api_resource::ApiResource;
use serde_json::{Value, json};

use super::META;
use crate::published::Definitions;

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

fn object(info: &ApiResource, published: &Value, prefix: &str) -> Value {
    let mut schema = published.clone();
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    add_every_object(&mut schema, prefix, "ObjectMeta");
    schema["x-kubernetes-group-version-kind"] = gvk(info, &info.kind);
    schema
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
