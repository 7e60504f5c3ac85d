//! PUT and PATCH: an object changed, under optimistic locking.
//!
//! A change goes by steps, of which each is the caller's to take. Nothing here calls back but for
//! companions, which are asked anew for each try.
//!
//! ```text
//! begin_update > present > prepare > check > commit > written
//!                   ^                          |
//!                   '---- the race is lost ----'
//! ```

mod lock;
mod writable;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use coracle_api::{meta, status::Status};
use serde_json::Value;

use super::{
    CLAIM_TRIES, Current, OptimisticWrite, RETRY_SECS, Replacement, Store, WriteOptions, Written,
    companions::{Companion, Write},
    companions_of_kind,
};
use crate::{
    encode,
    managed_fields::{self, FieldManager},
    object_meta,
    part::Part,
    resource::Resource,
};
use lock::check_lock;
use writable::{restore, validate};

/// How often a change of no `resourceVersion` is run again after a lost race: as good as always.
const TRIES: usize = 1000;

/// What is to be changed, and how.
#[derive(Clone, Copy)]
pub struct UpdateTarget<'a> {
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
    /// Who comes to own what changes. Without, field ownership stays as it is.
    pub manager: Option<&'a FieldManager>,
}

impl<'a> UpdateTarget<'a> {
    /// A change that the server makes by itself.
    pub fn own(namespace: &'a str, name: &'a str, part: Part) -> Self {
        Self {
            namespace,
            name,
            part,
            options: WriteOptions::default(),
            tries: None,
            manager: None,
        }
    }
}

/// A change under way, and the object as it is known to be now.
pub struct Update<'a> {
    store: &'a Store,
    /// What the client changes; may be a view.
    resource: &'a Resource,
    target: UpdateTarget<'a>,
    current: Current,
    tries_left: usize,
    taken: Vec<Arc<str>>,
    claims_left: usize,
}

/// An object on its way to take the present one's place. Between the steps it is its owner's, as a
/// new one is.
#[derive(Debug)]
pub struct PreparedUpdate {
    /// In the form of [`Resource::storing`].
    pub object: Value,
    /// Whether it was to replace one version alone.
    is_conditional: bool,
    /// What is wrong with it and was so before.
    tolerated: Vec<String>,
}

impl Store {
    /// Changes an object. What `change` returns may carry `resourceVersion` and `uid` as
    /// preconditions. For what no client asked for: nothing is admitted.
    ///
    /// # Errors
    /// 404, 409 for a stale `resourceVersion`, 422 for what validation says, or what `change` says.
    pub async fn update(
        &self,
        resource: &Resource,
        target: &UpdateTarget<'_>,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let mut update = self.begin_update(resource, *target).await?;
        loop {
            let wanted = change(&update.present());
            let written = match wanted.and_then(|wanted| update.checked(wanted)) {
                Ok(changed) => update.commit(changed, None).await?,
                Err(_) if update.convert().await || update.refresh().await? => None,
                Err(status) => return Err(status),
            };
            if let Some(written) = written {
                return Ok(written);
            }
        }
    }

    /// The first step: finds the object.
    ///
    /// # Errors
    /// 404 if there is none.
    pub async fn begin_update<'a>(
        &'a self,
        resource: &'a Resource,
        target: UpdateTarget<'a>,
    ) -> Result<Update<'a>, Status> {
        let stored = resource.storing();
        let key = stored.key(target.namespace, target.name);
        let current = self.current(stored, &key).await?;
        let current =
            current.ok_or_else(|| Status::not_found(&stored.group_resource, target.name))?;
        Ok(Update {
            store: self,
            resource,
            target,
            current,
            tries_left: target.tries.unwrap_or(TRIES),
            taken: Vec::new(),
            claims_left: CLAIM_TRIES,
        })
    }
}

impl Update<'_> {
    /// The object as it is now, in the form that the client writes it.
    pub fn present(&self) -> Cow<'_, Value> {
        match self.resource.view {
            Some(_) => Cow::Owned(self.resource.shown(self.current.object.clone())),
            None => Cow::Borrowed(&self.current.object),
        }
    }

    /// The same as it is stored.
    pub fn current(&self) -> &Value {
        &self.current.object
    }

    /// What it was to claim so far, and others have.
    pub fn taken(&self) -> &[Arc<str>] {
        &self.taken
    }

    /// Looks again after a refusal, which the cache may be to blame for: it can be behind, and
    /// nothing is refused by its word alone. Whether the object is another one now.
    ///
    /// # Errors
    /// 404 if it has gone.
    pub async fn refresh(&mut self) -> Result<bool, Status> {
        if self.current.is_fresh {
            return Ok(false);
        }
        let found = self
            .store
            .newest(self.resource.storing(), &self.current.key)
            .await?
            .ok_or_else(|| self.not_found())?;
        let is_another = found.revision != self.current.revision;
        self.current = found;
        Ok(is_another)
    }

    /// Whether a step is to be taken again, since it waited for [`FieldManager::convert`].
    pub async fn convert(&self) -> bool {
        let Some(manager) = self.target.manager else {
            return false;
        };
        manager.convert(self.resource.storing()).await
    }

    /// What the client wants in the object's place, with what it may not change put back, its
    /// defaults and its field managers. What is changed from here on has no field manager.
    ///
    /// # Errors
    /// 409 for a version or a UID that is not the present one's, 422 for what the validation of a
    /// view says; something is to be [converted](Self::convert) first.
    pub fn prepare(&self, wanted: Value) -> Result<PreparedUpdate, Status> {
        let (resource, target, old) = (self.resource.storing(), &self.target, &self.current.object);
        let mut object = match &self.resource.view {
            Some(seen) => self.resource.stored(seen, wanted)?,
            None => wanted,
        };
        let is_conditional = check_lock(resource, target, &object, &self.current)?;
        let given = managed_fields::take(&mut object);
        object_meta::match_namespace(resource, target.namespace, &mut object)?;
        restore(resource, target.part, &mut object, old);
        match target.manager {
            Some(manager) => manager.update(resource, target.part, &mut object, given, old)?,
            None => managed_fields::set(&mut object, old["metadata"].get("managedFields").cloned()),
        }
        Ok(PreparedUpdate {
            object,
            is_conditional,
            tolerated: Vec::new(),
        })
    }

    /// Validates. `is_changed` says that the object is no longer as it was prepared.
    ///
    /// # Errors
    /// 422 for what validation says.
    pub fn check(&self, changed: &mut PreparedUpdate, is_changed: bool) -> Result<(), Status> {
        let (resource, target, old) = (self.resource.storing(), &self.target, &self.current.object);
        let new = &mut changed.object;
        if is_changed {
            let managed = managed_fields::take(new);
            restore(resource, target.part, new, old);
            managed_fields::set(new, managed);
        }
        let errors = validate(resource, target.part, new, old);
        if errors.is_empty() {
            changed.tolerated = errors.tolerated().map(ToString::to_string).collect();
            return Ok(());
        }
        Err(Status::invalid(&resource.gvk, target.name, errors))
    }

    fn checked(&self, wanted: Value) -> Result<PreparedUpdate, Status> {
        let mut changed = self.prepare(wanted)?;
        self.check(&mut changed, false)?;
        Ok(changed)
    }

    /// The last step: puts, skips or removes, as the object demands, with its companions. `None` if
    /// somebody else was faster: then all of it is to be done again, for the object as it is now,
    /// and without a claim to what is [`Update::taken`].
    ///
    /// # Errors
    /// 404 if the object has gone, 409 if it was to replace another version or the races are too
    /// many, and what `companion` says.
    pub async fn commit(
        &mut self,
        changed: PreparedUpdate,
        companion: Option<&dyn Companion>,
    ) -> Result<Option<Written>, Status> {
        let (resource, target) = (self.resource.storing(), &self.target);
        let PreparedUpdate {
            object,
            is_conditional,
            tolerated,
        } = changed;
        let mut warnings = if target.part == Part::Main {
            resource.warnings(&object, Some(&self.current.object))
        } else {
            Vec::new()
        };
        warnings.extend(tolerated);
        let found = match self.write(resource, object, companion).await? {
            OptimisticWrite::Succeeded(json) => {
                let json = self.resource.shown_written(json).await?;
                return Ok(Some(Written {
                    json,
                    created: false,
                    warnings,
                }));
            }
            OptimisticWrite::Conflict(found) => found,
            OptimisticWrite::Taken(keys) => {
                // No race for the object, so none of its tries.
                self.claims_left = self.claims_left.saturating_sub(1);
                if self.claims_left == 0 {
                    let of = &resource.group_resource;
                    return Err(Status::server_timeout(of, "update", RETRY_SECS));
                }
                self.taken.extend(keys);
                return Ok(None);
            }
        };
        let modified = || Status::modified(&resource.group_resource, target.name);
        if found.is_some() && is_conditional && self.current.is_fresh {
            return Err(modified());
        }
        let found = found.ok_or_else(|| self.not_found())?;
        self.tries_left = self
            .tries_left
            .checked_sub(1)
            .filter(|left| *left > 0)
            .ok_or_else(modified)?;
        self.current = found;
        Ok(None)
    }

    fn not_found(&self) -> Status {
        Status::not_found(&self.resource.storing().group_resource, self.target.name)
    }

    async fn write(
        &self,
        resource: &Resource,
        mut new: Value,
        companion: Option<&dyn Companion>,
    ) -> Result<OptimisticWrite<Bytes>, Status> {
        let Self {
            store,
            target,
            current,
            ..
        } = self;
        encode::strip(&mut new);
        let value = encode::bounded(&*resource.to_store(&new).await?, current.json.len())?;
        if is_finished(resource, &new) {
            if target.options.dry_run {
                return Ok(OptimisticWrite::Succeeded(value));
            }
            let removed = store.remove(resource, current).await?;
            return Ok(removed.map(|revision| encode::with_revision(&value, revision)));
        }
        if !current.is_stale && encode::same_content(&current.json, &value) {
            // Nothing changes: nothing is written, provided that this is still what is stored.
            if current.is_fresh || resource_is_current(store, current).await? {
                return Ok(OptimisticWrite::Succeeded(current.json.clone()));
            }
            let found = store.newest(resource, &current.key).await?;
            return Ok(OptimisticWrite::Conflict(found));
        }
        if target.options.dry_run {
            let json = encode::with_revision(&value, current.revision);
            return Ok(OptimisticWrite::Succeeded(json));
        }
        let write = Write {
            resource,
            new: &new,
            old: Some(&current.object),
            tries: 0,
        };
        let companion = companion.map(|companion| (companion, write));
        let with = companions_of_kind(resource, Some(&current.object), Some(&new));
        let may_use_disk_reserve =
            may_use_disk_reserve(resource, target.part, &new, &current.object);
        let replacement = Replacement {
            value: value.clone(),
            with,
            may_use_disk_reserve,
        };
        let replaced = store
            .replace(resource, current, replacement, companion)
            .await?;
        Ok(replaced.map(|revision| encode::with_revision(&value, revision)))
    }
}

/// Whether this is what is stored, to the last byte: another version of the kind is not.
async fn resource_is_current(store: &Store, current: &Current) -> Result<bool, Status> {
    let stored = store
        .backend
        .get(&current.key)
        .await
        .map_err(super::store_status)?;
    Ok(stored.is_some_and(|kv| {
        kv.mod_revision == current.revision && encode::same_content(&current.json, &kv.value)
    }))
}

/// Whether a full disk keeps this from nobody: what the kind says of itself, and steps of an object
/// that goes, of which there are only so many or which only the cluster's own parts may take.
fn may_use_disk_reserve(resource: &Resource, part: Part, new: &Value, old: &Value) -> bool {
    if resource.strategy.may_use_disk_reserve(new) {
        return true;
    }
    let waits_for = |object: &Value| {
        meta::finalizers(object).len() + resource.strategy.pending_finalizers(object).len()
    };
    meta::is_terminating(old) && (part == Part::Status || waits_for(new) < waits_for(old))
}

/// Whether an object that is being deleted has nothing left to wait for.
fn is_finished(resource: &Resource, object: &Value) -> bool {
    if !meta::is_terminating(object) || !meta::finalizers(object).is_empty() {
        return false;
    }
    let grace = object["metadata"]
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if grace > 0 {
        return false;
    }
    resource.strategy.pending_finalizers(object).is_empty()
}
