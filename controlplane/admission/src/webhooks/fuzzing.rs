//! What webhooks answer, with what must hold of every answer: for the fuzz targets (feature
//! `fuzzing`).

use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    patch,
    resource::Gvk,
};
use serde_json::{Value, json};

use super::{
    call,
    hook::ReviewVersion,
    kind::Kind,
    review::{self, Answer},
};
use crate::matching::forms::keep_managers;

/// Whatever a webhook answers, a denial is a failure in its name, one that validates changes
/// nothing, and a patch leaves an object of the kind that it was.
///
/// # Panics
/// If that does not hold.
pub fn answer(body: &[u8]) {
    for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
        for kind in [Kind::Mutating, Kind::Validating] {
            let Ok(answer) = review::verified(body, version, "u", kind) else {
                continue;
            };
            let status = call::denied("w.example.org", &answer.result);
            assert!((400..=599).contains(&status.code), "{}", status.code);
            let by = "admission webhook \"w.example.org\" denied the request";
            assert!(status.message.starts_with(by), "{}", status.message);
            match kind {
                Kind::Validating => assert!(answer.patch.is_empty(), "it changes nothing"),
                Kind::Mutating => patched(&answer),
            }
        }
    }
}

fn patched(answer: &Answer) {
    let before = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
        "name": "a", "namespace": "n", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]},
        "data": {"a": "b"}});
    if answer.patch.is_empty() || decode::check_json(&answer.patch).is_err() {
        return;
    }
    let Ok(patched) = patch::json::apply(&before, &answer.patch) else {
        return;
    };
    let text = serde_json::to_vec(&patched).expect("JSON");
    let kind = Gvk::new("", "v1", "ConfigMap");
    let (json, lenient) = (ContentType::Json, FieldValidation::Ignore);
    let Ok(decoded) = decode::decode(&text, json, &kind, lenient) else {
        return;
    };
    let mut object: Value = decoded.object;
    keep_managers(&mut object, &before);
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    assert_eq!(
        object["metadata"]["managedFields"],
        before["metadata"]["managedFields"]
    );
}
