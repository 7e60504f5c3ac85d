//! DELETE of one object, and of a collection.

use coracle_admission::{Operation, Request, Told};
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

use super::{Call, Shape, content_type, list};
use crate::{
    list_options::{self, ListOptions, ListVerb},
    reply::Reply,
    table::{ListMeta, accept::Form},
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
    let asked = Asked::of(call)?;
    let options = asked.options()?;
    let request = request(call, &options);
    let deleting = call.server.delete(call.resource, &request, &options);
    let (deleted, warnings) = deleting.await?;
    let reply = match deleted {
        Deleted::Gone { json, .. }
            if call.resource.info.group.is_empty()
                && RETURNED.contains(&&*call.resource.info.plural) =>
        {
            call.object_reply(json, shape)
        }
        Deleted::Gone { object, .. } => Reply::value(&success(call, &object)),
        Deleted::Waiting { json } => {
            let status = if asked.cascades_by_flag() {
                StatusCode::ACCEPTED
            } else {
                StatusCode::OK
            };
            call.object_reply(json, shape).with_status(status)
        }
    };
    Ok(reply.with_warnings(warnings))
}

/// Deletes what a list with the same parameters shows.
pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = Shape {
        form: Form::Object,
        ..call.shape()?
    };
    let options = Asked::of(call)?.options()?;
    let list_options = ListOptions::parse(call.query, ListVerb::List)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let found = list::read(call, &list_options, selection)
        .await
        .map_err(cache_status)?;
    let revision = found.result.revision.to_string();
    let fields = list_options::converted_fields(call.resource, call.query)?;
    let mut objects = list::objects(call, shape, found, fields.as_ref()).await?;
    let mut deleted = Vec::with_capacity(objects.entries.len());
    let mut warnings = Vec::new();
    for entry in objects.entries {
        let namespace = entry.namespace().unwrap_or_default();
        let request = Request {
            namespace,
            name: entry.name(),
            ..request(call, &options)
        };
        match call.server.delete(call.resource, &request, &options).await {
            Ok((_, told)) => {
                deleted.push(entry);
                warnings.extend(told);
            }
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status.after(&warnings)),
        }
    }
    let meta = ListMeta {
        resource_version: &revision,
        ..ListMeta::default()
    };
    objects.entries = deleted;
    let reply = Reply::json(list::list_of(call, shape, &meta, objects));
    Ok(reply.with_warnings(warnings))
}

fn request<'a>(call: &'a Call<'_>, options: &'a DeleteOptions) -> Request<'a> {
    let dry_run = options.dry_run;
    let request = call.admission_request(Operation::Delete, WriteOptions { dry_run });
    let told = Told {
        delete: Some(options),
        ..request.told
    };
    Request { told, ..request }
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

/// What a client asks for, as it sent it.
#[derive(Default)]
struct Asked {
    grace_secs: Option<i64>,
    uid: Option<String>,
    resource_version: Option<String>,
    policy: Option<String>,
    orphan: Option<bool>,
    dry_run: Vec<Value>,
}

impl Asked {
    /// From the body, or else from the query: never from both, but for a dry run. Upstream passes
    /// over the query's there too, and deletes what was not to be deleted.
    fn of(call: &Call<'_>) -> Result<Self, Status> {
        let body = if call.body.is_empty() {
            None
        } else {
            decode::decode_options(&call.body, content_type(call.headers)?, "DeleteOptions")?
        };
        let in_query: Vec<Value> = call.query.all("dryRun").map(Value::from).collect();
        let Some(body) = body else {
            // Of a collection the version says which list it is.
            let precondition = |name: &str| {
                let value = call.query.text(name);
                value
                    .filter(|_| !call.info.name.is_empty())
                    .map(str::to_owned)
            };
            return Ok(Self {
                grace_secs: call.query.integer("gracePeriodSeconds")?,
                uid: precondition("uid"),
                resource_version: precondition("resourceVersion"),
                policy: call.query.get("propagationPolicy").map(str::to_owned),
                orphan: call.query.flag("orphanDependents"),
                dry_run: in_query,
            });
        };
        let text = |path: &[&str]| {
            let value = meta::get(&body, path).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        Ok(Self {
            grace_secs: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            policy: text(&["propagationPolicy"]),
            orphan: body.get("orphanDependents").and_then(Value::as_bool),
            dry_run: [in_query, meta::get_array(&body, &["dryRun"]).to_vec()].concat(),
        })
    }

    /// The old way of asking for the background, that clients ask for an answer of its own with.
    fn cascades_by_flag(&self) -> bool {
        self.orphan == Some(false)
    }

    fn options(&self) -> Result<DeleteOptions, Status> {
        let mut errors = FieldErrors::default();
        for value in self.dry_run.iter().filter(|value| **value != "All") {
            errors.not_supported("dryRun", value, &["All"]);
        }
        if self.policy.is_some() && self.orphan.is_some() {
            errors.invalid(
                "propagationPolicy",
                &json!(self.policy),
                "orphanDependents and deletionPropagation cannot be both set",
            );
        }
        let propagation = match (self.policy.as_deref(), self.orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (None, None) => None,
            (Some(other), _) => {
                let known = ["Background", "Foreground", "Orphan"];
                errors.not_supported("propagationPolicy", &json!(other), &known);
                None
            }
        };
        if !errors.is_empty() {
            let gvk = Gvk::new("meta.k8s.io", "v1", "DeleteOptions");
            return Err(Status::invalid(&gvk, "", errors));
        }
        Ok(DeleteOptions {
            grace_secs: self.grace_secs,
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            propagation,
            dry_run: !self.dry_run.is_empty(),
        })
    }
}
