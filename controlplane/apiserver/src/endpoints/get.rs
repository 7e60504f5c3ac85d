//! GET of one object.

use std::sync::Arc;

use coracle_api::status::Status;
use coracle_registry::{store::cache_status, watch_cache::Entry};

use super::Call;
use crate::{list_options::parse_revision, reply::Reply, table::accept::Form};

/// Serves the object.
pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let entry = entry(call).await?;
    let json = match shape.form {
        // Metadata needs no conversion.
        Form::PartialObjectMetadata(_) => call.resource.shown_entry(&entry),
        Form::Object | Form::Table(_) => call.resource.shown_now(&entry).await?,
    };
    Ok(call.object_reply(json, shape))
}

/// The object as the cache has it, at least as new as the client asks.
pub(crate) async fn entry(call: &Call<'_>) -> Result<Arc<Entry>, Status> {
    let cache = &call.server.store.cache;
    match parse_revision(call.query.text("resourceVersion"))? {
        None => cache.catch_up().await.map_err(cache_status)?,
        Some(revision) => cache.wait_for(revision).await.map_err(cache_status)?,
    }
    let key = call.resource.key(&call.info.namespace, &call.info.name);
    let entry = call.resource.cache.get(&key);
    entry.ok_or_else(|| Status::not_found(&call.resource.group_resource, &call.info.name))
}
