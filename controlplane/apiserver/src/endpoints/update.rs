//! PUT of an object or of its status.

use coracle_admission::Operation;
use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Reason, Status},
};
use coracle_registry::{
    managed_fields::FieldManager,
    part::Part,
    store::{WriteOptions, Written},
};
use serde_json::Value;

use super::{Call, create};
use crate::reply::Reply;

/// An object that comes and goes between looking for it and making it.
const TRIES: usize = 5;

/// Replaces the part of the object that the path names.
pub(crate) async fn update(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let decoded = call.decode(&call.resource.gvk)?;
    check_name(call, &decoded.object)?;
    let manager = call.field_manager();
    let (request, target) = (
        call.admission_request(Operation::Update, options),
        call.update_target(part, options, &manager),
    );
    // Few races are lost: what was sent is read again after one, not copied for every request.
    let mut sent = Some(decoded.object);
    let mut again = || match sent.take() {
        Some(object) => Ok(object),
        None => call
            .decode(&call.resource.gvk)
            .map(|decoded| decoded.object),
    };
    for _ in 0..TRIES {
        let replace = |_: &Value| again().and_then(|object| versioned(call, object));
        match call
            .server
            .update(call.resource, &request, target, replace)
            .await
        {
            Err(status)
                if status.code == 404
                    && part == Part::Main
                    && call.resource.info.create_on_update
                    && is_missing(call).await? => {}
            other => return call.write_reply(other?, decoded.warnings),
        }
        match make(call, again()?, options, &manager).await {
            Err(status) if status.reason == Reason::AlreadyExists && !is_missing(call).await? => {}
            other => return call.write_reply(other?, decoded.warnings),
        }
    }
    Err(Status::modified(
        &call.resource.group_resource,
        &call.info.name,
    ))
}

/// An object for an update; those of some kinds have to say which version they replace.
fn versioned(call: &Call<'_>, object: Value) -> Result<Value, Status> {
    if call.resource.info.unconditional_update
        || !matches!(meta::resource_version(&object), "" | "0")
    {
        return Ok(object);
    }
    let mut errors = FieldErrors::default();
    errors.invalid_text(
        "metadata.resourceVersion",
        "0x0",
        "must be specified for an update",
    );
    // Upstream names the resource here, not the kind.
    let info = &call.resource.info;
    Err(Status::invalid(
        &Gvk::new(&*info.group, &*info.version, &*info.plural),
        &call.info.name,
        errors,
    ))
}

/// Whether there is no such object. That there is none, or one already, may be
/// what a webhook says, too: then it is its answer.
pub(super) async fn is_missing(call: &Call<'_>) -> Result<bool, Status> {
    let stored = call.resource.storing();
    let namespace = match stored.is_namespaced() {
        true => call.info.namespace.as_ref(),
        false => "",
    };
    let key = stored.key(namespace, call.info.name.as_ref());
    // The cache may be behind what the store has said.
    let stored = call.server.store.fresh(&key).await?;
    Ok(stored.is_none())
}

/// Makes what is not there, if the user may make it. What names a version or an identity was there
/// once.
async fn make(
    call: &Call<'_>,
    object: Value,
    options: WriteOptions,
    manager: &FieldManager,
) -> Result<Written, Status> {
    let resource = &call.resource.group_resource;
    if !matches!(meta::resource_version(&object), "" | "0") {
        return Err(Status::modified(resource, &call.info.name));
    }
    let uid = meta::uid(&object);
    if !uid.is_empty() {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
        return Err(Status::conflict(resource, &call.info.name, why));
    }
    create::authorize(call).await?;
    create::make(call, object, options, manager).await
}

/// The object must be the one that the URL names.
pub(crate) fn check_name(call: &Call<'_>, object: &serde_json::Value) -> Result<(), Status> {
    let (name, url) = (meta::name(object), call.info.name.as_ref());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    check_namespace(call, object)
}

/// The object is the one that the URL names, or does not say which it is.
pub(crate) fn check_name_if_any(call: &Call<'_>, object: &serde_json::Value) -> Result<(), Status> {
    if meta::name(object).is_empty() {
        return check_namespace(call, object);
    }
    check_name(call, object)
}

/// The object names no other namespace than the URL.
fn check_namespace(call: &Call<'_>, object: &serde_json::Value) -> Result<(), Status> {
    let namespace = meta::namespace(object);
    if call.resource.is_namespaced() && !namespace.is_empty() && namespace != call.info.namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
            call.info.namespace
        )));
    }
    Ok(())
}
