//! POST: a new object.

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::{
    meta,
    status::{Reason, Status},
};
use coracle_store::{Compare, Op, Txn, TxnOutcome};
use serde_json::Value;

use super::{
    COMPANION_TRIES, Store, WriteOptions, Written,
    companions::{Companion, Companions, Write},
    store_status,
};
use crate::{
    encode,
    managed_fields::{self, FieldManager},
    object_meta,
    resource::Resource,
    service_ips,
};

/// Names tried for one `generateName`, as upstream.
const GENERATE_TRIES: usize = 8;
const RETRY_SECS: u32 = 1;

/// An object on its way into the store: prepared, then checked, then written.
///
/// Between the steps it is its owner's: admission changes what is prepared and looks at what is
/// checked.
pub struct NewObject<'a> {
    /// In the form of [`Resource::storing`].
    pub object: Value,
    /// What the client makes; may be a view.
    resource: &'a Resource,
    /// Whether its name was made here, so that it may have another if that one is taken.
    is_generated: bool,
    /// What its preparation leaves no trace of.
    warnings: Vec<String>,
}

impl NewObject<'_> {
    /// Names, completes and validates it. `is_changed` says that it is no longer as it was
    /// prepared.
    ///
    /// # Errors
    /// 422 for what validation says.
    pub fn check(&mut self, is_changed: bool) -> Result<(), Status> {
        let (stored, object) = (self.resource.storing(), &mut self.object);
        self.is_generated = object_meta::generate_name(object);
        if is_changed || self.is_generated {
            stored.strategy.default(object);
        }
        self.warnings = stored.strategy.warnings_on_create(object);
        stored.strategy.prepare_for_create(object);
        let mut errors = object_meta::validate(stored, object);
        errors.extend(stored.strategy.validate_create(object));
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&stored.gvk, meta::name(object), errors))
    }
}

impl Store {
    /// Stores a new object. `namespace` is that of the URL. For what no client asked for: nothing
    /// is admitted.
    ///
    /// # Errors
    /// 400 for a foreign namespace, 409 if the name is taken, 422 for what validation says.
    pub async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        let mut new = self.prepare_new(resource, namespace, object, None)?;
        new.check(false)?;
        self.insert(new, options, None).await
    }

    /// The first step: the object as [`Resource::storing`] stores it, with an identity, its
    /// defaults and their field managers. What is changed from here on has no field manager.
    ///
    /// # Errors
    /// 400 for a foreign namespace, 422 for what the validation of a view says.
    pub fn prepare_new<'a>(
        &self,
        resource: &'a Resource,
        namespace: &str,
        mut object: Value,
        manager: Option<&FieldManager>,
    ) -> Result<NewObject<'a>, Status> {
        let stored = resource.storing();
        if let Some(seen) = &resource.view {
            object_meta::match_namespace(resource, namespace, &mut object)?;
            object = resource.stored(seen, object)?;
        }
        if !matches!(meta::resource_version(&object), "" | "0") {
            let message = "resourceVersion should not be set on objects to be created";
            // Upstream takes this for a failure of its own.
            return Err(Status::new(500, Reason::Unknown, message));
        }
        object_meta::match_namespace(stored, namespace, &mut object)?;
        let managed = managed_fields::take(&mut object)
            .filter(|_| manager.is_some_and(FieldManager::is_apply));
        object_meta::fill_new(&mut object);
        stored.strategy.default(&mut object);
        if managed.is_some() {
            managed_fields::set(&mut object, managed);
        } else if let Some(manager) = manager {
            manager.update_new(stored, &mut object);
        }
        Ok(NewObject {
            object,
            resource,
            is_generated: false,
            warnings: Vec::new(),
        })
    }

    /// The last step: writes what is checked, and its companions.
    ///
    /// # Errors
    /// 409 if the name is taken, and what `companion` says.
    pub async fn insert(
        &self,
        new: NewObject<'_>,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Written, Status> {
        let NewObject {
            mut object,
            resource,
            is_generated,
            mut warnings,
        } = new;
        let stored = resource.storing();
        warnings.extend(stored.warnings(&object, None));
        encode::strip(&mut object);
        let generated = meta::generate_name(&object).to_owned();
        for _ in 0..GENERATE_TRIES {
            if let Some(json) = self.put_new(stored, &object, options, companion).await? {
                return Ok(Written {
                    json: resource.shown_json(json),
                    created: true,
                    warnings,
                });
            }
            if !is_generated {
                return Err(Status::already_exists(
                    &stored.group_resource,
                    meta::name(&object),
                ));
            }
            let name = coracle_api::name::generate(&generated);
            meta::set_text(&mut object, "name", name);
        }
        Err(Status::generate_name_conflict(
            &stored.group_resource,
            meta::name(&object),
            1,
        ))
    }

    /// The object as clients see it; `None` if the name is taken.
    async fn put_new(
        &self,
        resource: &Resource,
        object: &Value,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Option<Bytes>, Status> {
        let key: Arc<str> = resource
            .key(meta::namespace(object), meta::name(object))
            .into();
        let value = encode::bounded(&resource.to_store(object), 0)?;
        for _ in 0..COMPANION_TRIES {
            let write = Write {
                resource,
                new: object,
                old: None,
            };
            let own = service_ips::companions(resource, None, Some(object));
            let reserved = own.compare.len();
            let Companions { compare, ops } = match companion {
                Some(companion) => own.and(companion.companions(write).await?),
                None => own,
            };
            if options.dry_run {
                let is_free = self
                    .backend
                    .get(&key)
                    .await
                    .map_err(store_status)?
                    .is_none();
                return Ok(is_free.then_some(value));
            }
            let mut txn = Txn {
                compare: vec![Compare::Absent(Arc::clone(&key))],
                ops: vec![Op::Put {
                    key: Arc::clone(&key),
                    value: value.clone(),
                }],
                may_use_disk_reserve: false,
            };
            txn.compare.extend(compare);
            txn.ops.extend(ops);
            match self.backend.txn(txn).await.map_err(store_status)? {
                TxnOutcome::Committed(revision) => {
                    return Ok(Some(encode::with_revision(&value, revision)));
                }
                // Somebody has made the address' object a moment ago. Another address is free when
                // the client is back.
                TxnOutcome::Conflict(found)
                    if matches!(found.first(), Some(None))
                        && found.iter().skip(1).take(reserved).any(Option::is_some) =>
                {
                    return Err(Status::server_timeout(
                        &resource.group_resource,
                        "create",
                        RETRY_SECS,
                    ));
                }
                // Not the name: a companion has changed meanwhile.
                TxnOutcome::Conflict(found) if matches!(found.first(), Some(None)) => {}
                TxnOutcome::Conflict(_) => return Ok(None),
            }
        }
        Err(companion.map_or_else(
            || Status::server_timeout(&resource.group_resource, "create", RETRY_SECS),
            Companion::exhausted,
        ))
    }
}
