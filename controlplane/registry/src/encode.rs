//! Objects to stored bytes and back.
//!
//! Stored bytes are JSON laid out as [`crate::stored`] has it, without `resourceVersion`: the
//! revision is spliced in when it is known, so no reader parses to learn it.

use bytes::Bytes;
use coracle_api::{meta, status::Status};
use coracle_store::Revision;
use serde_json::Value;

use crate::stored::{self, TooDeep};

/// Most objects fit, managed fields included: their text is not moved while it grows.
const TYPICAL_BYTES: usize = 2048;

/// Removes what is never stored.
pub fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("selfLink");
    }
}

/// Deepest nesting of an object. JSON is read 127 levels deep, also here, and a list or an event
/// around it is two more.
const MOST_LEVELS: usize = 120;

/// Most bytes of an object that is written. Counted as text is without JSON's escapes, as etcd's
/// limit counts it in upstream's forms: a ConfigMap that is full and all quotes is one of
/// upstream's, too.
///
/// Source: `DefaultMaxRequestBytes` in etcd's `server/embed/config.go`. Upstream passes on what
/// etcd says, as a 500.
pub const MOST_BYTES: usize = 3 << 19;
/// What the steps of a deletion may add, so that whatever is stored can go.
const FOR_DELETION: usize = 64 << 10;

/// As [`encode`], for an object that takes the place of one of `before` bytes; 0 for a new one.
///
/// # Errors
/// Also 413 for one that has too many bytes and no fewer than before.
pub(crate) fn bounded(object: &Value, before: usize) -> Result<Bytes, Status> {
    let text = encode(object)?;
    let most = if meta::is_terminating(object) {
        MOST_BYTES + FOR_DELETION
    } else {
        MOST_BYTES
    };
    if text.len() > most && text.len() >= before && text.len() - escapes(&text) > most {
        return Err(Status::request_entity_too_large(MOST_BYTES));
    }
    Ok(text)
}

/// How many escapes a JSON text has.
fn escapes(text: &[u8]) -> usize {
    let mut bytes = text.iter();
    let mut found = 0;
    while bytes.any(|byte| *byte == b'\\') {
        found += 1;
        bytes.next();
    }
    found
}

/// Encodes an object for the store. [`strip`] it before.
///
/// # Errors
/// 400 for an object that could be written and never be read again.
pub fn encode(object: &Value) -> Result<Bytes, Status> {
    let mut out = Vec::with_capacity(TYPICAL_BYTES);
    object
        .as_object()
        .map_or(Ok(()), |object| {
            stored::append(&mut out, object, MOST_LEVELS)
        })
        .map_err(|TooDeep| {
            Status::bad_request(format!(
                "the object is nested more than {MOST_LEVELS} levels deep"
            ))
        })?;
    Ok(out.into())
}

/// The object as clients see it: stored bytes with their revision.
pub(crate) fn with_revision(stored: &[u8], revision: Revision) -> Bytes {
    let Ok(stored) = stored::normalized(stored) else {
        return Bytes::copy_from_slice(stored);
    };
    let mut out = Vec::with_capacity(stored.len() + 44);
    stored::append_with_revision(&mut out, &stored, &revision.to_string());
    out.into()
}

/// Whether `served`, stored bytes with a revision spliced in, holds the same as `stored`.
pub(crate) fn same_content(served: &[u8], stored: &[u8]) -> bool {
    let Some((head, rest)) = stored::metadata_start(served).map(|at| served.split_at(at)) else {
        return false;
    };
    let Some(rest) = rest.strip_prefix(br#""resourceVersion":""#) else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest.get(digits + 1..).unwrap_or_default();
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    stored.strip_prefix(head) == Some(rest)
}

/// Sets `metadata.resourceVersion`.
pub(crate) fn set_revision(object: &mut Value, revision: Revision) {
    meta::set_text(object, "resourceVersion", revision.to_string());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        type Around = fn(Value) -> Value;
        let lists: Around = |inner| json!([inner]);
        let objects: Around = |inner| json!({"inner": inner, "beside": []});
        for around in [lists, objects] {
            let nested = |levels| json!({"spec": (2..levels).fold(json!([]), |inner, _| around(inner)), "z": {"a": []}});
            let stored = encode(&nested(MOST_LEVELS)).unwrap();
            assert_eq!(
                serde_json::from_slice::<Value>(&stored).unwrap(),
                nested(MOST_LEVELS)
            );
            assert_eq!(encode(&nested(MOST_LEVELS + 1)).unwrap_err().code, 400);
        }
    }

    #[test]
    fn no_more_is_written_than_etcd_takes() {
        let of = |text: &str, times: usize| json!({"metadata": {"name": "x"}, "data": {"a": text.repeat(times)}});
        let code = |object: &Value, before| {
            bounded(object, before).map_or_else(|status| status.code, |_| 200)
        };
        let most = MOST_BYTES - encode(&of("", 0)).unwrap().len();
        for text in ["x", "\"", "\\"] {
            assert_eq!(code(&of(text, most), 0), 200, "{text}");
            assert_eq!(code(&of(text, most + 1), 0), 413, "{text}");
        }
        let larger = of("x", most + 1);
        assert_eq!(code(&larger, MOST_BYTES + 1), 413);
        assert_eq!(
            code(&larger, MOST_BYTES + 2),
            200,
            "what is too large may be made smaller"
        );
        let mut going = of("x", most + FOR_DELETION / 2);
        meta::set_text(&mut going, "deletionTimestamp", "2026-01-01T00:00:00Z");
        assert_eq!(code(&going, 0), 200, "and may go");
    }

    #[test]
    fn encoding_is_laid_out_and_takes_the_revision() {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": "x", "resourceVersion": "5", "selfLink": "y"}});
        strip(&mut object);
        let stored = encode(&object).unwrap();
        assert_eq!(
            stored,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"b"}}"#
        );
        let served = with_revision(&stored, Revision(17));
        let expect = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"17","name":"x"},"data":{"a":"b"}}"#;
        assert_eq!(served, expect);
        let older =
            r#"{"metadata":{"name":"x"},"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap"}"#;
        assert_eq!(with_revision(older.as_bytes(), Revision(17)), expect);
        assert!(same_content(&served, &stored));
        assert!(!same_content(
            &served,
            &encode(&json!({"metadata": {"name": "y"}})).unwrap()
        ));
    }
}
