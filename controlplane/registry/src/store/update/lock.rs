//! Optimistic locking: what an update says of the object that it is to replace.

use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use serde_json::{Value, json};

use super::{super::Current, UpdateTarget};
use crate::resource::Resource;

/// Whether the new object names a version; an error if it is not the present one.
pub(super) fn check_lock(
    resource: &Resource,
    target: &UpdateTarget<'_>,
    new: &Value,
    current: &Current,
) -> Result<bool, Status> {
    let uid = meta::uid(new);
    let own_uid = meta::uid(&current.object);
    if !uid.is_empty() && uid != own_uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {own_uid}"
        );
        return Err(Status::conflict(&resource.group_resource, target.name, why));
    }
    let version = meta::resource_version(new);
    if matches!(version, "" | "0") {
        return Ok(false);
    }
    let Ok(version) = version.parse::<u64>() else {
        let mut errors = FieldErrors::default();
        errors.invalid(
            "metadata.resourceVersion",
            &json!(version),
            "must be an unsigned integer",
        );
        return Err(Status::invalid(&resource.gvk, target.name, errors));
    };
    if version != current.revision.0 {
        return Err(Status::modified(&resource.group_resource, target.name));
    }
    Ok(true)
}
