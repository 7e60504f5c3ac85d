//! New objects of kinds that come at run time, held to their definitions in the transaction.

use std::sync::Arc;

use coracle_api::{meta, status::Status};
use coracle_store::Compare;
use serde_json::Value;

use super::{definition::Definition, key_of, put};
use crate::{
    resource::Resource,
    store::{Store, amend::Amendment, companions::Companions},
};

/// What the transaction of a new object has to see; `tries` of it have lost a race before.
///
/// # Errors
/// 404 if the definition is no more, 403 if it goes.
pub(crate) async fn of_new(
    store: &Store,
    resource: &Resource,
    object: &Value,
    tries: usize,
) -> Result<Companions, Status> {
    let mut companions = Companions::default();
    if let Some(definition) = &resource.definition {
        // Perhaps because of this.
        if tries > 0 && is_terminating(store, definition).await? {
            let why = "create not allowed while custom resource definition is terminating";
            let (of, name) = (&resource.group_resource, meta::name(object));
            return Err(Status::forbidden(of, name, why));
        }
        let is_open = Compare::Present(Arc::clone(&definition.key));
        companions.compare.push(is_open);
    }
    Ok(companions)
}

/// Whether a definition goes. One that does not, and that an older release has made, gets its key.
async fn is_terminating(store: &Store, definition: &Definition) -> Result<bool, Status> {
    let found = store.fresh(&key_of(&definition.name)).await?;
    let now = found
        .filter(|now| meta::uid(&now.object) == definition.uid)
        .ok_or_else(Status::no_such_path)?;
    if meta::is_terminating(&now.object) {
        return Ok(true);
    }
    let compare = vec![
        Compare::Absent(Arc::clone(&definition.key)),
        Compare::ModRevision(now.key, now.revision),
    ];
    let op = put(&definition.key);
    store.amend(vec![Amendment { compare, op }]).await?;
    Ok(false)
}
