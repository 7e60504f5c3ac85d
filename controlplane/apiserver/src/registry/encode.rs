//! Objects to stored bytes and back.
//!
//! Stored bytes are JSON whose first member is `metadata`, without `resourceVersion`: the revision is spliced in when
//! it is known, so no reader parses to learn it.

use bytes::Bytes;
use coracle_store::Revision;
use serde_json::Value;

/// What every stored object begins with.
const PREFIX: &[u8] = br#"{"metadata":{"#;
/// Most objects fit, managed fields included: their text is not moved while it grows.
const TYPICAL_BYTES: usize = 2048;

/// Removes what is never stored.
pub(crate) fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
}

/// Encodes an object for the store. [`strip`] it before.
pub(crate) fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(TYPICAL_BYTES);
    out.extend_from_slice(br#"{"metadata":"#);
    append(&mut out, object.get("metadata").unwrap_or(&Value::Null));
    for (key, value) in object.as_object().into_iter().flatten() {
        if key == "metadata" {
            continue;
        }
        out.push(b',');
        append(&mut out, key);
        out.push(b':');
        append(&mut out, value);
    }
    out.push(b'}');
    out.into()
}

fn append(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("JSON values always encode into memory");
}

/// The object as clients see it: stored bytes with their revision.
pub(crate) fn with_revision(stored: &[u8], revision: Revision) -> Bytes {
    let Some(rest) = stored.strip_prefix(PREFIX) else { return Bytes::copy_from_slice(stored) };
    let mut out = Vec::with_capacity(stored.len() + 44);
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(br#""resourceVersion":""#);
    out.extend_from_slice(revision.to_string().as_bytes());
    out.push(b'"');
    if rest.first() != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out.into()
}

/// Whether `served`, stored bytes with a revision spliced in, holds the same as `stored`.
pub(crate) fn same_content(served: &[u8], stored: &[u8]) -> bool {
    let Some(rest) = served.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(br#""resourceVersion":""#)) else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest.get(digits + 1..).unwrap_or_default();
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    stored.strip_prefix(PREFIX) == Some(rest)
}

/// Sets `metadata.resourceVersion`.
pub(crate) fn set_revision(object: &mut Value, revision: Revision) {
    coracle_api::meta::set_text(object, "resourceVersion", revision.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn encoding_starts_with_metadata_and_takes_the_revision() {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "x", "resourceVersion": "5", "selfLink": "y"}});
        strip(&mut object);
        let stored = encode(&object);
        assert!(stored.starts_with(PREFIX), "{stored:?}");
        let served = with_revision(&stored, Revision(17));
        assert!(served.starts_with(br#"{"metadata":{"resourceVersion":"17","name":"x"}"#), "{served:?}");
        assert!(same_content(&served, &stored));
        assert!(!same_content(&served, &encode(&json!({"metadata": {"name": "y"}}))));
    }
}
