//! Writes of clients, step by step: admission, the registry's validation, what is reserved, the
//! transaction.
//!
//! The one place that walks an object to the store for somebody; what the server writes on its own
//! behalf it gives to the store itself.
//!
//! ```text
//! create   prepare_new               > mutate > check > (allocate > validate > turn > insert) until nobody else has its addresses
//! update   begin > (change > prepare > mutate > check >  allocate > validate > turn > commit) until the race is won
//! delete   begin > (                   mutate                     > validate        > commit) until the race is won
//! ```
//!
//! A Service gets its addresses before it is shown to those who validate, as in upstream's
//! BeginCreate: what they see is what will be stored. Nothing is held meanwhile, so admission may
//! wait as long as it likes: whether they are still free is decided by the transaction. The turn at
//! the namespace's quotas is taken last, with only the transaction after it.

use std::time::Duration;

use coracle_admission::{Attributes, Request, Turn, attributes::Seen};
use coracle_api::status::Status;
use coracle_registry::{
    managed_fields::FieldManager,
    part::Part,
    resource::Resource,
    service_allocator::{Allocators, Try},
    store::{
        Written,
        companions::Companion,
        delete::{Delete, DeleteOptions, Deleted},
        store_status,
        update::{Update, UpdateTarget},
    },
    watch_cache::WatchCacheError,
};
use coracle_store::StoreError;
use coracle_telemetry::span;
use serde_json::Value;
use tracing::Instrument as _;

use crate::{
    limits::RETRY_SECS,
    slow::{Step, Timing},
    state::State,
};

/// How old what admission goes by may be.
const OLDEST: Duration = Duration::from_secs(10);

impl State {
    /// Makes an object of `resource`, which `request` is about.
    pub(crate) async fn create(
        &self,
        resource: &Resource,
        request: &Request<'_>,
        object: Value,
        manager: &FieldManager,
    ) -> Result<Written, Status> {
        let mut new = self
            .store
            .prepare_new(resource, request.namespace, object, Some(manager))?;
        let mutated = self.mutated(request.about(&mut new.object, None)).await?;
        new.check(mutated.is_changed).map_err(told(&mutated))?;
        let allocators = self.allocators_of(resource);
        // As it is without what it is given, in case others have that.
        let asked = allocators.map(|_| new.object.clone());
        loop {
            if let Some(allocators) = allocators {
                let (lost, dry_run) = (new.taken().to_vec(), request.options.dry_run);
                let attempt = Try {
                    lost: &lost,
                    dry_run,
                };
                allocators.allocate(None, &mut new.object, attempt).await?;
            }
            let validating = self.validated(request.about(&mut new.object, None));
            let validated = validating.await.map_err(told(&mutated))?;
            let turn = self.turn(request, None).await?;
            let companion = turn.as_ref().map(|turn| turn as &dyn Companion);
            let inserting = self.store.insert(&mut new, request.options, companion);
            if let Some(written) = inserting.await? {
                return Ok(warning(written, mutated, validated));
            }
            if let Some(asked) = &asked {
                new.object.clone_from(asked);
            }
        }
    }

    /// Changes an object. `change` makes what is wanted of what there is, and is asked anew after a
    /// lost race.
    pub(crate) async fn update(
        &self,
        resource: &Resource,
        request: &Request<'_>,
        target: UpdateTarget<'_>,
        mut change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let mut update = self.store.begin_update(resource, target).await?;
        loop {
            let wanted = change(&update.present());
            let written = match wanted {
                Ok(wanted) => {
                    let allocators = self
                        .allocators_of(resource)
                        .filter(|_| target.part == Part::Main);
                    self.replace(request, allocators, &mut update, wanted).await
                }
                Err(status) => Err(status),
            };
            match written {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {}
                Err(_) if update.convert().await => {}
                Err(status) if status.code < 500 && update.refresh().await? => {}
                Err(status) => return Err(status),
            }
        }
    }

    /// Puts `wanted` in the object's place, with what `allocators` have to give it; `None` if
    /// somebody else was faster.
    async fn replace(
        &self,
        request: &Request<'_>,
        allocators: Option<&Allocators>,
        update: &mut Update<'_>,
        wanted: Value,
    ) -> Result<Option<Written>, Status> {
        let mut changed = update.prepare(wanted)?;
        let mutated = self
            .mutated(request.about(&mut changed.object, Some(update.current())))
            .await?;
        let checked = update.check(&mut changed, mutated.is_changed);
        checked.map_err(told(&mutated))?;
        if let Some(allocators) = allocators {
            let (lost, dry_run) = (update.taken(), request.options.dry_run);
            let (old, attempt) = (Some(update.current()), Try { lost, dry_run });
            let allocating = allocators.allocate(old, &mut changed.object, attempt);
            allocating.await?;
        }
        let validated = self
            .validated(request.about(&mut changed.object, Some(update.current())))
            .await
            .map_err(told(&mutated))?;
        let change = (update.current(), &changed.object);
        let turn = self.turn(request, Some(change)).await?;
        let companion = turn.as_ref().map(|turn| turn as &dyn Companion);
        let written = update.commit(changed, companion).await?;
        Ok(written.map(|written| warning(written, mutated, validated)))
    }

    /// Deletes an object.
    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        request: &Request<'_>,
        options: &DeleteOptions,
    ) -> Result<(Deleted, Vec<String>), Status> {
        let mut delete = self
            .store
            .begin_delete(resource, request.namespace, request.name, options)
            .await?;
        loop {
            match self.remove(request, &mut delete).await {
                Ok(Some(deleted)) => return Ok(deleted),
                Ok(None) => {}
                Err(status) if status.code < 500 && delete.refresh().await? => {}
                Err(status) => return Err(status),
            }
        }
    }

    async fn remove(
        &self,
        request: &Request<'_>,
        delete: &mut Delete<'_>,
    ) -> Result<Option<(Deleted, Vec<String>)>, Status> {
        let warnings = self
            .admit(request, &mut Value::Null, Some(delete.current()))
            .await?;
        let deleted = delete.commit().await?;
        Ok(deleted.map(|deleted| (deleted, warnings)))
    }

    /// Admits what is written in a way of its own, such as an eviction, or not at all, such as the
    /// options of a stream. What plugins have made of it counts. The answer is what they tell the
    /// client.
    pub(crate) async fn admit(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Status> {
        let mutated = self.mutated(request.about(object, old)).await?;
        let validating = self.validated(request.about(object, old));
        let validated = validating.await.map_err(told(&mutated))?;
        Ok([mutated.warnings, validated.warnings].concat())
    }

    /// The first half of admission, alone for what is checked in a way of its own between the two.
    pub(crate) async fn mutated(&self, mut attributes: Attributes<'_>) -> Result<Seen, Status> {
        let _timing = Timing::of(Step::Admission);
        self.hear_of_the_store().await?;
        let admitted = self
            .admission
            .mutate(&mut attributes)
            .instrument(span!("admission", "type" = "admit"))
            .await;
        finished(admitted, attributes)
    }

    /// Admission goes by what the cache says of policies, webhooks and all else: one that hears
    /// nothing of a store that others write to as well is asked no more.
    async fn hear_of_the_store(&self) -> Result<(), Status> {
        let cache = &self.store.cache;
        if cache.was_current_within(OLDEST) {
            return Ok(());
        }
        match cache.catch_up().await {
            Ok(()) => Ok(()),
            // The store says itself what is wrong with it.
            Err(WatchCacheError::Store(error @ StoreError::Unavailable { .. })) => {
                Err(store_status(error))
            }
            // Nothing was written, whatever a read came to.
            Err(_) => {
                let status = Status::service_unavailable(format!(
                    "this server has heard nothing of the store for {} s, so that it cannot tell what is to be admitted: try again, or another server",
                    OLDEST.as_secs()
                ));
                Err(status.with_retry_after(RETRY_SECS))
            }
        }
    }

    /// The second half.
    pub(crate) async fn validated(&self, attributes: Attributes<'_>) -> Result<Seen, Status> {
        let _timing = Timing::of(Step::Admission);
        let admitted = self
            .admission
            .validate(&attributes)
            .instrument(span!("admission", "type" = "validate"))
            .await;
        finished(admitted, attributes)
    }

    async fn turn(
        &self,
        request: &Request<'_>,
        change: Option<(&Value, &Value)>,
    ) -> Result<Option<Turn<'_>>, Status> {
        let _timing = Timing::of(Step::Admission);
        self.admission
            .turn(request, change)
            .instrument(span!("admission", "type" = "quota"))
            .await
    }

    /// The allocators, if this is the resource they are for.
    fn allocators_of(&self, resource: &Resource) -> Option<&Allocators> {
        self.allocators
            .as_ref()
            .filter(|_| resource.is_core("services"))
    }
}

/// What is told of a write that is refused does not end with it.
fn finished(admitted: Result<(), Status>, attributes: Attributes<'_>) -> Result<Seen, Status> {
    let seen = attributes.finish();
    match admitted {
        Ok(()) => Ok(seen),
        Err(status) => Err(status.after(&seen.warnings)),
    }
}

/// The same of what was told before.
fn told(before: &Seen) -> impl FnOnce(Status) -> Status {
    |status| status.after(&before.warnings)
}

fn warning(mut written: Written, mutated: Seen, validated: Seen) -> Written {
    written
        .warnings
        .extend(mutated.warnings.into_iter().chain(validated.warnings));
    written
}
