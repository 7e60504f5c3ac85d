//! Request bodies to JSON objects, along the schema table.
//!
//! JSON and YAML stream through the same visitor, protobuf through a reader of its own; all three
//! give the same object: fields that the type does not have are dropped, nulls too, quantities and
//! times are in canonical form. What a client should know of dropped or repeated fields becomes a
//! warning or, in strict mode, an error.
//!
//! Objects of kinds that came at run time go through the same visitor along their schema. What does
//! not fit its type there is for validation to say, as upstream has it; only metadata is typed.
//!
//! Not here: defaulting and validation of values (the registry's strategies).
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer`,
//! `k8s.io/apiserver/pkg/endpoints/handlers/create.go`.

mod bounds;
mod go_json;
mod protobuf;
mod refusal;
mod scalar;
mod visit;
mod yaml;
mod yaml_bounds;

use serde::{Deserialize, de::DeserializeSeed};
use serde_json::Value;

use self::{
    refusal::{cannot_be_handled, mismatch, not_registered, refuse},
    visit::{Context, Failure, ObjectSeed, Place},
};
use crate::{
    meta,
    resource::Gvk,
    schema::{NodeRef, Schema, Structural, Type, TypeRef, table},
    status::Status,
};

pub(crate) use self::go_json::syntax_error as json_syntax_error;

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentType {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl ContentType {
    /// Reads a `Content-Type` header, parameters aside. An empty one is JSON.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        match header.split(';').next().unwrap_or_default().trim() {
            "" | "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// What to do with unknown and duplicate fields: the `fieldValidation` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so in `Decoded::warnings`.
    #[default]
    Warn,
    /// Refuse the body with 400.
    Strict,
}

impl FieldValidation {
    /// Reads the query parameter; empty is `Warn`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// A decoded object and what the client should be warned of.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object, pruned of unknown fields and nulls, with `apiVersion` and `kind`.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// What came out of one of the formats.
struct Parsed {
    object: Value,
    /// `apiVersion` and `kind` as the body gives them.
    api_version: String,
    kind: String,
    strict: Vec<String>,
}

impl Parsed {
    fn new(object: Value, context: Context) -> Self {
        let text = |key: &str| meta::get_str(&object, &[key]).to_owned();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            strict: context.strict,
            object,
        }
    }
}

/// What a text says of itself. The rest of it is skipped, not built.
#[derive(Deserialize)]
struct TypeMeta {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// Decodes a body that should hold an object of `expected`, a kind of the table. A body without
/// `apiVersion` and `kind` is taken to be one.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode(
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let schema = Schema::BuiltIn(known(expected)?);
    decode_along(&schema, body, content, expected, validation)
}

/// As [`decode`], for a kind with this schema.
///
/// # Errors
/// 400 in upstream's words; 415 for protobuf of a kind that came at run time.
pub fn decode_along(
    schema: &Schema,
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let parsed = match schema {
        Schema::BuiltIn(ty) => parse(body, content, *ty, validation),
        Schema::Structural(_) if content == ContentType::Protobuf => {
            let accepted = ["application/json", "application/yaml"];
            return Err(Status::unsupported_media_type(&accepted));
        }
        Schema::Structural(schema) => parse_custom(body, content, schema, validation),
    };
    let parsed = parsed.map_err(|failure| refuse(failure, body, content, expected))?;
    if let Some(status) = mismatch(&parsed.api_version, &parsed.kind, expected) {
        return Err(status);
    }
    finish(parsed, expected, validation)
}

/// Decodes an options object such as `DeleteOptions`, which may name any group; an empty body gives
/// `None`.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode_options(
    body: &[u8],
    content: ContentType,
    kind: &str,
) -> Result<Option<Value>, Status> {
    if body.is_empty() {
        return Ok(None);
    }
    let expected = Gvk::new("meta.k8s.io", "v1", kind);
    let ty = known(&expected)?;
    let parsed = parse(body, content, ty, FieldValidation::Ignore)
        .map_err(|failure| refuse(failure, body, content, &expected))?;
    if !parsed.kind.is_empty() && parsed.kind != kind {
        return Err(mismatch("", &parsed.kind, &expected)
            .unwrap_or_else(|| Status::bad_request("unknown options")));
    }
    Ok(Some(parsed.object))
}

/// Brings an object that was built or patched here into the form of a decoded one: pruned,
/// canonical, of the right types.
///
/// # Errors
/// The text of what does not fit, without the sentence around it, as callers wrap it differently.
pub fn decode_value(
    object: &Value,
    ty: Type,
    validation: FieldValidation,
) -> Result<Decoded, String> {
    let mut context = Context::new(validation != FieldValidation::Ignore);
    match (ObjectSeed {
        context: &mut context,
        place: TypeRef::of(ty),
    })
    .deserialize(object)
    {
        Ok(_) if validation == FieldValidation::Strict && !context.strict.is_empty() => Err(
            format!("strict decoding error: {}", context.strict.join(", ")),
        ),
        Ok(object) => Ok(Decoded {
            object,
            warnings: context.strict,
        }),
        Err(error) => Err(context.mismatch.unwrap_or_else(|| error.to_string())),
    }
}

/// Whether a body that is JSON, but no object, such as a patch, may be given to a reader.
///
/// # Errors
/// 400 if it holds too many values.
pub fn check_json(body: &[u8]) -> Result<(), Status> {
    bounds::check_json(body).map_err(Status::bad_request)
}

fn known(gvk: &Gvk) -> Result<Type, Status> {
    table()
        .by_gvk(gvk)
        .ok_or_else(|| Status::bad_request(not_registered(gvk)))
}

fn parse(
    body: &[u8],
    content: ContentType,
    ty: Type,
    validation: FieldValidation,
) -> Result<Parsed, Failure> {
    match content {
        ContentType::Json => parse_json(body, TypeRef::of(ty), validation),
        ContentType::Yaml => parse_yaml(body, TypeRef::of(ty), validation),
        ContentType::Protobuf => protobuf::parse(body, ty),
    }
}

fn parse_custom(
    body: &[u8],
    content: ContentType,
    schema: &Structural,
    validation: FieldValidation,
) -> Result<Parsed, Failure> {
    let root = NodeRef::of(schema);
    let mut parsed = match content {
        ContentType::Yaml => parse_yaml(body, root, validation),
        _ => parse_json(body, root, validation),
    }?;
    // Upstream reads, then decodes the metadata, then prunes, and sorts what it pruned.
    parsed.strict.sort_by_cached_key(|text| {
        let Some(path) = text.strip_prefix("unknown field ") else {
            return (0, String::new());
        };
        if path.starts_with("\"metadata.") {
            (1, String::new())
        } else {
            (2, path.to_owned())
        }
    });
    Ok(parsed)
}

fn parse_json<T: Place>(
    body: &[u8],
    place: T,
    validation: FieldValidation,
) -> Result<Parsed, Failure> {
    let mut context = Context::new(validation != FieldValidation::Ignore);
    bounds::check_json(body).map_err(Failure::Raw)?;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let found = ObjectSeed {
        context: &mut context,
        place,
    }
    .deserialize(&mut deserializer);
    let found = found.and_then(|object| deserializer.end().map(|()| object));
    let object = found.map_err(|error| match go_json::syntax_error(body) {
        Some(text) => Failure::Syntax(text),
        None => context.failure(error.to_string()),
    })?;
    Ok(Parsed::new(object, context))
}

fn parse_yaml<T: Place>(
    body: &[u8],
    place: T,
    validation: FieldValidation,
) -> Result<Parsed, Failure> {
    let mut context = Context::new(validation != FieldValidation::Ignore);
    let object = yaml::parse(body, place, &mut context)?;
    Ok(Parsed::new(object, context))
}

fn finish(parsed: Parsed, expected: &Gvk, validation: FieldValidation) -> Result<Decoded, Status> {
    let Parsed {
        mut object,
        api_version,
        kind,
        strict,
    } = parsed;
    if validation == FieldValidation::Strict && !strict.is_empty() {
        let why = format!("strict decoding error: {}", strict.join(", "));
        return Err(cannot_be_handled(&api_version, &kind, expected, &why));
    }
    if let Value::Object(map) = &mut object {
        if api_version.is_empty() {
            map.insert("apiVersion".to_owned(), expected.api_version().into());
        }
        if kind.is_empty() {
            map.insert("kind".to_owned(), expected.kind.as_str().into());
        }
    }
    Ok(Decoded {
        object,
        warnings: strict,
    })
}

#[cfg(test)]
mod tests;
