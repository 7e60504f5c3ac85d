//! PUT and PATCH: an object changed, under optimistic locking.
//!
//! The change is a function from the stored object to the wanted one, so that a lost race can be run again.

use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use serde_json::{Value, json};

use super::{
    Current, Replacement, Store, WriteOptions, Written,
    companions::{Companion, Write},
};
use crate::{
    encode,
    managed_fields::{self, FieldManager},
    object_meta,
    part::Part,
    resource::Resource,
    service_ips,
};

/// How often a change without a `resourceVersion` of its own is run again after a lost race: as good as always.
const TRIES: usize = 1000;

/// A change of one object.
pub struct Change<'a> {
    /// Of the URL; empty for what is in none.
    pub namespace: &'a str,
    /// The object's.
    pub name: &'a str,
    /// What of it is written.
    pub part: Part,
    /// As the request says.
    pub options: WriteOptions,
    /// Times a lost race is run again; `None` for the default. PATCH has upstream's five.
    pub tries: Option<usize>,
    /// Runs on the new object after validation, before it is written; gets the old one too.
    pub reserve: Option<Reserve<'a>>,
    /// Who comes to own what changes. Without, field ownership stays as it is.
    pub manager: Option<&'a FieldManager>,
    /// What the object is written together with, such as the quotas that it is charged to.
    pub companion: Option<&'a dyn Companion>,
}

impl<'a> Change<'a> {
    /// A change that the server makes by itself.
    pub fn own(namespace: &'a str, name: &'a str, part: Part) -> Self {
        let options = WriteOptions::default();
        Self { namespace, name, part, options, tries: None, reserve: None, manager: None, companion: None }
    }
}

/// Reserves what a changed object needs, such as addresses.
pub type Reserve<'a> = &'a (dyn Fn(&mut Value, &Value) -> Result<(), Status> + Send + Sync);

impl Store {
    /// Changes an object. What `change` returns may carry `resourceVersion` and `uid` as preconditions.
    ///
    /// # Errors
    /// 404, 409 for a stale `resourceVersion`, 422 for what validation says, and whatever `change` says.
    pub async fn update(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let Some(seen) = &resource.view else { return self.update_stored(resource, target, change).await };
        let change = |old: &Value| resource.stored(seen, change(&resource.shown(old.clone()))?);
        let written = self.update_stored(&seen.stored, target, change).await?;
        Ok(Written { json: resource.shown_json(written.json), ..written })
    }

    async fn update_stored(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let key = resource.key(target.namespace, target.name);
        let not_found = || Status::not_found(&resource.group_resource, target.name);
        let mut current = self.current(resource, &key).await?.ok_or_else(not_found)?;
        for _ in 0..target.tries.unwrap_or(TRIES) {
            let mut new = match change(&current.object) {
                Ok(new) => new,
                // What the change objects to may have been settled since the cache saw it.
                Err(_) if !current.is_fresh => {
                    current = self.fresh(&key).await?.ok_or_else(not_found)?;
                    continue;
                }
                Err(status) => return Err(status),
            };
            let is_conditional = match self.check_lock(resource, target, &new, &current) {
                Ok(is_conditional) => is_conditional,
                Err(_) if !current.is_fresh => {
                    current = self.fresh(&key).await?.ok_or_else(not_found)?;
                    continue;
                }
                Err(status) => return Err(status),
            };
            let given = managed_fields::take(&mut new);
            prepare(resource, target, &mut new, &current.object)?;
            match target.manager {
                Some(manager) => manager.update(resource, target.part, &mut new, given, &current.object),
                None => managed_fields::set(&mut new, current.object["metadata"].get("managedFields").cloned()),
            }
            if let Some(reserve) = target.reserve {
                reserve(&mut new, &current.object)?;
            }
            let warnings = if target.part == Part::Main { resource.warnings(&new) } else { Vec::new() };
            match self.write(resource, target, new, &current).await? {
                Ok(json) => return Ok(Written { json, created: false, warnings }),
                Err(None) if current.is_fresh => return Err(not_found()),
                Err(_) if is_conditional && current.is_fresh => {
                    return Err(Status::modified(&resource.group_resource, target.name));
                }
                Err(found) => current = found.ok_or_else(not_found)?,
            }
        }
        Err(Status::modified(&resource.group_resource, target.name))
    }

    /// Whether the new object names a version; an error if it is not the present one.
    fn check_lock(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        new: &Value,
        current: &Current,
    ) -> Result<bool, Status> {
        let uid = meta::uid(new);
        let own_uid = meta::uid(&current.object);
        if !uid.is_empty() && uid != own_uid {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own_uid}");
            return Err(Status::conflict(&resource.group_resource, target.name, why));
        }
        let version = meta::resource_version(new);
        if matches!(version, "" | "0") {
            return Ok(false);
        }
        let Ok(version) = version.parse::<u64>() else {
            let mut errors = FieldErrors::default();
            errors.invalid("metadata.resourceVersion", &json!(version), "must be an unsigned integer");
            return Err(Status::invalid(&resource.gvk, target.name, errors));
        };
        if version != current.revision.0 {
            return Err(Status::modified(&resource.group_resource, target.name));
        }
        Ok(true)
    }

    /// Puts, skips or removes, as the new object demands.
    async fn write(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        mut new: Value,
        current: &Current,
    ) -> Result<Result<bytes::Bytes, Option<Current>>, Status> {
        encode::strip(&mut new);
        let value = encode::encode(&new)?;
        if is_finished(resource, &new) {
            if target.options.dry_run {
                return Ok(Ok(value));
            }
            let removed = self.remove(resource, current).await?;
            return Ok(removed.map(|revision| encode::with_revision(&value, revision)));
        }
        if encode::same_content(&current.json, &value) {
            // Nothing changes: nothing is written, provided that this is still what is stored.
            if current.is_fresh || resource_is_current(self, current).await? {
                return Ok(Ok(current.json.clone()));
            }
            return Ok(Err(self.fresh(&current.key).await?));
        }
        if target.options.dry_run {
            return Ok(Ok(encode::with_revision(&value, current.revision)));
        }
        let write = Write { resource, new: &new, old: Some(&current.object) };
        let companion = target.companion.map(|companion| (companion, write));
        let with = service_ips::companions(resource, Some(&current.object), Some(&new));
        let may_use_reserve = may_use_reserve(resource, target.part, &new, &current.object);
        let replacement = Replacement { value: value.clone(), with, may_use_reserve };
        let replaced = self.replace(current, replacement, companion).await?;
        Ok(replaced.map(|revision| encode::with_revision(&value, revision)))
    }
}

async fn resource_is_current(store: &Store, current: &Current) -> Result<bool, Status> {
    let stored = store.backend.get(&current.key).await.map_err(super::store_status)?;
    Ok(stored.is_some_and(|kv| kv.mod_revision == current.revision))
}

/// Whether a full disk keeps this from nobody: what the kind says of itself, and steps of an object that goes, of which
/// there are only so many or which only the cluster's own parts may take.
fn may_use_reserve(resource: &Resource, part: Part, new: &Value, old: &Value) -> bool {
    if resource.strategy.may_use_reserve(new) {
        return true;
    }
    let waits_for =
        |object: &Value| meta::finalizers(object).len() + meta::get_array(object, &["spec", "finalizers"]).len();
    meta::is_terminating(old) && (part == Part::Status || waits_for(new) < waits_for(old))
}

/// Whether an object that is being deleted has nothing left to wait for.
fn is_finished(resource: &Resource, object: &Value) -> bool {
    if !meta::is_terminating(object) || !meta::finalizers(object).is_empty() {
        return false;
    }
    let grace = object["metadata"].get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    if grace > 0 {
        return false;
    }
    !resource.is_core("namespaces") || meta::get_array(object, &["spec", "finalizers"]).is_empty()
}

/// Restores, defaults and checks.
fn prepare(resource: &Resource, target: &Change<'_>, new: &mut Value, old: &Value) -> Result<(), Status> {
    let strategy = resource.strategy;
    object_meta::match_namespace(resource, target.namespace, new)?;
    let errors = match target.part {
        Part::Main => {
            object_meta::carry_over(new, old);
            strategy.default(new);
            strategy.prepare_for_update(new, old);
            let mut errors = object_meta::validate_update(new, old);
            errors.extend(strategy.validate_update(new, old));
            errors
        }
        Part::Status => {
            keep_all_but_status(new, old, strategy.status_keeps());
            strategy.default(new);
            strategy.prepare_for_status_update(new, old);
            let mut errors = object_meta::validate_update(new, old);
            errors.extend(strategy.validate_status_update(new, old));
            errors
        }
        Part::Resize | Part::EphemeralContainers => {
            object_meta::carry_over(new, old);
            strategy.default(new);
            strategy.prepare_for_update(new, old);
            let mut errors = object_meta::validate_update(new, old);
            errors.extend(strategy.validate(new));
            errors
        }
        Part::Internal => object_meta::validate_update(new, old),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.gvk, target.name, errors))
}

/// Makes `new` the old object with the status of `new`, and with its metadata apart from the fields that stay.
fn keep_all_but_status(new: &mut Value, old: &Value, kept_metadata: &[&str]) {
    let (Some(map), Some(before)) = (new.as_object_mut(), old.as_object()) else { return };
    let is_written = |field: &str| matches!(field, "metadata" | "status");
    map.retain(|field, _| is_written(field));
    map.extend(
        before.iter().filter(|(field, _)| !is_written(field)).map(|(field, value)| (field.clone(), value.clone())),
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
