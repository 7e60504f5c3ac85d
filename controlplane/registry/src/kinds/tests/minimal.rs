//! The least that each kind can do with, taken through the whole of its strategy.

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    resource::Gvk,
    status::FieldErrors,
};
use serde_json::Value;

use super::super::all;
use crate::testing::{created, defaulted, minimal::minimal, updated};

/// Fields that are there to be seen, with nothing in them.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

fn assert_ok(errors: &FieldErrors, kind: &str) {
    assert!(errors.is_empty(), "{kind}: {errors}");
}

#[test]
fn minimal_objects_pass_and_stay_as_they_are() {
    let mut count = 0;
    for strategy in all() {
        let info = strategy.resource();
        // It needs a real request: see its own tests.
        if info.kind == "CertificateSigningRequest" {
            continue;
        }
        let object = minimal(*strategy);
        let gvk = Gvk::new(info.group, info.version, info.kind);
        let decode = |object: &Value| {
            let body = serde_json::to_vec(object).unwrap();
            decode::decode(&body, ContentType::Json, &gvk, FieldValidation::Strict)
                .unwrap()
                .object
        };
        let stored = created(*strategy, decode(&object));
        assert_ok(&strategy.validate(&stored), info.kind);
        let known = defaulted(*strategy, decode(&stored));
        assert_eq!(
            without_nulls(known),
            without_nulls(stored.clone()),
            "what {} adds is in its schema",
            info.kind
        );
        let again = updated(*strategy, stored.clone(), &stored);
        assert_eq!(
            again, stored,
            "an update of {} with itself changes nothing",
            info.kind
        );
        assert_ok(&strategy.validate_update(&again, &stored), info.kind);
        assert_eq!(
            defaulted(*strategy, stored.clone()),
            stored,
            "a status update of {} adds nothing",
            info.kind
        );
        assert_ok(
            &strategy.validate_status_update(&stored, &stored),
            info.kind,
        );
        count += 1;
    }
    eprintln!(
        "{count} of {} kinds were made from a minimal object",
        all().len()
    );
}

#[test]
fn views_lose_nothing() {
    for strategy in all() {
        let Some(view) = strategy.view() else {
            continue;
        };
        let shown = defaulted(*strategy, minimal(*strategy));
        let mut stored = (view.conversion.to_stored)(shown);
        view.of.default(&mut stored);
        let again = (view.conversion.to_stored)((view.conversion.from_stored)(stored.clone()));
        let mut again = again;
        view.of.default(&mut again);
        assert_eq!(again, stored, "{}", strategy.resource().kind);
    }
}
