//! Reviews of oneself: who am I, and what may I do. Nothing is stored.
//!
//! Source: `pkg/registry/authorization`, `pkg/registry/authentication/selfsubjectreview` at v1.37.

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::{
    decode::{self, FieldValidation},
    meta,
    resource::Gvk,
    status::{FieldErrors, Status},
};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::{
    authz::{Attributes, Decision, ResourceTarget, Target},
    endpoints::content_type,
    reply::Reply,
    request_info::{ResourceRequest, Verb},
    server::ApiServer,
    user::{GROUP_MASTERS, UserInfo},
};

/// The kind that a resource of reviews speaks; `None` if it is none.
pub(crate) fn kind(request: &ResourceRequest<'_>) -> Option<&'static str> {
    match (request.group, request.version, request.resource) {
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some("SelfSubjectReview"),
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some("SelfSubjectAccessReview"),
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some("SelfSubjectRulesReview"),
        _ => None,
    }
}

/// Answers a review.
pub(crate) fn create(
    server: &Arc<ApiServer>,
    user: &UserInfo,
    request: &ResourceRequest<'_>,
    kind: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Reply, Status> {
    if request.verb != Verb::Create {
        let resource = coracle_api::resource::GroupResource::new(request.group, request.resource);
        return Err(Status::method_not_supported(&resource, request.verb.as_str()));
    }
    let gvk = Gvk::new(request.group, request.version, kind);
    let mut review = decode::decode(body, content_type(headers)?, &gvk, FieldValidation::Ignore)?.object;
    review["status"] = match kind {
        "SelfSubjectReview" => json!({"userInfo": {"username": user.name, "uid": user.uid, "groups": user.groups}}),
        "SelfSubjectAccessReview" => {
            access(server, user, &review["spec"]).map_err(|errors| Status::invalid(&gvk, "", errors))?
        }
        _ => rules(user),
    };
    Ok(Reply::value(&review).with_status(StatusCode::CREATED))
}

fn access(server: &ApiServer, user: &UserInfo, spec: &Value) -> Result<Value, FieldErrors> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == path.is_object() {
        let mut errors = FieldErrors::default();
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid("spec.resourceAttributes", resource, detail);
        return Err(errors);
    }
    let text = |field: &str| meta::get_str(resource, &[field]);
    let attributes = if path.is_object() {
        Attributes { user, verb: meta::get_str(path, &["verb"]), target: Target::Path(meta::get_str(path, &["path"])) }
    } else {
        let target = ResourceTarget {
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            field_selector: None,
        };
        Attributes { user, verb: text("verb"), target: Target::Resource(target) }
    };
    Ok(match server.authorizer.explain(&attributes) {
        Decision::Allow(reason) => json!({"allowed": true, "reason": reason}),
        Decision::NoOpinion(reason) => json!({"allowed": false, "reason": reason}),
    })
}

fn rules(user: &UserInfo) -> Value {
    let (mut resources, mut paths) = (Vec::new(), vec!["/healthz", "/livez", "/readyz", "/version"]);
    if user.is_in(GROUP_MASTERS) {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths = vec!["*"];
    } else {
        paths.extend(["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]);
    }
    resources.push(json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}));
    resources.push(
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
    );
    json!({"resourceRules": resources, "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": paths}], "incomplete": false})
}
