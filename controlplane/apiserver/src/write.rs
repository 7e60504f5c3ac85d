//! Writes of clients: between what they sent and the store, with what an object needs besides its own validity.

use coracle_api::{quota, status::Status};
use coracle_registry::{
    managed_fields::FieldManager,
    part::Part,
    resource::Resource,
    service_addresses::Reservation,
    store::{WriteOptions, Written, companions::Companion, update::Change},
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    admission::{self, new_pod::Surroundings},
    state::State,
};

impl State {
    /// Checks and creates an object that is admitted, with what has to be reserved for it and what it is charged to.
    pub(crate) async fn create(
        &self,
        resource: &Resource,
        namespace: &str,
        object: Value,
        options: WriteOptions,
        manager: Option<&FieldManager>,
    ) -> Result<Written, Status> {
        let stored = resource.storing();
        let surroundings = Surroundings::of(self, stored, namespace, &object).await?;
        let admit = |object: &mut Value| surroundings.map_or(Ok(()), |around| around.admit(stored, object));
        let mut new = self.store.prepare_new(resource, namespace, object, manager, admit)?;
        admission::check_new(self, stored, namespace, &new.object).await?;
        admission::token_secret::fill(self, stored, namespace, &mut new.object).await?;
        let addresses = self.addresses_of(stored);
        let reservation = match addresses {
            Some(addresses) => {
                addresses.catch_up().await?;
                Some(addresses.fill(None, &mut new.object)?)
            }
            None => None,
        };
        // Last, and kept until it is written: others of this namespace wait meanwhile.
        let quotas = self.quotas_of(stored);
        let turn = match quotas {
            Some(quotas) => quotas.turn(namespace).await?,
            None => None,
        };
        let written = {
            let companion = quotas.filter(|_| turn.is_some()).map(|quotas| quotas as &dyn Companion);
            self.store.insert(stored, new, options, companion).await
        };
        if let Some(reservation) = reservation.filter(|_| options.dry_run || is_refused(&written)) {
            reservation.free();
        }
        let written = written?;
        Ok(Written { json: resource.shown_json(written.json), ..written })
    }

    /// Changes an object and what is reserved for it.
    pub(crate) async fn update(
        &self,
        resource: &Resource,
        target: &Change<'_>,
        change: impl FnMut(&Value) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let subresource = if target.part == Part::Resize { "resize" } else { "" };
        let may_use_more = matches!(target.part, Part::Main | Part::Resize)
            && quota::changes_by_update(resource.info.group, resource.info.plural, subresource);
        let quotas = self.quotas_of(resource).filter(|_| may_use_more);
        let turn = match quotas {
            Some(quotas) => quotas.turn(target.namespace).await?,
            None => None,
        };
        let target =
            Change { companion: quotas.filter(|_| turn.is_some()).map(|quotas| quotas as &dyn Companion), ..*target };
        let Some(addresses) = self.addresses_of(resource).filter(|_| target.part == Part::Main) else {
            return self.store.update(resource, &target, change).await;
        };
        addresses.catch_up().await?;
        let key = resource.key(target.namespace, target.name);
        let held = Mutex::new(Vec::new());
        let reserve = |new: &mut Value, old: &Value| {
            if let Some(admit) = target.reserve {
                admit(new, old)?;
            }
            // What a lost race had reserved goes back first.
            held.lock().drain(..).for_each(Reservation::free);
            let reservation = addresses.fill(Some(&key), new)?;
            held.lock().push(reservation);
            Ok(())
        };
        let target = Change { reserve: Some(&reserve), ..target };
        let written = self.store.update(resource, &target, change).await;
        if target.options.dry_run || is_refused(&written) {
            held.lock().drain(..).for_each(Reservation::free);
        }
        written
    }
}

/// Whether nothing was written for sure: a store that fails may have written all the same.
fn is_refused(written: &Result<Written, Status>) -> bool {
    written.as_ref().is_err_and(|status| status.code < 500)
}
