//! OpenAPI v2, for clients that are older than v3: one document of everything, as JSON or in
//! gnostic's protobuf form.
//!
//! Rewritten from v3, path by path and type by type, and kept in the same parts, compressed.
//!
//! Source: `k8s.io/kube-openapi/pkg/handler` and `pkg/builder` at v1.37.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{gnostic, parts};
use crate::{
    pieced::{self, Document, Joining, Packed, Source},
    published::Published,
};

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

/// How each form is written.
const JSON: parts::Form = parts::Form {
    name: "v2",
    prefix: REF_PREFIX,
    piece: |pieces| &pieces.v2,
    paths: |all| parts::json(&mut path_items(all)),
    schemas: |all| parts::json(&mut definitions(all)),
};
const GNOSTIC: parts::Form = parts::Form {
    name: "v2 protobuf",
    piece: |pieces| &pieces.v2_protobuf,
    paths: |all| gnostic::paths(path_items(all)),
    schemas: |all| gnostic::definitions(definitions(all)),
    ..JSON
};

/// The whole document, made when it is first asked for.
pub(crate) fn cached(published: &Published, form: Form) -> &Document {
    let kept = match form {
        Form::Json => &published.openapi_v2.json,
        Form::Protobuf => &published.openapi_v2.protobuf,
    };
    match kept.get() {
        Some(known) => known,
        None => {
            let document = document(published, form);
            kept.get_or_init(|| document)
        }
    }
}

fn document(published: &Published, form: Form) -> Document {
    let written = match form {
        Form::Json => &JSON,
        Form::Protobuf => &GNOSTIC,
    };
    let (all, frame) = (published.resources.iter().collect(), frame());
    let [paths, definitions] = parts::of(published, all, written);
    let mut document = Joining::default();
    match form {
        Form::Json => {
            let begin = frame.to_string();
            document.text(begin.strip_suffix('}').unwrap_or(&begin).as_bytes());
            document.text(br#","paths":{"#);
            document.members(&paths);
            document.text(br#"},"definitions":{"#);
            document.members(&definitions);
            document.text(b"}}");
        }
        Form::Protobuf => {
            let packed = |all: &[Source<'_>]| all.iter().map(Source::packed).collect::<Vec<_>>();
            let [paths, definitions] = [packed(&paths), packed(&definitions)];
            let length = |all: &[Arc<Packed>]| all.iter().map(|part| part.length).sum();
            let [begin, between, end] =
                gnostic::around(&frame, length(&paths), length(&definitions));
            document.text(&begin);
            document.parts(paths);
            document.text(&between);
            document.parts(definitions);
            document.text(&end);
        }
    }
    let all = paths.iter().chain(&definitions);
    document.finish(&pieced::hash(frame.to_string().as_bytes(), all))
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

/// Every path with its operations, in the words of v2.
fn path_items(all: parts::Members<'_>) -> impl Iterator<Item = (String, Value)> {
    all.map(|(path, item)| (path, path_item(item)))
}

fn definitions(all: parts::Members<'_>) -> impl Iterator<Item = (String, Value)> {
    all.map(|(name, schema)| {
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
