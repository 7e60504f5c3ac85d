//! Objects of kinds that come at run time, and the schemas that come with them.
//!
//! An input is a schema and a body with a line of hyphens between, or a body alone for [`schema`].

use std::sync::{Arc, LazyLock};

use coracle_api::{
    decode::{ContentType, Decoded, FieldValidation, decode_along},
    resource::Gvk,
    schema::{Schema, Structural},
};
use serde_json::{Value, json};

use crate::{decode::depth, patch::SEPARATOR};

/// Deepest nesting that a reader of JSON takes.
const MAX_DEPTH: usize = 128;

/// Every keyword by which a value is kept, removed or filled in.
static SCHEMA: LazyLock<Arc<Structural>> = LazyLock::new(|| {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 1},
        "port": {"x-kubernetes-int-or-string": true},
        "note": {"type": "string", "nullable": true, "default": "none"},
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "steps": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "mode": {"type": "string", "default": "fast"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "boolean"}}}}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    Structural::read(&schema).expect("structural")
});

/// What was decoded is what the schema knows: it is the same when it is decoded again, with nothing
/// to warn of, and there is nothing to prune. What is filled in is filled in once.
pub(crate) fn object(data: &[u8]) {
    let cut = data
        .windows(SEPARATOR.len())
        .position(|window| window == SEPARATOR);
    let (structural, body) = match cut {
        None => (Arc::clone(&SCHEMA), data),
        Some(at) => {
            let given = serde_json::from_slice::<Value>(&data[..at]).ok();
            let Some(Ok(read)) = given.map(|given| Structural::read(&given)) else {
                return;
            };
            (read, &data[at + SEPARATOR.len()..])
        }
    };
    let gvk = Gvk::new("example.org", "v1", "Widget");
    let schema = Schema::Structural(Arc::clone(&structural));
    let decoded =
        |body: &[u8], content, validation| decode_along(&schema, body, content, &gvk, validation);
    for content in [ContentType::Json, ContentType::Yaml] {
        for validation in [FieldValidation::Warn, FieldValidation::Strict] {
            let Ok(Decoded { object, warnings }) = decoded(body, content, validation) else {
                continue;
            };
            assert!(
                validation == FieldValidation::Warn || warnings.is_empty(),
                "{warnings:?}"
            );
            assert!(depth(&object) <= MAX_DEPTH, "{} levels", depth(&object));
            let text = object.to_string();
            let again = decoded(text.as_bytes(), ContentType::Json, FieldValidation::Strict);
            let again = again.unwrap_or_else(|status| panic!("{status}: {text}"));
            assert_eq!(again.object, object, "decoded again");
            assert!(again.warnings.is_empty(), "{:?}", again.warnings);
            check(&structural, &object);
        }
    }
}

fn check(structural: &Structural, object: &Value) {
    let after = |change: fn(&Structural, &mut Value), object: &Value| {
        let mut changed = object.clone();
        change(structural, &mut changed);
        changed
    };
    assert_eq!(after(Structural::prune, object), *object, "pruned already");
    let filled = after(Structural::default, object);
    assert_eq!(
        after(Structural::default, &filled),
        filled,
        "filled in once"
    );
    let _told = structural.validate(&filled);
}
