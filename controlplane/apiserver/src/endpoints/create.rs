//! POST to a collection.

use coracle_admission::{Operation, Request};
use coracle_api::status::Status;
use coracle_auth::authz::{Attributes, ResourceTarget, Target};
use coracle_registry::{
    managed_fields::FieldManager,
    store::{WriteOptions, Written},
};
use serde_json::Value;

use super::Call;
use crate::reply::Reply;

/// Makes an object.
pub(crate) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let decoded = call.decode(&call.resource.gvk)?;
    let written = make(call, decoded.object, options, &call.field_manager()).await?;
    call.write_reply(written, decoded.warnings)
}

/// Asks whether the user may make what a PUT or an apply found missing: they were let in for
/// another verb.
///
/// # Errors
/// 403 if not, 429 if too many wait for an answer.
pub(super) async fn authorize(call: &Call<'_>) -> Result<(), Status> {
    let target = ResourceTarget {
        group: call.info.group,
        resource: call.info.resource,
        namespace: &call.info.namespace,
        name: &call.info.name,
        ..ResourceTarget::default()
    };
    let attributes = Attributes {
        user: call.user,
        verb: "create",
        target: Target::Resource(target),
    };
    call.server.authorize(call.requester, &attributes).await
}

/// Admits and writes a new object, wherever it comes from.
pub(crate) async fn make(
    call: &Call<'_>,
    object: Value,
    options: WriteOptions,
    manager: &FieldManager,
) -> Result<Written, Status> {
    let request = call.admission_request(Operation::Create, options);
    if call.resource.is_namespaced() && request.namespace.is_empty() {
        // POST to /api/v1/pods: upstream has no such route.
        return Err(Status::method_not_supported(
            &call.resource.group_resource,
            "create",
        ));
    }
    let request = Request {
        subresource: "",
        ..request
    };
    call.server
        .create(call.resource, &request, object, manager)
        .await
}
