//! AdmissionReview: what is sent, and what is made of the answer.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go` at v1.37.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use coracle_api::{decode, status::quote};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{hook::ReviewVersion, kind::Kind};

/// What a webhook says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) is_allowed: bool,
    /// A Status; null if there is none.
    pub(crate) result: Value,
    /// A JSON patch as text; empty if there is none.
    pub(crate) patch: Vec<u8>,
    pub(crate) patch_type: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit: Vec<(String, String)>,
}

/// A write as a webhook sees it.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown<'a> {
    /// What all webhooks are told.
    #[serde(flatten)]
    pub(crate) request: &'a Value,
    pub(crate) object: &'a Value,
    #[serde(rename = "oldObject")]
    pub(crate) old: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
struct Request<'a> {
    uid: &'a str,
    #[serde(flatten)]
    shown: Shown<'a>,
}

/// The review of a write, as it is sent.
pub(crate) fn review(
    version: ReviewVersion,
    uid: &str,
    shown: Shown<'_>,
) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Asked {
        kind: "AdmissionReview",
        api_version: version.api_version(),
        request: Request { uid, shown },
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Value,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<Map<String, Value>>,
    warnings: Option<Vec<String>>,
}

/// Why an answer is none.
pub(crate) enum Unverified {
    /// It cannot be read at all.
    Unreadable(String),
    /// It says what it must not.
    Invalid(String),
}

/// What an answer to the review `uid` says.
pub(crate) fn verified(
    body: &[u8],
    version: ReviewVersion,
    uid: &str,
    kind: Kind,
) -> Result<Answer, Unverified> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Unverified::Unreadable(format!(
            "couldn't get version/kind; json parse error: {why}"
        ))
    };
    // A little text can be very many values.
    decode::check_json(body).map_err(|status| unreadable(&status.message))?;
    let review: Review = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    let invalid = |why: String| Err(Unverified::Invalid(why));
    // Before its version, as upstream decodes it.
    if review.kind.is_empty() || review.api_version.is_empty() {
        return Err(Unverified::Unreadable(missing_type(&review, body)));
    }
    let Some(response) = review.response else {
        return invalid("webhook response was absent".to_owned());
    };
    // Of the first version nothing was ever verified.
    if version == ReviewVersion::V1 {
        if response.uid != uid {
            let found = quote(&response.uid);
            return invalid(format!("expected response.uid={uid:?}, got {found}"));
        }
        let (group, found_version) = review
            .api_version
            .split_once('/')
            .unwrap_or(("", &review.api_version));
        if (group, found_version, &*review.kind) != ("admission.k8s.io", "v1", "AdmissionReview") {
            return invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{found_version}, Kind={}",
                review.kind
            ));
        }
    }
    let patch = STANDARD.decode(response.patch.as_deref().unwrap_or_default());
    let patch = patch.map_err(|error| {
        Unverified::Unreadable(format!("response.patch is not base64: {error}"))
    })?;
    let patch_type = patch_type(version, kind, &patch, response.patch_type)
        .map_err(|why| Unverified::Invalid(why.into()))?;
    let audit = response.audit_annotations.unwrap_or_default();
    let audit = audit
        .into_iter()
        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    Ok(Answer {
        is_allowed: response.allowed,
        result: response.status,
        patch: if kind == Kind::Mutating {
            patch
        } else {
            Vec::new()
        },
        patch_type,
        warnings: response.warnings.unwrap_or_default(),
        audit: audit.collect(),
    })
}

fn missing_type(review: &Review, body: &[u8]) -> String {
    let field = if review.kind.is_empty() {
        "Object 'Kind' is missing"
    } else {
        "Object 'apiVersion' is missing"
    };
    let text = String::from_utf8_lossy(&body[..body.len().min(1024)]);
    format!("{field} in '{text}'")
}

/// A patch and its type come together, and from who may change something.
fn patch_type(
    version: ReviewVersion,
    kind: Kind,
    patch: &[u8],
    said: Option<String>,
) -> Result<String, &'static str> {
    match (version, kind, said) {
        (ReviewVersion::V1Beta1, Kind::Mutating, _) if !patch.is_empty() => {
            Ok("JSONPatch".to_owned())
        }
        (ReviewVersion::V1Beta1, _, _) => Ok(String::new()),
        (_, Kind::Validating, _) if !patch.is_empty() => {
            Err("validating webhook may not return response.patch")
        }
        (_, Kind::Validating, Some(_)) => {
            Err("validating webhook may not return response.patchType")
        }
        (_, Kind::Mutating, None) if !patch.is_empty() => {
            Err("webhook returned response.patch but not response.patchType")
        }
        (_, Kind::Mutating, Some(_)) if patch.is_empty() => {
            Err("webhook returned response.patchType but not response.patch")
        }
        (_, _, Some(said)) if said.is_empty() => {
            Err("webhook returned invalid response.patchType of \"\"")
        }
        (_, _, said) => Ok(said.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(response: Value, kind: Kind) -> Result<Answer, String> {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": response});
        of(&review.to_string(), kind)
    }

    fn of(body: &str, kind: Kind) -> Result<Answer, String> {
        verified(body.as_bytes(), ReviewVersion::V1, "u", kind).map_err(|error| match error {
            Unverified::Unreadable(why) | Unverified::Invalid(why) => why,
        })
    }

    #[test]
    fn an_answer_is_held_to_what_was_asked() {
        let patch = STANDARD.encode("[]");
        for (response, kind, expect) in [
            (Value::Null, Kind::Mutating, "webhook response was absent"),
            (
                json!({"uid": "v", "allowed": true}),
                Kind::Mutating,
                "expected response.uid=\"u\", got \"v\"",
            ),
            (
                json!({"uid": "u", "patch": patch}),
                Kind::Mutating,
                "webhook returned response.patch but not response.patchType",
            ),
            (
                json!({"uid": "u", "patchType": "JSONPatch"}),
                Kind::Mutating,
                "webhook returned response.patchType but not response.patch",
            ),
            (
                json!({"uid": "u", "patch": patch, "patchType": ""}),
                Kind::Mutating,
                "webhook returned invalid response.patchType of \"\"",
            ),
            (
                json!({"uid": "u", "patch": patch}),
                Kind::Validating,
                "validating webhook may not return response.patch",
            ),
            (
                json!({"uid": "u", "patchType": "JSONPatch"}),
                Kind::Validating,
                "validating webhook may not return response.patchType",
            ),
        ] {
            let found = said(response.clone(), kind).unwrap_err();
            assert_eq!(found, expect, "{response}");
        }
        let v2 = r#"{"apiVersion":"admission.k8s.io/v2","kind":"AdmissionReview","response":{"uid":"u"}}"#;
        assert_eq!(
            of(v2, Kind::Mutating).unwrap_err(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v2, Kind=AdmissionReview"
        );
        assert_eq!(
            of("{}", Kind::Mutating).unwrap_err(),
            "Object 'Kind' is missing in '{}'"
        );
        let garbage = of("<html>", Kind::Mutating).unwrap_err();
        let begins = "couldn't get version/kind; json parse error: ";
        assert!(garbage.starts_with(begins), "{garbage}");
    }

    #[test]
    fn a_review_has_the_request_and_the_objects() {
        let (request, object) = (json!({"name": "n"}), json!({"a": 1}));
        let shown = Shown {
            request: &request,
            object: &object,
            old: &Value::Null,
        };
        let sent = review(ReviewVersion::V1, "u", shown).unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let expect = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {"uid": "u", "name": "n", "object": {"a": 1}, "oldObject": null}});
        assert_eq!(sent, expect);
    }

    #[test]
    fn an_answer_is_read_whole() {
        let answer = said(
            json!({"uid": "u", "allowed": true, "patch": STANDARD.encode("[1]"), "patchType": "JSONPatch",
                "warnings": ["w"], "auditAnnotations": {"k": "v"}, "status": {"message": "m"}}),
            Kind::Mutating,
        );
        let expect = Answer {
            is_allowed: true,
            result: json!({"message": "m"}),
            patch: b"[1]".to_vec(),
            patch_type: "JSONPatch".to_owned(),
            warnings: vec!["w".to_owned()],
            audit: vec![("k".to_owned(), "v".to_owned())],
        };
        assert_eq!(answer, Ok(expect));
    }
}
