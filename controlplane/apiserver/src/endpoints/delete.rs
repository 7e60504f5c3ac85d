//! DELETE of one object, and of a collection.

use coracle_admission::{Operation, Request};
use coracle_api::{
    decode, meta,
    resource::Gvk,
    status::{FieldErrors, Status},
};
use coracle_registry::store::{
    WriteOptions, cache_status,
    delete::{DeleteOptions, Deleted, Propagation},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, content_type, list};
use crate::{
    list_options::{self, ListOptions},
    reply::Reply,
};

/// Kinds whose last state is the answer to their deletion; others answer with a Status.
///
/// Source: `ReturnDeletedObject` in `pkg/registry/core/*/storage/storage.go` at v1.37.
const RETURNED: &[&str] = &[
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
];

/// Deletes one object.
pub(crate) async fn delete(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let options = parse_options(call)?;
    match call
        .server
        .delete(&request(call, &options), &options)
        .await?
    {
        Deleted::Gone { json, .. }
            if call.resource.info.group.is_empty()
                && RETURNED.contains(&&*call.resource.info.plural) =>
        {
            Ok(call.object_reply(json, shape))
        }
        Deleted::Gone { object, .. } => Ok(Reply::value(&success(call, &object))),
        Deleted::Waiting { json } => {
            let status = match options.propagation {
                Some(Propagation::Background) if asked_by_orphan_flag(call) => StatusCode::ACCEPTED,
                _ => StatusCode::OK,
            };
            Ok(call.object_reply(json, shape).with_status(status))
        }
    }
}

/// Deletes what a list with the same parameters shows.
pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Reply, Status> {
    call.shape()?;
    let options = parse_options(call)?;
    let list_options = ListOptions::parse(call.query, false)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let found = list::read(call, &list_options, selection)
        .await
        .map_err(cache_status)?;
    let mut items = Vec::with_capacity(found.entries.len());
    for entry in &found.entries {
        let namespace = entry.namespace().unwrap_or_default();
        let request = Request {
            namespace,
            name: entry.name(),
            ..request(call, &options)
        };
        match call.server.delete(&request, &options).await {
            Ok(_) => items.push(call.resource.shown_json(entry.json_bytes())),
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let head = format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}},"items":["#,
        call.resource.info.kind,
        call.resource.gvk.api_version(),
        found.revision
    );
    let body = [head.as_bytes(), &items.join(&b","[..]), b"]}\n"].concat();
    Ok(Reply::json(body))
}

fn request<'a>(call: &'a Call<'_>, options: &DeleteOptions) -> Request<'a> {
    call.admission_request(
        Operation::Delete,
        WriteOptions {
            dry_run: options.dry_run,
        },
    )
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let info = &call.resource.info;
    let mut details =
        json!({"name": meta::name(object), "kind": info.plural, "uid": meta::uid(object)});
    if !info.group.is_empty() {
        details["group"] = (*info.group).into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn asked_by_orphan_flag(call: &Call<'_>) -> bool {
    call.query.flag("orphanDependents").is_some()
}

/// From the body, or else from the query.
fn parse_options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    let dry_run = call.write_options()?.dry_run;
    let body = if call.body.is_empty() {
        None
    } else {
        decode::decode_options(&call.body, content_type(call.headers)?, "DeleteOptions")?
    };
    let mut errors = FieldErrors::default();
    let mut options = DeleteOptions {
        dry_run,
        ..DeleteOptions::default()
    };
    let (mut policy, mut orphan) = (None, None);
    if let Some(body) = &body {
        options.grace_secs = body.get("gracePeriodSeconds").and_then(Value::as_i64);
        let precondition = |field: &str| {
            meta::get(body, &["preconditions", field])
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        options.uid = precondition("uid");
        options.resource_version = precondition("resourceVersion");
        policy = body
            .get("propagationPolicy")
            .and_then(Value::as_str)
            .map(str::to_owned);
        orphan = body.get("orphanDependents").and_then(Value::as_bool);
        for value in meta::get_array(body, &["dryRun"]) {
            options.dry_run = true;
            if value != "All" {
                errors.not_supported("dryRun", value, &["All"]);
            }
        }
    }
    options.grace_secs = options
        .grace_secs
        .or(call.query.integer("gracePeriodSeconds")?);
    let policy = policy.or_else(|| call.query.text("propagationPolicy").map(str::to_owned));
    let orphan = orphan.or_else(|| call.query.flag("orphanDependents"));
    if policy.is_some() && orphan.is_some() {
        errors.invalid(
            "propagationPolicy",
            &json!(policy),
            "orphanDependents and deletionPropagation cannot be both set",
        );
    }
    options.propagation = match (policy.as_deref(), orphan) {
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (None, None) => None,
        (Some(other), _) => {
            errors.not_supported(
                "propagationPolicy",
                &json!(other),
                &["Background", "Foreground", "Orphan"],
            );
            None
        }
    };
    if errors.is_empty() {
        return Ok(options);
    }
    Err(Status::invalid(
        &Gvk::new("meta.k8s.io", "v1", "DeleteOptions"),
        "",
        errors,
    ))
}
