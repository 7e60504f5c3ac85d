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

/// An object that may be written.
#[derive(Debug)]
pub struct NewObject {
    /// As it is to be stored, but for its revision.
    pub object: Value,
    /// Whether its name was made here, so that it may have another if that one is taken.
    pub is_generated: bool,
}

impl Store {
    /// Stores a new object. `namespace` is that of the URL. For what no client asked for: nothing is admitted.
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
        let stored = resource.storing();
        let object = self.prepare_new(resource, namespace, object, None, |_| Ok(()))?;
        let written = self.insert(stored, object, options, None).await?;
        Ok(Written { json: resource.shown_json(written.json), ..written })
    }

    /// The object as [`Resource::storing`] stores it: defaulted, filled in and checked. What `admit` changes is owned by
    /// nobody.
    pub fn prepare_new(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        manager: Option<&FieldManager>,
        admit: impl FnOnce(&mut Value) -> Result<(), Status>,
    ) -> Result<NewObject, Status> {
        let stored = resource.storing();
        let is_generated = meta::name(&object).is_empty() && !meta::generate_name(&object).is_empty();
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
        let owned = managed_fields::take(&mut object).filter(|_| manager.is_some_and(FieldManager::is_apply));
        object_meta::fill_new(&mut object);
        stored.strategy.default(&mut object);
        if owned.is_some() {
            managed_fields::set(&mut object, owned);
        } else if let Some(manager) = manager {
            manager.update_new(stored, &mut object);
        }
        admit(&mut object)?;
        stored.strategy.prepare_for_create(&mut object);
        let mut errors = object_meta::validate(stored, &object);
        errors.extend(stored.strategy.validate(&object));
        if !errors.is_empty() {
            return Err(Status::invalid(&stored.gvk, meta::name(&object), errors));
        }
        Ok(NewObject { object, is_generated })
    }

    /// Writes what [`Store::prepare_new`] accepted, and its companions.
    pub async fn insert(
        &self,
        resource: &Resource,
        NewObject { mut object, is_generated }: NewObject,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Written, Status> {
        let warnings = resource.warnings(&object);
        encode::strip(&mut object);
        let generated = meta::generate_name(&object).to_owned();
        for _ in 0..GENERATE_TRIES {
            if let Some(json) = self.put_new(resource, &object, options, companion).await? {
                return Ok(Written { json, created: true, warnings });
            }
            if !is_generated {
                return Err(Status::already_exists(&resource.group_resource, meta::name(&object)));
            }
            let name = coracle_api::name::generate(&generated);
            meta::set_text(&mut object, "name", name);
        }
        Err(Status::generate_name_conflict(&resource.group_resource, meta::name(&object), 1))
    }

    /// The object as clients see it; `None` if the name is taken.
    async fn put_new(
        &self,
        resource: &Resource,
        object: &Value,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Option<Bytes>, Status> {
        let key: Arc<str> = resource.key(meta::namespace(object), meta::name(object)).into();
        let value = encode::encode(object)?;
        for _ in 0..COMPANION_TRIES {
            let write = Write { resource, new: object, old: None };
            let own = service_ips::companions(resource, None, Some(object));
            let reserved = own.compare.len();
            let Companions { compare, ops } = match companion {
                Some(companion) => own.and(companion.companions(write).await?),
                None => own,
            };
            if options.dry_run {
                let is_free = self.backend.get(&key).await.map_err(store_status)?.is_none();
                return Ok(is_free.then_some(value));
            }
            let mut txn = Txn {
                compare: vec![Compare::Absent(Arc::clone(&key))],
                ops: vec![Op::Put { key: Arc::clone(&key), value: value.clone() }],
                may_use_reserve: false,
            };
            txn.compare.extend(compare);
            txn.ops.extend(ops);
            match self.backend.txn(txn).await.map_err(store_status)? {
                TxnOutcome::Committed(revision) => return Ok(Some(encode::with_revision(&value, revision))),
                // Somebody has made the address' object a moment ago. Another address is free when the client is back.
                TxnOutcome::Conflict(found)
                    if matches!(found.first(), Some(None))
                        && found.iter().skip(1).take(reserved).any(Option::is_some) =>
                {
                    return Err(Status::server_timeout(&resource.group_resource, "create", RETRY_SECS));
                }
                // Not the name: a companion has changed meanwhile.
                TxnOutcome::Conflict(found) if matches!(found.first(), Some(None)) => {}
                TxnOutcome::Conflict(_) => return Ok(None),
            }
        }
        Err(Status::internal("resource quota evaluation timed out"))
    }
}
