//! Objects of kinds whose schema came at run time: read whole, then pruned. Their metadata is that
//! of every kind.
//!
//! What does not fit its type is for validation to say, as upstream has it; only metadata is typed
//! here.

use super::{
    ContentType, Decoded, FieldValidation, cannot_be_handled, decode_value, finish, mismatch,
    parse, refuse,
};
use crate::{
    resource::Gvk,
    schema::{self, Structural},
    status::Status,
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// As [`super::decode`], for an object of a kind with this schema.
///
/// # Errors
/// 400 in upstream's words; 415 for protobuf.
pub fn decode_custom(
    body: &[u8],
    content: ContentType,
    expected: &Gvk,
    schema: &Structural,
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    if content == ContentType::Protobuf {
        return Err(Status::unsupported_media_type(&[
            "application/json",
            "application/yaml",
        ]));
    }
    let mut parsed = parse(body, content, None, validation)
        .map_err(|failure| refuse(failure, body, content, expected))?;
    if let Some(status) = mismatch(&parsed.api_version, &parsed.kind, expected) {
        return Err(status);
    }
    let unknown = |path: &String| format!("unknown field {path:?}");
    let told = validation != FieldValidation::Ignore;
    let pruned = schema.prune(&mut parsed.object);
    parsed
        .strict
        .extend(pruned.iter().filter(|_| told).map(unknown));
    let object_meta = schema::table().by_name(OBJECT_META);
    if let Some((ty, metadata)) = object_meta.zip(parsed.object.get_mut("metadata")) {
        // Strictness is judged at the end, of all that was found.
        let collect = if told {
            FieldValidation::Warn
        } else {
            FieldValidation::Ignore
        };
        let decoded = decode_value(metadata, ty, collect)
            .map_err(|why| cannot_be_handled(&parsed.api_version, &parsed.kind, expected, &why))?;
        *metadata = decoded.object;
        parsed.strict.extend(
            decoded
                .warnings
                .iter()
                .map(|one| one.replacen("field \"", "field \"metadata.", 1)),
        );
    }
    finish(parsed, expected, validation)
}
