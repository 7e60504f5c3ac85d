//! How an object's text is laid out in the store and on the way to clients: as Go writes it,
//! `kind`, `apiVersion`, `metadata`, and then the rest.
//!
//! The revision is no part of what is stored; it is put in as the first member of the metadata,
//! whose place is found without parsing. Objects of older stores begin with their metadata; they
//! are laid out anew when they are read.

use std::{borrow::Cow, io};

use serde::Serialize;
use serde_json::{
    Map, Value,
    ser::{Formatter, Serializer},
};

const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
/// In a `Status`; in its details; in their causes.
const STATUS: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "status",
    "message",
    "reason",
    "details",
    "code",
];
const DETAILS: &[&str] = &[
    "name",
    "group",
    "kind",
    "uid",
    "causes",
    "retryAfterSeconds",
];
const CAUSE: &[&str] = &["reason", "message", "field"];

/// Where the members of an object's metadata begin in its text; `None` if it is laid out otherwise.
pub fn metadata_start(json: &[u8]) -> Option<usize> {
    let mut at = 1;
    for member in [br#""kind":""#.as_slice(), br#""apiVersion":""#.as_slice()] {
        if let Some(text) = json.get(at..)?.strip_prefix(member) {
            // Neither has anything to escape.
            let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            text[end..].starts_with(b"\",").then_some(())?;
            at += member.len() + end + 2;
        }
    }
    let metadata = br#""metadata":{"#;
    json[at..]
        .starts_with(metadata)
        .then_some(at + metadata.len())
}

/// The `apiVersion` in the text of an object; empty if it is laid out otherwise.
pub(crate) fn api_version(json: &[u8]) -> &str {
    let found = || {
        let rest = json.strip_prefix(br#"{"kind":""#)?;
        let end = rest.iter().position(|byte| *byte == b'"')?;
        let version = rest[end..].strip_prefix(br#"","apiVersion":""#)?;
        let end = version.iter().position(|byte| *byte == b'"')?;
        std::str::from_utf8(&version[..end]).ok()
    };
    found().unwrap_or_default()
}

/// Stored bytes as they are laid out now. Parses those of older stores.
///
/// # Errors
/// They are no JSON object.
pub(crate) fn normalized(stored: &[u8]) -> Result<Cow<'_, [u8]>, serde_json::Error> {
    let is_older = stored.starts_with(br#"{"metadata":"#);
    if !is_older && metadata_start(stored).is_some() {
        return Ok(Cow::Borrowed(stored));
    }
    let mut object: Map<String, Value> = serde_json::from_slice(stored)?;
    let metadata = object
        .entry("metadata")
        .or_insert_with(|| Map::new().into());
    match metadata.as_object_mut() {
        Some(metadata) => drop(metadata.remove("resourceVersion")),
        None => *metadata = Map::new().into(),
    }
    let mut out = Vec::with_capacity(stored.len());
    write(&mut out, &object, &FIRST);
    Ok(Cow::Owned(out))
}

/// Appends a stored object with its revision.
pub(crate) fn append_with_revision(out: &mut Vec<u8>, stored: &[u8], revision: &str) {
    let Some(at) = metadata_start(stored) else {
        return out.extend_from_slice(stored);
    };
    let (before, rest) = stored.split_at(at);
    out.extend_from_slice(before);
    out.extend_from_slice(br#""resourceVersion":""#);
    out.extend_from_slice(revision.as_bytes());
    out.push(b'"');
    if rest.first() != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(rest);
}

/// The `resourceVersion` in the text of an object that has one.
pub fn revision(json: &[u8]) -> &str {
    let digits =
        metadata_start(json).and_then(|at| json.get(at..)?.strip_prefix(br#""resourceVersion":""#));
    let Some(rest) = digits else { return "" };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).unwrap_or_default()
}

/// Appends an object, laid out. What was appended of one that is too deep is of no use.
///
/// # Errors
/// It is nested more than `levels` deep.
pub(crate) fn append(
    out: &mut Vec<u8>,
    object: &Map<String, Value>,
    levels: usize,
) -> Result<(), TooDeep> {
    let Some(left) = levels.checked_sub(1) else {
        return Err(TooDeep);
    };
    let mut written = Ok(());
    members(out, object, &FIRST, |out, _, value| {
        if written.is_ok() {
            written = value.serialize(&mut Serializer::with_formatter(out, Levels { left }));
        }
    });
    // Writing into memory fails for nothing else.
    written.map_err(|_| TooDeep)
}

/// See [`append`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooDeep;

/// JSON without blanks, as long as it is not too deep.
struct Levels {
    left: usize,
}

impl Levels {
    fn open<W: io::Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(io::ErrorKind::InvalidInput)?;
        out.write_all(bracket)
    }

    fn close<W: io::Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.left += 1;
        out.write_all(bracket)
    }
}

impl Formatter for Levels {
    fn begin_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }
}

/// Any answer, laid out; a `Status` with all its members as Go has them.
pub fn text(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    match value.as_object() {
        Some(object) if object.get("kind").is_some_and(|kind| kind == "Status") => {
            status(&mut out, object)
        }
        Some(object) => write(&mut out, object, &FIRST),
        None => put(&mut out, value),
    }
    out
}

fn status(out: &mut Vec<u8>, object: &Map<String, Value>) {
    members(out, object, STATUS, |out, key, value| match (key, value) {
        ("details", Value::Object(details)) => members(out, details, DETAILS, |out, key, value| {
            match (key, value) {
                ("causes", Value::Array(causes)) => {
                    out.push(b'[');
                    for (index, cause) in causes.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        cause
                            .as_object()
                            .into_iter()
                            .for_each(|cause| write(out, cause, CAUSE));
                    }
                    out.push(b']');
                }
                (_, value) => put(out, value),
            }
        }),
        (_, value) => put(out, value),
    });
}

fn write(out: &mut Vec<u8>, object: &Map<String, Value>, first: &[&str]) {
    members(out, object, first, |out, _, value| put(out, value));
}

/// Writes an object, the members of `first` first.
fn members(
    out: &mut Vec<u8>,
    object: &Map<String, Value>,
    first: &[&str],
    mut write: impl FnMut(&mut Vec<u8>, &str, &Value),
) {
    out.push(b'{');
    let ahead = first.iter().filter_map(|key| object.get_key_value(*key));
    let rest = object
        .iter()
        .filter(|(key, _)| !first.contains(&key.as_str()));
    for (index, (key, value)) in ahead.chain(rest).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put(out, key);
        out.push(b':');
        write(out, key, value);
    }
    out.push(b'}');
}

fn put(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("JSON values always encode into memory");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn normal(stored: &str) -> String {
        String::from_utf8(normalized(stored.as_bytes()).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn the_place_of_metadata_is_found() {
        for (json, expect) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
                Some(r#""name":"a"}}"#),
            ),
            (r#"{"kind":"Pod","metadata":{}}"#, Some("}}")),
            (r#"{"metadata":{"name":"a"}}"#, Some(r#""name":"a"}}"#)),
            (r#"{"kind":"P\"","apiVersion":"v1","metadata":{}}"#, None),
            (
                r#"{"kind":"Pod","apiVersion":"v1","spec":{},"metadata":{}}"#,
                None,
            ),
            (r#"{"kind":"Pod"}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(
                metadata_start(json.as_bytes()).map(|at| &json[at..]),
                expect,
                "{json}"
            );
        }
    }

    #[test]
    fn objects_of_older_stores_are_laid_out_anew() {
        let older =
            r#"{"metadata":{"name":"a"},"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap"}"#;
        let now =
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"v"}}"#;
        assert_eq!(normal(older), now);
        assert!(matches!(normalized(now.as_bytes()), Ok(Cow::Borrowed(_))));
        assert_eq!(normal("{}"), r#"{"metadata":{}}"#);
        assert!(normalized(b"[]").is_err());
    }

    #[test]
    fn the_revision_is_the_first_of_the_metadata() {
        for (stored, expect) in [
            (
                r#"{"kind":"A","metadata":{}}"#,
                r#"{"kind":"A","metadata":{"resourceVersion":"7"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a"}}"#,
                r#"{"metadata":{"resourceVersion":"7","name":"a"}}"#,
            ),
        ] {
            let mut out = Vec::new();
            append_with_revision(&mut out, stored.as_bytes(), "7");
            assert_eq!(std::str::from_utf8(&out).unwrap(), expect);
            assert_eq!(revision(&out), "7");
        }
        assert_eq!(revision(b"{}"), "");
    }

    #[test]
    fn answers_have_their_members_in_gos_order() {
        let status = json!({"code": 409, "reason": "AlreadyExists", "message": "m", "status": "Failure", "metadata": {},
            "apiVersion": "v1", "kind": "Status", "details": {"kind": "services", "name": "a",
                "causes": [{"field": "f", "message": "m", "reason": "r"}]}});
        let expect = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"AlreadyExists","details":{"name":"a","kind":"services","causes":[{"reason":"r","message":"m","field":"f"}]},"code":409}"#;
        assert_eq!(String::from_utf8(text(&status)).unwrap(), expect);
        let scale = json!({"apiVersion": "autoscaling/v1", "spec": {}, "kind": "Scale", "metadata": {"name": "a"}});
        let expect =
            r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a"},"spec":{}}"#;
        assert_eq!(String::from_utf8(text(&scale)).unwrap(), expect);
    }
}
