//! `serviceaccounts/token`: a signed token for an account, perhaps bound to a pod.
//!
//! Source: `pkg/registry/core/serviceaccount/storage/token.go` at v1.37.

mod audience;

use coracle_api::{
    meta,
    resource::{GroupResource, Gvk},
    status::{FieldErrors, Status},
};
use coracle_auth::authn::service_account::{ISSUER, TokenSubject, claims};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{endpoints::Call, reply::Reply};

const DEFAULT_SECS: i64 = 3600;
const MIN_SECS: i64 = 600;
const MAX_SECS: i64 = 1 << 32;
/// Tokens of an hour get a year, refreshed by who mounts them, so that old clients do not fail.
const LONGEST_SECS: i64 = 365 * 24 * 3600;

/// Mints a token.
pub(super) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    let gvk = Gvk::new("authentication.k8s.io", "v1", "TokenRequest");
    let decoded = call.decode(&gvk)?;
    let mut request = decoded.object;
    let name = call.info.name.as_ref();
    if !matches!(meta::name(&request), own if own.is_empty() || own == name) {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            meta::name(&request)
        )));
    }
    let namespace = call.info.namespace.as_ref();
    if !matches!(meta::namespace(&request), own if own.is_empty() || own == namespace) {
        let message = format!(
            "the namespace of the provided object does not match the namespace sent on the request: {} is not {namespace}",
            meta::namespace(&request)
        );
        return Err(Status::bad_request(message));
    }
    let seconds = meta::get_i64(&request, &["spec", "expirationSeconds"]).unwrap_or(DEFAULT_SECS);
    check(seconds).map_err(|errors| Status::invalid(&gvk, name, errors))?;
    let account = fetch(call, "serviceaccounts", name).await?;
    let (asked, uid) = (meta::uid(&request), meta::uid(&account));
    if !asked.is_empty() && asked != uid {
        let why = format!(
            "the UID in the token request ({asked}) does not match the UID of the service account ({uid})"
        );
        return Err(Status::conflict(
            &GroupResource::new(gvk.group.as_str(), gvk.kind.as_str()),
            name,
            why,
        ));
    }
    let Bound {
        object: bound,
        node,
    } = bound(call, &request, seconds).await?;
    let mut audiences: Vec<String> = meta::get_array(&request, &["spec", "audiences"])
        .iter()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let now = Timestamp::now();
    // Whoever asks for more is not refused: the answer says how long it is good.
    let expires_secs = now.as_second() + seconds.min(LONGEST_SECS);
    let subject = TokenSubject {
        namespace: call.info.namespace.as_ref().to_owned(),
        account: name.to_owned(),
        account_uid: uid.to_owned(),
        bound,
        node,
        audiences: audiences.clone(),
        expires_secs,
    };
    let token = call.server.signer.sign(&claims(&subject, now.as_second()));
    let token = token.ok_or_else(|| Status::internal("failed to generate token"))?;
    let expiration = Timestamp::from_second(expires_secs).map_err(Status::internal)?;
    request["metadata"] = json!({"name": name, "namespace": call.info.namespace, "creationTimestamp": meta::time(now)});
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = seconds.into();
    request["status"] = json!({"token": token, "expirationTimestamp": meta::time(expiration)});
    Ok(Reply::value(&request)
        .with_status(StatusCode::CREATED)
        .with_warnings(decoded.warnings))
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
    /// Kind, name and UID.
    object: Option<(String, String, String)>,
    /// Name and UID of the node of the pod.
    node: Option<(String, String)>,
}

async fn bound(call: &Call<'_>, request: &Value, seconds: i64) -> Result<Bound, Status> {
    let reference = &request["spec"]["boundObjectRef"];
    let text = |field: &str| meta::get_str(reference, &[field]);
    let forbidden =
        |why: &str| Status::forbidden(&call.resource.group_resource, &call.info.name, why);
    if !reference.is_object() {
        if call.user.node_name().is_some() {
            return Err(forbidden("node requested token not bound to a pod"));
        }
        return Ok(Bound::default());
    }
    let plural = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => "pods",
        ("v1", "Secret") => "secrets",
        ("v1", "Node") => "nodes",
        (version, kind) => {
            let message = format!(
                "cannot bind token for serviceaccount {:?} to object kind {version}, Kind={kind}",
                call.info.name
            );
            return Err(Status::bad_request(message));
        }
    };
    let by_node = call.user.node_name();
    // Only the UID tells its pod from another of that name on another node.
    if by_node.is_some() && text("uid").is_empty() {
        return Err(forbidden(
            "node requested token with a pod binding without a uid",
        ));
    }
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
    if plural == "pods" {
        let account = meta::get_str(&object, &["spec", "serviceAccountName"]);
        if account != call.info.name {
            let message = format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                call.info.name
            );
            return Err(Status::bad_request(message));
        }
    }
    if let Some(node) = by_node {
        if plural != "pods" || meta::get_str(&object, &["spec", "nodeName"]) != node {
            return Err(forbidden(
                "node requested token bound to a pod scheduled on a different node",
            ));
        }
        audience::check(call, &object, request, seconds).await?;
    }
    let node = meta::get_str(&object, &["spec", "nodeName"]);
    let node = if plural == "pods" && !node.is_empty() {
        // A node that has gone has none, and the token is good all the same.
        let uid = fetch(call, "nodes", node)
            .await
            .map(|node| meta::uid(&node).to_owned());
        Some((node.to_owned(), uid.unwrap_or_default()))
    } else {
        None
    };
    Ok(Bound {
        object: Some((
            text("kind").to_owned(),
            text("name").to_owned(),
            uid.to_owned(),
        )),
        node,
    })
}
