//! The four patches, applied to objects as they are stored.

use std::sync::LazyLock;

use coracle_api::{
    decode::{ContentType, FieldValidation, decode},
    patch::{self, apply::Writer},
    resource::Gvk,
    schema::{Schema, Type, table},
};
use serde_json::{Value, json};

use crate::decode::{depth, expected, member};

/// Deepest nesting that can be read back.
const MAX_DEPTH: usize = 127;
/// Between the two parts of an input, such as an applied configuration and the live object.
pub(crate) const SEPARATOR: &[u8] = b"\n---\n";

pub(crate) struct Base {
    pub(crate) object: Value,
    pub(crate) ty: Type,
}

fn typed(gvk: &Gvk) -> Type {
    table().by_gvk(gvk).expect("it was looked up")
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let bodies = [
        include_str!("../bases/pod.json"),
        include_str!("../bases/deployment.json"),
        include_str!("../bases/service.json"),
        include_str!("../bases/configmap.json"),
    ];
    bodies
        .iter()
        .map(|body| {
            let gvk = expected(
                &member(body.as_bytes(), "apiVersion"),
                &member(body.as_bytes(), "kind"),
            );
            let decoded = decode(
                body.as_bytes(),
                ContentType::Json,
                &gvk,
                FieldValidation::Strict,
            );
            Base {
                object: decoded.expect("a base").object,
                ty: typed(&gvk),
            }
        })
        .collect()
});

/// The pod among the objects that are patched.
pub(crate) fn pod() -> &'static Base {
    &BASES[0]
}

/// What every outcome must be: text that can be read back, and an object or a refusal once it is
/// pruned.
fn check(outcome: &Value, ty: Type) {
    assert!(depth(outcome) <= MAX_DEPTH, "{} levels", depth(outcome));
    let text = outcome.to_string();
    let again: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again, *outcome);
    if let Ok(decoded) = patch::decode_patched(outcome, ty, FieldValidation::Ignore) {
        let again = patch::decode_patched(&decoded.object, ty, FieldValidation::Strict);
        assert_eq!(again.expect("canonical").object, decoded.object);
    }
}

/// The outcome is valid; patches that only test change nothing.
pub(crate) fn json(body: &[u8]) {
    for base in &*BASES {
        let Ok(outcome) = patch::json::apply(&base.object, body) else {
            continue;
        };
        check(&outcome, base.ty);
    }
}

/// The outcome is valid, and the patch then changes nothing any more.
pub(crate) fn merge(body: &[u8]) {
    for base in &*BASES {
        let Ok(outcome) = patch::merge::apply(&base.object, body) else {
            return;
        };
        check(&outcome, base.ty);
        assert_eq!(
            patch::merge::apply(&outcome, body).expect("a patch"),
            outcome
        );
    }
}

/// The outcome is valid, and holds no directive that the object had not; without directives, the
/// patch then changes nothing any more.
pub(crate) fn strategic(body: &[u8]) {
    let has_directives = body.contains(&b'$') || body.contains(&b'\\');
    for base in &*BASES {
        let Ok(outcome) = patch::strategic::apply(base.ty, &base.object, body) else {
            continue;
        };
        check(&outcome, base.ty);
        if has_directives {
            let _ = patch::strategic::apply(base.ty, &outcome, body);
        } else if let Ok(again) = patch::strategic::apply(base.ty, &outcome, body) {
            // A new list may have elements without a key; merging them is refused, as upstream
            // does.
            assert_eq!(again, outcome);
        }
    }
}

/// A second apply changes nothing; a second manager's may be refused and may be forced; what is
/// tracked is the object.
pub(crate) fn apply(body: &[u8]) {
    let at = body
        .windows(SEPARATOR.len())
        .position(|window| window == SEPARATOR);
    let (config, live) = at.map_or((body, None), |at| {
        (&body[..at], Some(&body[at + SEPARATOR.len()..]))
    });
    let gvk = expected(&member(config, "apiVersion"), &member(config, "kind"));
    let decode = |bytes| {
        decode(bytes, ContentType::Yaml, &gvk, FieldValidation::Ignore)
            .map(|decoded| decoded.object)
    };
    let Ok(config) = decode(config) else { return };
    let (ty, api_version) = (typed(&gvk), gvk.api_version());
    let schema = Schema::BuiltIn(ty);
    let by = |manager| Writer {
        manager,
        api_version: &api_version,
        subresource: "",
        time: "2026-01-01T00:00:00Z",
    };
    let live = live.and_then(|live| decode(live).ok());
    let Ok(once) = patch::apply::apply(&schema, live.as_ref(), &config, by("one"), true) else {
        return;
    };
    check(&once, ty);
    let twice = patch::apply::apply(&schema, Some(&once), &config, by("one"), false)
        .expect("all is its own");
    assert_eq!(twice, once, "applied twice");
    // The same from somebody else is shared, not fought over; only what was its own before may go.
    let shared = patch::apply::apply(&schema, Some(&once), &config, by("two"), false)
        .expect("nothing changes");
    let mut managers = once["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    if managers.all(|entry| entry["manager"] != "two") {
        assert_eq!(
            without_managers(&shared),
            without_managers(&once),
            "applied by two"
        );
    }
    let base = BASES
        .iter()
        .find(|base| base.ty == ty)
        .map_or(&config, |base| &base.object);
    let mut base = without_managers(base);
    if patch::apply::apply(&schema, Some(&shared), &base, by("three"), false).is_err() {
        patch::apply::apply(&schema, Some(&shared), &base, by("three"), true).expect("forced");
    }
    let untracked = base.clone();
    patch::apply::track(&schema, Some(&shared), &mut base, by("four"));
    assert_eq!(
        without_managers(&base),
        untracked,
        "tracking changes no more than the managers"
    );
}

/// Every object has metadata.
fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    } else {
        object["metadata"] = json!({});
    }
    object
}
