//! PUT of an object or of its status.

use coracle_api::{meta, status::Status};

use serde_json::Value;

use super::Call;
use crate::{
    admission,
    registry::{owners::Owners, store::update::Part},
    reply::Reply,
};

/// Replaces the part of the object that the path names.
pub(crate) async fn update(call: &Call<'_>, part: Part) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let decoded = call.decode(&call.resource.gvk)?;
    check_name(call, &decoded.object)?;
    let (owners, admit) = (Owners::of(call), |new: &mut Value, old: &Value| admission::check_update(call, new, old));
    let target = admission::change(call, part, options, &admit, &owners);
    // Few races are lost: what was sent is read again after one, not copied for every request.
    let mut sent = Some(decoded.object);
    let replace = |_: &Value| match sent.take() {
        Some(object) => Ok(object),
        None => call.decode(&call.resource.gvk).map(|decoded| decoded.object),
    };
    let written = call.server.update(call.resource, &target, replace).await?;
    call.written(written, decoded.warnings)
}

/// The object must be the one that the URL names.
pub(crate) fn check_name(call: &Call<'_>, object: &serde_json::Value) -> Result<(), Status> {
    let (name, url) = (meta::name(object), call.info.name.as_ref());
    if name != url {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url})"
        )));
    }
    let namespace = meta::namespace(object);
    if call.resource.is_namespaced() && !namespace.is_empty() && namespace != call.info.namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({namespace}) does not match the namespace on the URL ({})",
            call.info.namespace
        )));
    }
    Ok(())
}
