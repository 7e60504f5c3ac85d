//! POST: a new object.

use std::{mem::take, sync::Arc};

use bytes::Bytes;
use coracle_api::{
    meta,
    status::{Reason, Status},
};
use coracle_store::{Compare, Op, TxnOutcome};
use serde_json::Value;

use super::{
    CLAIM_TRIES, COMPANION_TRIES, RETRY_SECS, Store, WriteOptions, Written,
    companions::{Companion, Companions, Write},
    companions_of_kind, store_status,
};
use crate::{
    encode,
    managed_fields::{self, FieldManager},
    object_meta,
    open_definitions::held,
    resource::Resource,
};

/// Names tried for one `generateName`, as upstream.
const GENERATE_TRIES: usize = 8;

/// An object on its way into the store: prepared, then checked, then written.
///
/// Between the steps it is its owner's: admission changes what is prepared and looks at what is
/// checked.
pub struct NewObject<'a> {
    /// In the form of [`Resource::storing`].
    pub object: Value,
    /// What the client makes; may be a view.
    resource: &'a Resource,
    /// That of the request.
    namespace: &'a str,
    /// What the system has given it.
    given: object_meta::Given,
    /// Whether its name was made here, so that it may have another if that one is taken.
    is_generated: bool,
    /// What its preparation leaves no trace of.
    warnings: Vec<String>,
    taken: Vec<Arc<str>>,
    claims_left: usize,
}

/// How one try to write a new object has ended.
enum Put {
    /// The object as clients see it.
    Done(Bytes),
    /// There is one of this name.
    NameTaken,
    /// Others have these, which it was to claim.
    Taken(Vec<Arc<str>>),
}

impl NewObject<'_> {
    /// What it was to claim so far, and others have.
    pub fn taken(&self) -> &[Arc<str>] {
        &self.taken
    }

    fn contended(&self) -> Status {
        contended(self.resource.storing())
    }

    /// Names, completes and validates it. `is_changed` says that it is no longer as it was
    /// prepared.
    ///
    /// # Errors
    /// 400 for a foreign namespace, 422 for what validation says.
    pub fn check(&mut self, is_changed: bool) -> Result<(), Status> {
        let (stored, object) = (self.resource.storing(), &mut self.object);
        if is_changed {
            // Who was let into one namespace is not let into another one by what admission makes.
            object_meta::match_namespace(stored, self.namespace, object)?;
            self.given.put_back(object);
        }
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
        let written = self.insert(&mut new, options, None).await?;
        // What it claims is what it says: nothing else would do.
        written.ok_or_else(|| new.contended())
    }

    /// The first step: the object as [`Resource::storing`] stores it, with an identity, its
    /// defaults and their field managers. What is changed from here on has no field manager.
    ///
    /// # Errors
    /// 400 for a foreign namespace, 422 for what the validation of a view says.
    pub fn prepare_new<'a>(
        &self,
        resource: &'a Resource,
        namespace: &'a str,
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
        let given = object_meta::fill_new(&mut object);
        stored.strategy.default(&mut object);
        if managed.is_some() {
            managed_fields::set(&mut object, managed);
        } else if let Some(manager) = manager {
            manager.update_new(stored, &mut object);
        }
        Ok(NewObject {
            object,
            resource,
            namespace,
            given,
            is_generated: false,
            warnings: Vec::new(),
            taken: Vec::new(),
            claims_left: CLAIM_TRIES,
        })
    }

    /// The last step: writes what is checked, and its companions. `None` if it was to claim what
    /// others have: then [`NewObject::taken`] says what, and it may claim something else.
    ///
    /// # Errors
    /// 409 if the name is taken, and what `companion` says.
    pub async fn insert(
        &self,
        new: &mut NewObject<'_>,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Option<Written>, Status> {
        let (resource, stored) = (new.resource, new.resource.storing());
        let warnings = stored.warnings(&new.object, None);
        encode::strip(&mut new.object);
        let generated = meta::generate_name(&new.object).to_owned();
        for _ in 0..GENERATE_TRIES {
            match self
                .put_new(stored, &new.object, options, companion)
                .await?
            {
                Put::Done(json) => {
                    return Ok(Some(Written {
                        json: resource.shown_written(json).await?,
                        created: true,
                        warnings: [take(&mut new.warnings), warnings].concat(),
                    }));
                }
                Put::Taken(keys) => {
                    new.claims_left = new.claims_left.saturating_sub(1);
                    if new.claims_left == 0 {
                        return Err(new.contended());
                    }
                    new.taken.extend(keys);
                    return Ok(None);
                }
                Put::NameTaken if !new.is_generated => {
                    return Err(Status::already_exists(
                        &stored.group_resource,
                        meta::name(&new.object),
                    ));
                }
                Put::NameTaken => {
                    let name = coracle_api::name::generate(&generated);
                    meta::set_text(&mut new.object, "name", name);
                }
            }
        }
        Err(Status::generate_name_conflict(
            &stored.group_resource,
            meta::name(&new.object),
            1,
        ))
    }

    async fn put_new(
        &self,
        resource: &Resource,
        object: &Value,
        options: WriteOptions,
        companion: Option<&dyn Companion>,
    ) -> Result<Put, Status> {
        let key: Arc<str> = resource
            .key(meta::namespace(object), meta::name(object))
            .into();
        let value = encode::bounded(&*resource.to_store(object).await?, 0)?;
        for tries in 0..COMPANION_TRIES {
            let write = Write {
                resource,
                new: object,
                old: None,
                tries,
            };
            let own = companions_of_kind(resource, None, Some(object));
            let own = own.and(held::of_new(self, resource, object, tries).await?);
            let with = match companion {
                Some(companion) => own.and(companion.companions(write).await?),
                None => own,
            };
            if options.dry_run {
                let found = self.backend.get(&key).await.map_err(store_status)?;
                return Ok(found.map_or(Put::Done(value), |_| Put::NameTaken));
            }
            let claims = with.claims.clone();
            let put = Op::Put {
                key: Arc::clone(&key),
                value: value.clone(),
            };
            let txn = with.txn(Compare::Absent(Arc::clone(&key)), put, false);
            let found = match self.backend.txn(txn).await.map_err(store_status)? {
                TxnOutcome::Committed(revision) => {
                    self.cache.keep_written(&key, &value, revision);
                    return Ok(Put::Done(encode::with_revision(&value, revision)));
                }
                TxnOutcome::Conflict(found) => found,
            };
            if !matches!(found.first(), Some(None)) {
                return Ok(Put::NameTaken);
            }
            let taken = Companions::taken(&claims, &found);
            if !taken.is_empty() {
                return Ok(Put::Taken(taken));
            }
            // Not the name: a companion has changed meanwhile.
        }
        Err(companion.map_or_else(|| contended(resource), Companion::exhausted))
    }
}

/// What is told of a write that has lost all its races.
fn contended(resource: &Resource) -> Status {
    Status::server_timeout(&resource.group_resource, "create", RETRY_SECS)
}
