//! Request bodies. The kind is the body's own, or Pod.

use coracle_api::{
    decode::{ContentType, Decoded, FieldValidation, decode, decode_value},
    quantity::Quantity,
    resource::Gvk,
    schema::{Type, table},
};
use serde_json::Value;

/// Deepest nesting that a reader of JSON takes.
const MAX_DEPTH: usize = 128;

/// JSON.
pub(crate) fn json(body: &[u8]) {
    let (api_version, kind) = (member(body, "apiVersion"), member(body, "kind"));
    check(body, ContentType::Json, &expected(&api_version, &kind));
}

/// YAML.
pub(crate) fn yaml(body: &[u8]) {
    let (api_version, kind) = (member(body, "apiVersion"), member(body, "kind"));
    check(body, ContentType::Yaml, &expected(&api_version, &kind));
}

/// Protobuf in its envelope.
pub(crate) fn protobuf(body: &[u8]) {
    let (api_version, kind) = envelope(body).unwrap_or_default();
    check(body, ContentType::Protobuf, &expected(&api_version, &kind));
}

/// A quantity is the same when its canonical text is read again.
pub(crate) fn quantity(text: &str) {
    let Ok(quantity) = text.parse::<Quantity>() else {
        return;
    };
    let canonical = quantity.to_string();
    let again: Quantity = canonical.parse().expect("its own text");
    assert_eq!(again.to_string(), canonical, "{text}");
    assert!(again == quantity, "{text} is {canonical}");
}

/// What was decoded is the same when it is encoded and decoded again, and there is nothing to warn
/// of then.
fn check(body: &[u8], content: ContentType, gvk: &Gvk) {
    let ty = table().by_gvk(gvk).expect("it was looked up");
    for validation in [FieldValidation::Warn, FieldValidation::Strict] {
        let Ok(Decoded { object, warnings }) = decode(body, content, gvk, validation) else {
            continue;
        };
        assert!(
            validation == FieldValidation::Warn || warnings.is_empty(),
            "{warnings:?}"
        );
        assert!(depth(&object) <= MAX_DEPTH, "{} levels", depth(&object));
        let written = object.to_string();
        let again = decode(
            written.as_bytes(),
            ContentType::Json,
            gvk,
            FieldValidation::Strict,
        );
        let again = again.unwrap_or_else(|status| panic!("{status}: {written}"));
        assert_eq!(again.object, object, "decoded again");
        assert!(again.warnings.is_empty(), "{:?}", again.warnings);
        assert_eq!(canonical(&object, ty), object, "canonical already");
    }
}

fn canonical(object: &Value, ty: Type) -> Value {
    decode_value(object, ty, FieldValidation::Strict)
        .unwrap_or_else(|why| panic!("{why}: {object}"))
        .object
}

/// Levels of lists and maps.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// The kind that is named, if there is such a kind of objects. One without a version is no
/// endpoint's: what a body leaves out is the endpoint's, so there is always one.
pub(crate) fn expected(api_version: &str, kind: &str) -> Gvk {
    let named = Gvk::from_api_version(api_version, kind);
    let is_object = !named.version.is_empty()
        && table()
            .by_gvk(&named)
            .is_some_and(|ty| ty.field("metadata").is_some());
    if is_object {
        named
    } else {
        Gvk::new("", "v1", "Pod")
    }
}

/// What follows a key in JSON or YAML, wherever the key stands.
pub(crate) fn member(body: &[u8], key: &str) -> String {
    let text = String::from_utf8_lossy(body);
    let Some((_, rest)) = text.split_once(key) else {
        return String::new();
    };
    let rest = rest.trim_start_matches(['"', ':', ' ']);
    let end = rest
        .find(|c: char| !(c.is_ascii_alphanumeric() || "./-".contains(c)))
        .unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// `apiVersion` and `kind` of `k8s\0`, field 1 (TypeMeta), fields 1 and 2.
fn envelope(body: &[u8]) -> Option<(String, String)> {
    fn field<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
        let (head, behind) = rest.split_first_chunk::<2>()?;
        let (bytes, behind) = behind.split_at_checked(usize::from(head[1]))?;
        *rest = behind;
        (head[0] == tag << 3 | 2).then_some(bytes)
    }
    let mut rest = body.strip_prefix(b"k8s\0")?;
    let mut meta = field(&mut rest, 1)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(field(&mut meta, 1)?), text(field(&mut meta, 2)?)))
}
