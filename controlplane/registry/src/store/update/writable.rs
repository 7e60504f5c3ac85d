//! What a write of each part of an object may change, and how it is validated.

use coracle_api::status::FieldErrors;
use serde_json::Value;

use crate::{kinds::core::pod::running, object_meta, part::Part, resource::Resource};

/// Puts back what a write of this part may not change, and fills in defaults. Idempotent.
pub(super) fn restore(resource: &Resource, part: Part, new: &mut Value, old: &Value) {
    let strategy = &resource.strategy;
    match part {
        Part::Main | Part::Resize | Part::EphemeralContainers => {
            running::restrict(part, new, old);
            object_meta::carry_over(new, old);
            strategy.default(new);
            strategy.prepare_for_update(new, old);
        }
        Part::Status => {
            keep_all_but_status(new, old, strategy.status_keeps());
            strategy.default(new);
            strategy.prepare_for_status_update(new, old);
        }
        Part::Internal => {}
    }
}

pub(super) fn validate(resource: &Resource, part: Part, new: &Value, old: &Value) -> FieldErrors {
    let mut errors = object_meta::validate_update(new, old);
    match part {
        Part::Main => errors.extend(resource.strategy.validate_update(new, old)),
        Part::Status => errors.extend(resource.strategy.validate_status_update(new, old)),
        Part::Resize | Part::EphemeralContainers => {
            errors.extend(running::check(part, new, old));
            errors.extend(resource.strategy.validate(new));
        }
        Part::Internal => {}
    }
    errors
}

/// Makes `new` the old object with the status of `new`, and with its metadata apart from the fields
/// that stay.
fn keep_all_but_status(new: &mut Value, old: &Value, kept_metadata: &[&str]) {
    let (Some(map), Some(before)) = (new.as_object_mut(), old.as_object()) else {
        return;
    };
    let is_written = |field: &str| matches!(field, "metadata" | "status");
    map.retain(|field, _| is_written(field));
    map.extend(
        before
            .iter()
            .filter(|(field, _)| !is_written(field))
            .map(|(field, value)| (field.clone(), value.clone())),
    );
    object_meta::carry_over(new, old);
    let metadata = object_meta::metadata_mut(new);
    for field in kept_metadata {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
}
