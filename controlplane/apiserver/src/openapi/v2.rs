//! OpenAPI v2, for clients that are older than v3: one document of everything, as JSON or in
//! gnostic's protobuf form.
//!
//! Rewritten from v3, path by path and type by type, so that no tree of the whole is ever in
//! memory. What is kept is its compressed form, a tenth of it.
//!
//! Source: `k8s.io/kube-openapi/pkg/handler` and `pkg/builder` at v1.37.

use coracle_api::schema;
use serde_json::{Map, Value, json};

use super::{gnostic, made, own_schemas, paths, roots};
use crate::published::{Compressed, Published, Shown};

const REF_PREFIX: &str = "#/definitions/";
/// Schemas say in v2 what they say in v3 in other words.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const OBJECTS: [&str; 2] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// Which encoding of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

/// How the protobuf form is called in `Accept`: first as it always was, then as MIME allows.
const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

impl Form {
    /// What an `Accept` header asks for; `None` is 406.
    pub(crate) fn negotiate(accept: &str) -> Option<Self> {
        if accept.trim().is_empty() {
            return Some(Self::Json);
        }
        accept.split(',').find_map(|range| {
            match range.split(';').next().unwrap_or_default().trim() {
                "application/json" | "application/*" | "*/*" => Some(Self::Json),
                name if PROTOBUF.contains(&name) => Some(Self::Protobuf),
                _ => None,
            }
        })
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => PROTOBUF[1],
        }
    }
}

/// The whole document, made when it is first asked for.
pub(crate) fn cached(published: &Published, form: Form) -> &Compressed {
    let kept = match form {
        Form::Json => &published.openapi_v2.json,
        Form::Protobuf => &published.openapi_v2.protobuf,
    };
    made(kept, || Compressed::of(&document(published, form)))
}

/// The whole document.
fn document(published: &Published, form: Form) -> Vec<u8> {
    match form {
        Form::Json => json_document(published),
        Form::Protobuf => gnostic::document(&frame(), paths(published), definitions(published)),
    }
}

/// Everything but paths and definitions.
fn frame() -> Value {
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
        }},
        "security": [{"BearerToken": []}],
    })
}

fn json_document(published: &Published) -> Vec<u8> {
    let mut out = frame().to_string().into_bytes();
    out.pop();
    append_members(&mut out, "paths", paths(published));
    append_members(&mut out, "definitions", definitions(published));
    out.push(b'}');
    out
}

fn append_members(out: &mut Vec<u8>, of: &str, members: impl Iterator<Item = (String, Value)>) {
    out.extend_from_slice(format!(",\"{of}\":{{").as_bytes());
    for (index, (name, value)) in members.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        out.extend_from_slice(format!("{comma}{}:{value}", Value::from(name)).as_bytes());
    }
    out.push(b'}');
}

/// Every path with its operations.
fn paths(published: &Published) -> impl Iterator<Item = (String, Value)> {
    published.resources.iter().flat_map(|shown| {
        let mut of_one = Map::new();
        paths::of_resource(&mut of_one, shown);
        of_one
            .into_iter()
            .map(|(path, item)| (path, path_item(item)))
    })
}

/// Every type that an operation refers to, or that another type does.
fn definitions(published: &Published) -> impl Iterator<Item = (String, Value)> {
    let all: Vec<&Shown> = published.resources.iter().collect();
    // Handles of two bytes each: the schemas are made one after the other.
    let types = schema::closure(&roots(&all)).into_iter();
    let of_table = types.map(|ty| {
        (
            ty.name().to_owned(),
            schema::openapi_v3_schema(ty, REF_PREFIX),
        )
    });
    of_table
        .chain(own_schemas(&all, REF_PREFIX))
        .map(|(name, schema)| {
            let definition = definition(&name, schema);
            (name, definition)
        })
}

fn definition(name: &str, mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(property);
    }
    simplify(&mut schema);
    let Some(members) = schema.as_object_mut() else {
        return schema;
    };
    match name {
        QUANTITY => drop(members.insert("type".to_owned(), "string".into())),
        INT_OR_STRING => drop(members.insert("type".to_owned(), "string".into())),
        name if OBJECTS.contains(&name) => drop(members.insert("type".to_owned(), "object".into())),
        _ => {}
    }
    schema
}

/// Takes out what v2 has no words for, also in what schemas that came at run time hold within.
fn simplify(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    for unknown in ["oneOf", "anyOf", "allOf", "not", "nullable"] {
        members.remove(unknown);
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(simplify);
    }
    for within in ["items", "additionalProperties"] {
        members.get_mut(within).into_iter().for_each(simplify);
    }
}

/// In v2 a reference stands beside other members, and defaults are not published.
fn property(property: &mut Value) {
    let Some(members) = property.as_object_mut() else {
        return;
    };
    members.remove("default");
    if let Some(Value::Array(all_of)) = members.remove("allOf")
        && let Some(Value::Object(reference)) = all_of.into_iter().next()
    {
        members.extend(reference);
    }
}

fn path_item(mut item: Value) -> Value {
    for (name, member) in item.as_object_mut().into_iter().flatten() {
        if name == "parameters" {
            parameters(member);
        } else {
            *member = operation(member.take());
        }
    }
    item
}

fn operation(mut operation: Value) -> Value {
    let mut produces: Vec<String> = Vec::new();
    for (_, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let Some(content) = response
            .as_object_mut()
            .and_then(|response| response.remove("content"))
        else {
            continue;
        };
        if let Value::Object(content) = content {
            for (media_type, mut content) in content {
                // One for all media types: v2 has no place for more.
                response["schema"] = referring(content["schema"].take());
                if !produces.contains(&media_type) {
                    produces.push(media_type);
                }
            }
        }
    }
    if operation["x-kubernetes-action"] == "list" {
        produces.push("application/json;stream=watch".to_owned());
    }
    let mut consumes = vec!["*/*".to_owned()];
    if let Some(Value::Object(mut body)) = operation
        .as_object_mut()
        .and_then(|members| members.remove("requestBody"))
    {
        let mut parameter = json!({"name": "body", "in": "body"});
        if let Some(required) = body.remove("required") {
            parameter["required"] = required;
        }
        if let Some(Value::Object(content)) = body.remove("content") {
            consumes = content.keys().cloned().collect();
            if let Some(mut content) = content.into_iter().next().map(|(_, content)| content) {
                parameter["schema"] = referring(content["schema"].take());
            }
        }
        match operation["parameters"].as_array_mut() {
            Some(others) => others.insert(0, parameter),
            None => operation["parameters"] = json!([parameter]),
        }
    }
    if let Some(all) = operation.get_mut("parameters") {
        parameters(all);
    }
    operation["produces"] = produces.into();
    operation["consumes"] = consumes.into();
    operation["schemes"] = json!(["https"]);
    operation
}

/// Parameters of v2 have their type beside their name, not in a schema; the body alone has one.
fn parameters(parameters: &mut Value) {
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        if parameter["in"] == "body" {
            continue;
        }
        let Some(members) = parameter.as_object_mut() else {
            continue;
        };
        if let Some(Value::Object(schema)) = members.remove("schema") {
            members.extend(schema);
        }
    }
}

/// A schema that refers to a definition, not to a component.
fn referring(schema: Value) -> Value {
    match schema["$ref"]
        .as_str()
        .and_then(|reference| reference.strip_prefix(super::REF_PREFIX))
    {
        Some(name) => json!({"$ref": format!("{REF_PREFIX}{name}")}),
        None => schema,
    }
}

#[cfg(test)]
mod tests;
