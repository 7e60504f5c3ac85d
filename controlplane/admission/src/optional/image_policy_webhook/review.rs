//! ImageReview: what is asked of a pod's images, and what is made of the answer.
//!
//! Source: `k8s.io/api/imagepolicy/v1alpha1/types.go` at v1.37.

use std::collections::BTreeMap;

use coracle_api::decode;
use coracle_registry::value::{items, string};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// What the webhook is told of a pod's annotations, and how the pod asks it for something.
const ANNOTATIONS: &str = ".image-policy.k8s.io/";

/// What the webhook says.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Verdict {
    #[serde(rename = "allowed")]
    pub(super) is_allowed: bool,
    pub(super) reason: String,
    #[serde(rename = "auditAnnotations")]
    pub(super) audit: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Container<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
}

#[derive(Serialize)]
struct Container<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    image: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    status: Verdict,
}

/// The lists of a pod's containers that are asked about; `None` for what brings no images.
pub(super) fn asked(subresource: &str) -> Option<&'static [&'static str]> {
    match subresource {
        "" => Some(&["containers", "initContainers"]),
        "ephemeralcontainers" => Some(&["ephemeralContainers"]),
        _ => None,
    }
}

/// The `spec` of a review of a pod, as text: the same for pods that need the same answer.
pub(super) fn spec(pod: &Value, lists: &[&str], namespace: &str) -> String {
    let containers = lists.iter().flat_map(|list| items(&pod["spec"][list]));
    let annotations = pod["metadata"]["annotations"].as_object();
    let told = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.contains(ANNOTATIONS))
        .map(|(key, value)| (key.as_str(), string(value)));
    let spec = Spec {
        containers: containers
            .map(|container| Container {
                image: string(&container["image"]),
            })
            .collect(),
        annotations: told.collect(),
        namespace,
    };
    // Nothing in it can fail to be written.
    serde_json::to_string(&spec).unwrap_or_default()
}

/// The review of such a `spec`, as it is sent.
pub(super) fn body(spec: &str) -> String {
    format!(
        "{{\"kind\":\"{KIND}\",\"apiVersion\":\"{API_VERSION}\",\"metadata\":{{}},\"spec\":{spec},\"status\":{{\"allowed\":false}}}}"
    )
}

/// What an answer says.
///
/// # Errors
/// It is none.
pub(super) fn read(body: &[u8]) -> Result<Verdict, String> {
    decode::check_json(body).map_err(|status| status.message)?;
    let review: Review = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if (&*review.api_version, &*review.kind) == (API_VERSION, KIND) {
        return Ok(review.status);
    }
    Err(format!(
        "expected {KIND} of {API_VERSION}, got {:?} of {:?}",
        review.kind, review.api_version
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_and_what_the_pod_asks_for_are_told() {
        let pod = json!({
            "metadata": {"annotations": {"a": "b", "alpha.image-policy.k8s.io/break-glass": "yes"}},
            "spec": {"initContainers": [{"image": "i"}], "containers": [{"image": "c", "name": "n"}, {}],
                "ephemeralContainers": [{"image": "e"}]},
        });
        let told = |subresource: &str| asked(subresource).map(|lists| spec(&pod, lists, "ns"));
        let annotations = "\"annotations\":{\"alpha.image-policy.k8s.io/break-glass\":\"yes\"},\"namespace\":\"ns\"";
        let expect = format!(
            "{{\"containers\":[{{\"image\":\"c\"}},{{}},{{\"image\":\"i\"}}],{annotations}}}"
        );
        assert_eq!(told(""), Some(expect));
        let expect = format!("{{\"containers\":[{{\"image\":\"e\"}}],{annotations}}}");
        assert_eq!(told("ephemeralcontainers"), Some(expect));
        assert_eq!(told("status"), None);
        let body: Value = serde_json::from_str(&body("{}")).unwrap();
        assert_eq!(
            (&body["kind"], &body["spec"]),
            (&json!("ImageReview"), &json!({}))
        );
    }

    #[test]
    fn an_answer_is_an_image_review() {
        let review = |version: &str, status: Value| {
            let review = json!({"apiVersion": version, "kind": "ImageReview", "status": status});
            read(review.to_string().as_bytes())
        };
        let audit = json!({"allowed": false, "reason": "r", "auditAnnotations": {"k": "v"}});
        let expect = Verdict {
            is_allowed: false,
            reason: "r".to_owned(),
            audit: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        };
        assert_eq!(review(API_VERSION, audit), Ok(expect));
        let unsaid = review(API_VERSION, json!({})).unwrap();
        assert!(!unsaid.is_allowed);
        let other = review("imagepolicy.k8s.io/v1", json!({"allowed": true})).unwrap_err();
        let expect = "expected ImageReview of imagepolicy.k8s.io/v1alpha1, got \"ImageReview\" of \"imagepolicy.k8s.io/v1\"";
        assert_eq!(other, expect);
        assert!(read(b"<html>").is_err() && read(b"{}").is_err());
    }
}
