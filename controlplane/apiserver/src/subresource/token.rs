//! `serviceaccounts/token`: a signed token for an account, perhaps bound to a pod.
//!
//! Source: `pkg/registry/core/serviceaccount/storage/token.go` at v1.37.

use coracle_admission::Operation;
use coracle_api::{
    meta,
    resource::{GroupResource, Gvk},
    status::{FieldErrors, Status},
};
use coracle_auth::authn::service_account::{
    BoundObject, ISSUER, ObjectIdentity, TokenSubject, claims,
};
use coracle_registry::fill;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    endpoints::{Call, update::check_name_if_any},
    reply::Reply,
};

const DEFAULT_SECS: i64 = 3600;
const MIN_SECS: i64 = 600;
const MAX_SECS: i64 = 1 << 32;
/// No token lives longer. Upstream gives pods' tokens of an hour this year as well, for clients
/// that read theirs once; here they end when they say.
const LONGEST_SECS: i64 = 365 * 24 * 3600;

/// Mints a token.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    let gvk = Gvk::new("authentication.k8s.io", "v1", "TokenRequest");
    let options = call.write_options()?;
    let decoded = call.decode(&gvk)?;
    let mut request = decoded.object;
    fill::object(&mut request, "spec");
    fill::number(&mut request["spec"], "expirationSeconds", DEFAULT_SECS);
    let admission = call.admission_request(Operation::Create, options);
    let mutated = call
        .server
        .mutated(admission.about(&mut request, None))
        .await?;
    check_name_if_any(call, &request)?;
    let account = fetch(call, "serviceaccounts", &call.info.name).await?;
    check_account(call, &gvk, &request, &account)?;
    let now = Timestamp::now();
    complete(call, &mut request, now);
    let seconds = meta::get_i64(&request, &["spec", "expirationSeconds"]).unwrap_or(DEFAULT_SECS);
    check(seconds).map_err(|errors| Status::invalid(&gvk, &call.info.name, errors))?;
    let validated = call
        .server
        .validated(admission.about(&mut request, None))
        .await?;
    let Bound { object, node } = bound(call, &request).await?;
    // Whoever asks for more is not refused: the answer says how long it is good.
    let expires_secs = now.as_second() + seconds.min(LONGEST_SECS);
    let subject = TokenSubject {
        namespace: call.info.namespace.as_ref().to_owned(),
        account: call.info.name.as_ref().to_owned(),
        account_uid: meta::uid(&account).to_owned(),
        bound: object,
        node,
        audiences: audiences(&request),
        expires_secs,
    };
    let token = call.server.signer.sign(&claims(&subject, now.as_second()));
    let token = token.ok_or_else(|| Status::internal("failed to generate token"))?;
    let expiration = Timestamp::from_second(expires_secs).map_err(Status::internal)?;
    request["status"] = json!({"token": token, "expirationTimestamp": meta::time(expiration)});
    let warnings = [decoded.warnings, mutated.warnings, validated.warnings].concat();
    Ok(Reply::value(&request)
        .with_status(StatusCode::CREATED)
        .with_warnings(warnings))
}

/// The account is the one that is meant, if the request says which.
fn check_account(
    call: &Call<'_>,
    gvk: &Gvk,
    request: &Value,
    account: &Value,
) -> Result<(), Status> {
    let (asked, uid) = (meta::uid(request), meta::uid(account));
    if asked.is_empty() || asked == uid {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
    );
    let resource = GroupResource::new(gvk.group.as_str(), gvk.kind.as_str());
    Err(Status::conflict(&resource, &call.info.name, why))
}

/// Says in the request what it leaves to the server, for those who look at it and for the answer.
fn complete(call: &Call<'_>, request: &mut Value, now: Timestamp) {
    if audiences(request).is_empty() {
        request["spec"]["audiences"] = json!([ISSUER]);
    }
    request["metadata"] = json!({"name": call.info.name, "namespace": call.info.namespace,
        "creationTimestamp": meta::time(now)});
}

fn audiences(request: &Value) -> Vec<String> {
    let audiences = meta::get_array(request, &["spec", "audiences"]).iter();
    audiences
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect()
}

fn check(seconds: i64) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    if seconds < MIN_SECS {
        errors.invalid(
            "spec.expirationSeconds",
            &json!(seconds),
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > MAX_SECS {
        errors.invalid(
            "spec.expirationSeconds",
            &json!(seconds),
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

async fn fetch(call: &Call<'_>, plural: &str, name: &str) -> Result<Value, Status> {
    let resource = call
        .server
        .registry
        .core(plural)
        .ok_or_else(Status::no_such_path)?;
    let key = resource.key(&call.info.namespace, name);
    let current = call.server.store.current(resource, &key).await?;
    current
        .map(|current| current.object)
        .ok_or_else(|| Status::not_found(&resource.group_resource, name))
}

/// What a token is to be bound to.
#[derive(Default)]
struct Bound {
    object: Option<BoundObject>,
    /// The node of the pod.
    node: Option<ObjectIdentity>,
}

/// The object that is named, if it is there and the token may be bound to it. Whether a node may
/// have such a token is NodeRestriction's.
async fn bound(call: &Call<'_>, request: &Value) -> Result<Bound, Status> {
    let reference = &request["spec"]["boundObjectRef"];
    let text = |field: &str| meta::get_str(reference, &[field]);
    if !reference.is_object() {
        return Ok(Bound::default());
    }
    let account = call.info.name.as_ref();
    let plural = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => "pods",
        ("v1", "Secret") => "secrets",
        ("v1", "Node") => "nodes",
        (version, kind) => {
            let message = format!(
                "cannot bind token for serviceaccount {account:?} to object kind {version}, Kind={kind}"
            );
            return Err(Status::bad_request(message));
        }
    };
    let object = fetch(call, plural, text("name")).await?;
    let uid = meta::uid(&object);
    if !text("uid").is_empty() && text("uid") != uid {
        let why = format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        );
        let resource = GroupResource::new("", plural);
        return Err(Status::conflict(&resource, text("name"), why));
    }
    let mut node = None;
    if plural == "pods" {
        if meta::get_str(&object, &["spec", "serviceAccountName"]) != account {
            let message = format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            );
            return Err(Status::bad_request(message));
        }
        node = node_of(call, &object).await;
    }
    Ok(Bound {
        object: Some(BoundObject {
            kind: text("kind").to_owned(),
            object: ObjectIdentity {
                name: text("name").to_owned(),
                uid: uid.to_owned(),
            },
        }),
        node,
    })
}

/// The node that a pod is on. One that has gone has no UID, and the token is good all the same.
async fn node_of(call: &Call<'_>, pod: &Value) -> Option<ObjectIdentity> {
    let node = meta::get_str(pod, &["spec", "nodeName"]);
    if node.is_empty() {
        return None;
    }
    let uid = fetch(call, "nodes", node)
        .await
        .map(|node| meta::uid(&node).to_owned());
    Some(ObjectIdentity {
        name: node.to_owned(),
        uid: uid.unwrap_or_default(),
    })
}
