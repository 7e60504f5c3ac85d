//! Questions about who somebody is and what they may do. Nothing is stored, and all the same
//! admission sees each as it is made: an object to create.
//!
//! Source: `pkg/registry/authorization`, `pkg/registry/authentication` and
//! `pkg/apis/authorization/validation` at v1.37.

mod selectors;

use std::sync::Arc;

use async_trait::async_trait;
use coracle_admission::{Operation, Request, Told};
use coracle_api::{
    decode::{self, FieldValidation},
    meta,
    status::{FieldErrors, Status},
};
use coracle_auth::{
    authn::service_account::ISSUER,
    authz::{Attributes, Decision, ResourceTarget, Target},
    user::UserInfo,
};
use coracle_registry::{
    api_resource::ApiResource,
    object_meta::match_namespace_of_request,
    store::cache_status,
    strategy::{ResourceInfo, Scope},
};
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::{
    catalog::{Call, Virtual},
    endpoints::content_type,
    reply::Reply,
    request_info::Verb,
    state::State,
    table::accept::takes_object,
};

static INFOS: [ResourceInfo; 6] = [
    of_group(
        AUTHENTICATION,
        "SelfSubjectReview",
        "selfsubjectreviews",
        "selfsubjectreview",
        Scope::Cluster,
    ),
    of_group(
        AUTHENTICATION,
        "TokenReview",
        "tokenreviews",
        "tokenreview",
        Scope::Cluster,
    ),
    of_group(
        AUTHORIZATION,
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        Scope::Namespaced,
    ),
    of_group(
        AUTHORIZATION,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        Scope::Cluster,
    ),
    of_group(
        AUTHORIZATION,
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
        Scope::Cluster,
    ),
    of_group(
        AUTHORIZATION,
        "SubjectAccessReview",
        "subjectaccessreviews",
        "subjectaccessreview",
        Scope::Cluster,
    ),
];

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const fn of_group(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    scope: Scope,
) -> ResourceInfo {
    ResourceInfo {
        kind,
        plural,
        singular,
        scope,
        verbs: &["create"],
        ..ResourceInfo::in_group(group, "v1")
    }
}

/// A resource of reviews.
struct Review(Arc<ApiResource>);

/// All of them.
pub(crate) fn resources() -> Vec<Arc<dyn Virtual<State>>> {
    let review = |info: &'static ResourceInfo| -> Arc<dyn Virtual<State>> {
        Arc::new(Review(Arc::new(info.into())))
    };
    INFOS.iter().map(review).collect()
}

#[async_trait]
impl Virtual<State> for Review {
    fn info(&self) -> &Arc<ApiResource> {
        &self.0
    }

    async fn serve(&self, call: Call<'_, State>) -> Result<Reply, Status> {
        create(&self.0, call).await
    }
}

/// Answers a review.
async fn create(about: &ApiResource, call: Call<'_, State>) -> Result<Reply, Status> {
    let Call { server, info, .. } = call;
    if info.verb != Verb::Create || !info.subresource.is_empty() || !info.name.is_empty() {
        return Err(Status::method_not_supported(
            &about.group_resource(),
            info.verb.as_str(),
        ));
    }
    let accept = call
        .headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !takes_object(accept) {
        return Err(Status::not_acceptable(&["application/json"]));
    }
    let request = Request {
        user: call.user,
        operation: Operation::Create,
        resource: about,
        subresource: "",
        namespace: &info.namespace,
        name: "",
        options: call.write_options()?,
        told: Told {
            kind: "CreateOptions",
            ..Told::default()
        },
    };
    let content = content_type(call.headers)?;
    let decoded = decode::decode(&call.body, content, &about.gvk(), FieldValidation::Ignore)?;
    let mut review = decoded.object;
    if about.is_namespaced() {
        match_namespace_of_request(&info.namespace, &mut review)?;
    }
    let mutated = server.mutated(request.about(&mut review, None)).await?;
    check(about, &info.namespace, &review["spec"])?;
    let validated = server.validated(request.about(&mut review, None)).await?;
    // A role that was written a moment ago counts.
    server.store.cache.catch_up().await.map_err(cache_status)?;
    review["status"] = answer(server, call.user, &about.kind, &review["spec"]).await;
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    if about.kind == "SelfSubjectReview" {
        review["metadata"]["creationTimestamp"] = meta::now().into();
    }
    Ok(Reply::value(&review)
        .with_status(StatusCode::CREATED)
        .with_warnings([mutated.warnings, validated.warnings].concat()))
}

/// Whether there is an answer to such a question.
fn check(about: &ApiResource, namespace: &str, spec: &Value) -> Result<(), Status> {
    let missing = |why: &str| Err(Status::bad_request(why));
    match &*about.kind {
        "SelfSubjectReview" => Ok(()),
        "TokenReview" if meta::get_str(spec, &["token"]).is_empty() => {
            missing("token is required for TokenReview in authentication")
        }
        "TokenReview" => Ok(()),
        "SelfSubjectRulesReview" if meta::get_str(spec, &["namespace"]).is_empty() => {
            missing("no namespace on request")
        }
        "SelfSubjectRulesReview" => Ok(()),
        kind => {
            let errors = validate(kind, spec);
            if !errors.is_empty() {
                return Err(Status::invalid(&about.gvk(), "", errors));
            }
            match kind {
                "LocalSubjectAccessReview" => check_namespace(spec, namespace),
                _ => Ok(()),
            }
        }
    }
}

/// The status of a review that can be answered.
async fn answer(server: &State, user: &UserInfo, kind: &str, spec: &Value) -> Value {
    match kind {
        "SelfSubjectReview" => json!({"userInfo": user.to_value()}),
        "TokenReview" => token(server, spec).await,
        "SelfSubjectRulesReview" => rules(server, user, spec),
        "SelfSubjectAccessReview" => access(server, user, spec),
        _ => access(server, &subject(spec), spec),
    }
}

// === access ===

fn validate(kind: &str, spec: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.invalid("spec.nonResourceAttributes", path, detail);
    }
    if !resource.is_object() && !path.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid("spec.resourceAttributes", resource, detail);
    }
    let is_named = !meta::get_str(spec, &["user"]).is_empty()
        || !meta::get_array(spec, &["groups"]).is_empty();
    if kind != "SelfSubjectAccessReview" && !is_named {
        errors.invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        );
    }
    if kind == "LocalSubjectAccessReview" && path.is_object() {
        errors.invalid(
            "spec.nonResourceAttributes",
            path,
            "disallowed on this kind of request",
        );
    }
    errors
}

fn check_namespace(spec: &Value, namespace: &str) -> Result<(), Status> {
    if meta::get_str(spec, &["resourceAttributes", "namespace"]) == namespace {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "spec.resourceAttributes.namespace must match namespace: {namespace}"
    )))
}

/// The subject that a review names.
fn subject(spec: &Value) -> UserInfo {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: meta::get_str(spec, &["user"]).to_owned(),
        uid: meta::get_str(spec, &["uid"]).to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values)))
            .collect(),
    }
}

fn access(server: &State, user: &UserInfo, spec: &Value) -> Value {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |field: &str| meta::get_str(resource, &[field]);
    let fields = selectors::of_fields(&resource["fieldSelector"]);
    let labels = selectors::of_labels(&resource["labelSelector"]);
    let attributes = if path.is_object() {
        Attributes {
            user,
            verb: meta::get_str(path, &["verb"]),
            target: Target::Path(meta::get_str(path, &["path"])),
        }
    } else {
        let target = ResourceTarget {
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            field_selector: fields.as_deref(),
            label_selector: labels.as_deref(),
        };
        Attributes {
            user,
            verb: text("verb"),
            target: Target::Resource(target),
        }
    };
    let (allowed, reason) = match server.authorizer.explain(&attributes) {
        Decision::Allow(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

// === rules ===

fn rules(server: &State, user: &UserInfo, spec: &Value) -> Value {
    let namespace = meta::get_str(spec, &["namespace"]);
    let (rules, missing) = server.authorizer.rbac.rules_for(user, namespace);
    let (paths, resources): (Vec<Value>, Vec<Value>) = rules
        .iter()
        .map(|rule| rule.to_value())
        .partition(|rule| rule.get("nonResourceURLs").is_some());
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !missing.is_empty() {
        status["evaluationError"] = missing.join(", ").into();
    }
    status
}

// === tokens ===

async fn token(server: &State, spec: &Value) -> Value {
    let token = meta::get_str(spec, &["token"]);
    let mut audiences: Vec<&str> = meta::get_array(spec, &["audiences"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if audiences.is_empty() {
        audiences.push(ISSUER);
    }
    match server.authenticator.token(token, &audiences).await {
        Some(accepted) => {
            json!({"authenticated": true, "user": accepted.user.to_value(), "audiences": accepted.audiences})
        }
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}
