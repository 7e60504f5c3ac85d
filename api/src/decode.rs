//! Request bodies to JSON objects, along the schema table.
//!
//! JSON and YAML stream through the same visitor, protobuf through a reader of its own; all three
//! give the same object: fields that the type does not have are dropped, nulls too, quantities and
//! times are in canonical form. What a client should know of dropped or repeated fields becomes a
//! warning or, in strict mode, an error.
//!
//! Objects of kinds that came at run time are read whole and pruned by their schema afterwards
//! (`custom`).
//!
//! Not here: defaulting and validation of values (the registry's strategies).
//!
//! Source: `k8s.io/apimachinery/pkg/runtime/serializer`,
//! `k8s.io/apiserver/pkg/endpoints/handlers/create.go`.

mod bounds;
mod custom;
mod go_json;
mod protobuf;
mod scalar;
mod visit;
mod yaml;
mod yaml_bounds;

use serde::{Deserialize, de::DeserializeSeed};
use serde_json::Value;

use self::visit::{Context, Failure, ObjectSeed};
use crate::{
    meta,
    resource::Gvk,
    schema::{Type, table},
    status::{Status, quote},
};

pub use self::custom::decode_custom;
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

/// What a text says of itself. The rest of it is skipped, not built.
#[derive(Deserialize)]
struct TypeMeta {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// Decodes a body that should hold an object of `expected`. A body without `apiVersion` and `kind`
/// is taken to be one.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode(
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let ty = known(expected)?;
    let parsed = parse(body, content, Some(ty), validation)
        .map_err(|failure| refuse(failure, body, content, expected))?;
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
    let parsed = parse(body, content, Some(ty), FieldValidation::Ignore)
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
        ty: Some(ty),
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

fn not_registered(gvk: &Gvk) -> String {
    let version = quote(&gvk.api_version());
    let kind = quote(&gvk.kind);
    format!(
        "no kind {kind} is registered for version {version} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )
}

/// An object of type `ty`; without a type all of it stays.
fn parse(
    body: &[u8],
    content: ContentType,
    ty: Option<Type>,
    validation: FieldValidation,
) -> Result<Parsed, Failure> {
    let mut context = Context::new(validation != FieldValidation::Ignore);
    let object = match content {
        ContentType::Json => {
            bounds::check_json(body).map_err(Failure::Raw)?;
            let mut deserializer = serde_json::Deserializer::from_slice(body);
            let found = ObjectSeed {
                context: &mut context,
                ty,
            }
            .deserialize(&mut deserializer);
            let found = found.and_then(|object| deserializer.end().map(|()| object));
            found.map_err(|error| match go_json::syntax_error(body) {
                Some(text) => Failure::Syntax(text),
                None => context.failure(error.to_string()),
            })?
        }
        ContentType::Yaml => yaml::parse(body, ty, &mut context)?,
        ContentType::Protobuf => match ty {
            Some(ty) => return protobuf::parse(body, ty),
            None => return Err(Failure::Raw("the kind has no protobuf form".to_owned())),
        },
    };
    let text = |key: &str| meta::get_str(&object, &[key]).to_owned();
    Ok(Parsed {
        api_version: text("apiVersion"),
        kind: text("kind"),
        strict: context.strict,
        object,
    })
}

/// The answer to a body that could not be decoded. Slow: it looks at the body again.
fn refuse(failure: Failure, body: &[u8], content: ContentType, expected: &Gvk) -> Status {
    let why = match failure {
        Failure::Syntax(text) => return unrecognized(&text, body, content, expected),
        Failure::NoObject(value) => {
            let ty = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            let text = format!("json: cannot unmarshal {value} into Go value of type {ty}");
            return unrecognized(&text, body, content, expected);
        }
        Failure::Raw(text) => return unrecognized_raw(&text, body, expected),
        Failure::Mismatch(text) => text,
    };
    let (api_version, kind) = match content {
        ContentType::Json => go_json::type_meta(body),
        ContentType::Yaml => yaml::type_meta(body),
        ContentType::Protobuf => None,
    }
    .unwrap_or_default();
    // The wrong kind is the better explanation for a field that does not fit.
    mismatch(&api_version, &kind, expected)
        .unwrap_or_else(|| cannot_be_handled(&api_version, &kind, expected, &why))
}

fn unrecognized(why: &str, body: &[u8], content: ContentType, expected: &Gvk) -> Status {
    match content {
        ContentType::Json => unrecognized_raw(
            &format!("couldn't get version/kind; json parse error: {why}"),
            body,
            expected,
        ),
        _ => unrecognized_raw(why, body, expected),
    }
}

fn unrecognized_raw(why: &str, body: &[u8], expected: &Gvk) -> Status {
    const SHOWN: usize = 30;
    let shown = &body[..body.len().min(SHOWN)];
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => format!(
            "{}{more}",
            shown.iter().map(|b| format!("{b:02x}")).collect::<String>()
        ),
    };
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({summary})",
        expected.kind
    ))
}

fn cannot_be_handled(api_version: &str, kind: &str, expected: &Gvk, why: &str) -> Status {
    let kind = if kind.is_empty() {
        expected.kind.as_str()
    } else {
        kind
    };
    let given = Gvk::from_api_version(api_version, kind);
    let version = if given.version.is_empty() {
        expected.version.as_str()
    } else {
        given.version.as_str()
    };
    Status::bad_request(format!(
        "{kind} in version {} cannot be handled as a {}: {why}",
        quote(version),
        expected.kind
    ))
}

/// The answer to a body of another kind than the endpoint's.
fn mismatch(api_version: &str, kind: &str, expected: &Gvk) -> Option<Status> {
    let mut given = Gvk::from_api_version(
        api_version,
        if kind.is_empty() {
            &expected.kind
        } else {
            kind
        },
    );
    if api_version.is_empty() {
        given.group.clone_from(&expected.group);
        given.version.clone_from(&expected.version);
    }
    if given == *expected {
        return None;
    }
    if table().by_gvk(&given).is_none() {
        return Some(cannot_be_handled(
            api_version,
            kind,
            expected,
            &not_registered(&given),
        ));
    }
    if given.kind != expected.kind {
        let package = if expected.group.is_empty() {
            "core"
        } else {
            expected.group.split('.').next().unwrap_or("")
        };
        let why = format!(
            "converting ({}.{}) to ({package}.{}): unknown conversion",
            given.version, given.kind, expected.kind
        );
        return Some(cannot_be_handled(api_version, kind, expected, &why));
    }
    Some(Status::bad_request(format!(
        "the API version in the data ({}) does not match the expected API version ({})",
        given.api_version(),
        expected.api_version()
    )))
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
