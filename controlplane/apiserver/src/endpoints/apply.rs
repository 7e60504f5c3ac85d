//! PATCH with an apply configuration: makes the object, or takes over the fields that the configuration names.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/handlers/patch.go`, `applyPatcher` at v1.37.

use coracle_api::{
    decode::{self, ContentType, Decoded, FieldValidation},
    meta,
    resource::Gvk,
    status::{FieldErrors, Reason, Status},
};
use serde_json::Value;

use super::{Call, create, update::check_name};
use crate::{
    admission,
    authz::{self, Attributes, ResourceTarget, Target},
    registry::{
        owners::{self, Owners},
        store::{
            WriteOptions,
            update::{Change, Part},
        },
    },
    reply::Reply,
};

/// An object that comes and goes between reading and making it.
const TRIES: usize = 5;

/// Applies the body.
pub(crate) async fn apply(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    check_options(call)?;
    let force = call.query.flag("force").unwrap_or(false);
    let Decoded { object: mut config, warnings } = configuration(call)?;
    reset(call, part, &mut config);
    let owners = Owners::of_apply(call);
    let admit = |new: &mut Value, old: &Value| admission::check_update(call, new, old);
    let target = Change { tries: Some(TRIES), ..admission::change(call, part, options, &admit, &owners) };
    for _ in 0..TRIES {
        let change = |live: &Value| merge(call, &owners, live, &config, force);
        match call.server.update(call.resource, &target, change).await {
            Err(status) if status.code == 404 && part == Part::Main => {}
            other => return call.written(other?, warnings),
        }
        match make(call, &owners, &config, options).await {
            Err(status) if status.reason == Reason::AlreadyExists => {}
            other => return call.written(other?, warnings),
        }
    }
    Err(Status::modified(&call.resource.group_resource, &call.info.name))
}

/// Who applies has to say so.
fn check_options(call: &Call<'_>) -> Result<(), Status> {
    if call.query.text("fieldManager").is_some() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    errors.required("fieldManager", "is required for apply patch");
    Err(Status::invalid(&Gvk::new("meta.k8s.io", "v1", "PatchOptions"), "", errors))
}

/// The body as an object. Unlike elsewhere, what the schema does not know is an error: nobody could own it.
fn configuration(call: &Call<'_>) -> Result<Decoded, Status> {
    let gvk = &call.resource.gvk;
    let decoded = decode::decode(&call.body, ContentType::Yaml, gvk, FieldValidation::Warn)?;
    check_name(call, &decoded.object)?;
    let unknown =
        decoded.warnings.iter().find_map(|warning| warning.strip_prefix("unknown field \"")?.strip_suffix('"'));
    if let Some(field) = unknown {
        let (namespace, name, version) = (&call.info.namespace, &call.info.name, gvk.api_version());
        let place = if namespace.is_empty() { format!("/{name}") } else { format!("{namespace}/{name}") };
        let message = format!(
            "failed to create typed patch object ({place}; {version}, Kind={}): .{field}: field not declared in schema",
            gvk.kind
        );
        return Err(Status::new(500, Reason::Unknown, message));
    }
    match call.field_validation()? {
        FieldValidation::Warn => Ok(decoded),
        other => decode::decode(&call.body, ContentType::Yaml, gvk, other),
    }
}

/// Leaves out what this part of the object does not write, so that nobody comes to own it here.
fn reset(call: &Call<'_>, part: Part, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    match part {
        Part::Main if owners::has_status(call.resource) => drop(map.remove("status")),
        Part::Status => map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status")),
        _ => {}
    }
}

/// `live` with the configuration in it.
fn merge(call: &Call<'_>, owners: &Owners, live: &Value, config: &Value, force: bool) -> Result<Value, Status> {
    let mut merged = owners.apply(call.resource, Some(live), config, force)?;
    // A configuration without a version has no opinion on it.
    match meta::resource_version(config) {
        "" => drop(meta::remove(&mut merged, &["metadata", "resourceVersion"])),
        version => meta::set_text(&mut merged, "resourceVersion", version),
    }
    Ok(merged)
}

/// Makes the object, if the user may.
async fn make(
    call: &Call<'_>,
    owners: &Owners,
    config: &Value,
    options: WriteOptions,
) -> Result<crate::registry::store::Written, Status> {
    if !meta::uid(config).is_empty() {
        return Err(Status::not_found(&call.resource.group_resource, &call.info.name));
    }
    let target = ResourceTarget {
        group: call.info.group,
        resource: call.info.resource,
        namespace: &call.info.namespace,
        name: &call.info.name,
        ..ResourceTarget::default()
    };
    let attributes = Attributes { user: call.user, verb: "create", target: Target::Resource(target) };
    if !call.server.authorizer.allows(&attributes) {
        return Err(authz::denied(&attributes, ""));
    }
    let object = owners.apply(call.resource, None, config, false)?;
    create::make(call, object, options, owners).await
}
