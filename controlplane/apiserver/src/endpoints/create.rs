//! POST to a collection.

use coracle_api::{
    meta,
    status::{Cause, Status},
};
use coracle_auth::authz::{self, Attributes, ResourceTarget, Target};
use coracle_registry::{
    managed_fields::FieldManager,
    store::{WriteOptions, Written},
    strategy::Scope,
};
use serde_json::Value;

use super::Call;
use crate::{admission, reply::Reply};

/// Makes an object.
pub(crate) async fn create(call: &Call<'_>) -> Result<Reply, Status> {
    call.shape()?;
    let options = call.write_options()?;
    let decoded = call.decode(&call.resource.gvk)?;
    let written = make(call, decoded.object, options, &call.field_manager()).await?;
    call.written(written, decoded.warnings)
}

/// Asks whether the user may make what a PUT or an apply found missing: they were let in for another verb.
///
/// # Errors
/// 403 if not.
pub(super) fn authorize(call: &Call<'_>) -> Result<(), Status> {
    let target = ResourceTarget {
        group: call.info.group,
        resource: call.info.resource,
        namespace: &call.info.namespace,
        name: &call.info.name,
        ..ResourceTarget::default()
    };
    let attributes = Attributes { user: call.user, verb: "create", target: Target::Resource(target) };
    if call.server.authorizer.allows(&attributes) { Ok(()) } else { Err(authz::denied(&attributes, "")) }
}

/// Admits and writes a new object, wherever it comes from.
pub(crate) async fn make(
    call: &Call<'_>,
    mut object: Value,
    options: WriteOptions,
    manager: &FieldManager,
) -> Result<Written, Status> {
    let namespace = namespace_for_create(call)?;
    ensure_namespace(call, &namespace, meta::name(&object)).await?;
    admission::mutate_new(call, &namespace, &mut object).await?;
    call.server.create(call.resource, &namespace, object, options, Some(manager)).await
}

fn namespace_for_create(call: &Call<'_>) -> Result<String, Status> {
    if call.resource.info.scope == Scope::Cluster {
        return Ok(String::new());
    }
    if call.info.namespace.is_empty() {
        // POST to /api/v1/pods: upstream has no such route.
        return Err(Status::method_not_supported(&call.resource.group_resource, "create"));
    }
    Ok(call.info.namespace.as_ref().to_owned())
}

/// New content needs a namespace that lives.
///
/// Source: `k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go`.
pub(crate) async fn ensure_namespace(call: &Call<'_>, namespace: &str, name: &str) -> Result<(), Status> {
    if namespace.is_empty() {
        return Ok(());
    }
    let Some(namespaces) = call.server.registry.core("namespaces") else { return Ok(()) };
    let key = namespaces.key("", namespace);
    let is_terminating = match namespaces.cache.get(&key) {
        Some(entry) => entry.is_terminating(),
        // Perhaps just made: the cache may be behind the store.
        None => match call.server.store.fresh(&key).await? {
            Some(current) => meta::is_terminating(&current.object),
            None => return Err(Status::not_found(&namespaces.group_resource, namespace)),
        },
    };
    if !is_terminating {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&call.resource.group_resource, name, why);
    status.details.get_or_insert_default().causes.push(Cause {
        kind: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(status)
}
