//! POST: a new object.

use std::sync::Arc;

use coracle_api::{
    meta,
    status::{Reason, Status},
};
use coracle_store::{Compare, Op, Txn, TxnOutcome};
use serde_json::Value;

use super::{Store, WriteOptions, Written, store_status};
use crate::registry::{encode, object_meta, resource::Resource};

/// Names tried for one `generateName`, as upstream.
const GENERATE_TRIES: usize = 8;

impl Store {
    /// Stores a new object. `namespace` is that of the URL.
    ///
    /// # Errors
    /// 400 for a foreign namespace, 409 if the name is taken, 422 for what validation says.
    pub(crate) async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        if let Some(seen) = &resource.view {
            object_meta::match_namespace(resource, namespace, &mut object)?;
            let mut object = resource.stored(seen, object)?;
            self.prepare_new(&seen.stored, namespace, &mut object)?;
            let written = self.insert(&seen.stored, object, options).await?;
            return Ok(Written { json: resource.shown_json(written.json), ..written });
        }
        self.prepare_new(resource, namespace, &mut object)?;
        self.insert(resource, object, options).await
    }

    /// Defaults, fills in and checks a new object.
    pub(crate) fn prepare_new(&self, resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Status> {
        if !matches!(meta::resource_version(object), "" | "0") {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(500, Reason::Unknown, message));
        }
        object_meta::match_namespace(resource, namespace, object)?;
        object_meta::fill_new(object);
        resource.strategy.default(object);
        resource.strategy.prepare_for_create(object);
        let mut errors = object_meta::validate(resource, object);
        errors.extend(resource.strategy.validate(object));
        if !errors.is_empty() {
            return Err(Status::invalid(&resource.gvk, meta::name(object), errors));
        }
        Ok(())
    }

    /// Writes what [`Store::prepare_new`] accepted.
    pub(crate) async fn insert(
        &self,
        resource: &Resource,
        mut object: Value,
        options: WriteOptions,
    ) -> Result<Written, Status> {
        let warnings = resource.strategy.warnings(&object);
        encode::strip(&mut object);
        let generated = meta::generate_name(&object).to_owned();
        let is_generated = !generated.is_empty() && meta::name(&object).len() == generated.len() + 5;
        for _ in 0..GENERATE_TRIES {
            let key: Arc<str> = resource.key(meta::namespace(&object), meta::name(&object)).into();
            let value = encode::encode(&object);
            if options.dry_run {
                if self.backend.get(&key).await.map_err(store_status)?.is_none() {
                    return Ok(Written { json: value, created: true, warnings });
                }
            } else {
                let txn = Txn {
                    compare: vec![Compare::Absent(Arc::clone(&key))],
                    ops: vec![Op::Put { key, value: value.clone() }],
                };
                if let TxnOutcome::Committed(revision) = self.backend.txn(txn).await.map_err(store_status)? {
                    return Ok(Written { json: encode::with_revision(&value, revision), created: true, warnings });
                }
            }
            if !is_generated {
                return Err(Status::already_exists(&resource.group_resource, meta::name(&object)));
            }
            let name = coracle_api::name::generate(&generated);
            meta::set_text(&mut object, "name", name);
        }
        Err(Status::generate_name_conflict(&resource.group_resource, meta::name(&object), 1))
    }
}
