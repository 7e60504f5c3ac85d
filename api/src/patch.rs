//! The patch formats of the API: each a pure function from object and patch to object.
//!
//! A patched object is raw: it may hold nulls, unknown fields and wrong types. [`decode_patched`]
//! brings it back into the form of a decoded one.

pub mod apply;
pub mod json;
pub mod merge;
pub mod strategic;

use serde_json::Value;

use crate::{
    decode::{Decoded, FieldValidation, decode_value},
    resource::Gvk,
    schema::Type,
    status::{Details, FieldErrors, Reason, Status},
};

/// Prunes a patched object and checks its types.
///
/// # Errors
/// 422 as upstream: ` "" is invalid: patch: Invalid value: "{...}": json: cannot unmarshal ...`.
pub fn decode_patched(
    object: &Value,
    ty: Type,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    decode_value(object, ty, validation).map_err(|why| {
        let mut errors = FieldErrors::new();
        errors.invalid("patch", &object.to_string().into(), why);
        Status::invalid(&Gvk::default(), "", errors)
    })
}

/// 422 for a well-formed patch that does not fit the object; upstream does not say why either.
fn does_not_fit() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::new(422, Reason::Invalid, message).with_details(Details::default())
}

/// Reads a patch that must be a JSON object.
fn read_object(patch: &[u8]) -> Result<serde_json::Map<String, Value>, Status> {
    match serde_json::from_slice(patch) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                _ => return Ok(serde_json::Map::new()),
            };
            let text = format!(
                "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            );
            Err(Status::bad_request(format!("error decoding patch: {text}")))
        }
        Err(error) => {
            let text = crate::decode::json_syntax_error(patch).unwrap_or_else(|| error.to_string());
            Err(Status::bad_request(format!("error decoding patch: {text}")))
        }
    }
}
