//! Objects of a resource as they are stored, as the cache has them, and as clients see them.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use coracle_api::{meta, status::Status};
use coracle_store::Revision;
use serde_json::Value;

use super::{Resource, typed};
use crate::{converter::versions, encode, watch_cache::Entry};

impl Resource {
    /// An object of this resource in the version in which it is stored.
    ///
    /// # Errors
    /// What the webhook says that converts it.
    pub(crate) async fn to_store<'a>(&self, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
        Ok(match (&self.converted, &self.stored_as) {
            (Some(versions), _) => Cow::Owned(versions.encoded(object.clone()).await?),
            (None, Some(version)) => Cow::Owned(version.encoded(object.clone())),
            (None, None) => Cow::Borrowed(object),
        })
    }

    /// An object as it is stored, in this resource's version.
    ///
    /// # Errors
    /// As [`Resource::to_store`].
    pub(crate) async fn in_own_version(&self, object: Value) -> Result<Value, Status> {
        match (&self.converted, &self.stored_as) {
            (Some(versions), _) => versions.decoded(object).await,
            (None, Some(version)) => Ok(version.decoded(object)),
            (None, None) => Ok(object),
        }
    }

    /// The text of an object that was written, as clients see it.
    ///
    /// # Errors
    /// As [`Resource::to_store`]. The object is written all the same.
    pub(crate) async fn shown_written(&self, json: Bytes) -> Result<Bytes, Status> {
        let Some(versions) = &self.converted else {
            return Ok(self.shown_json(json));
        };
        let object = serde_json::from_slice(&json).map_err(Status::internal)?;
        versions::text(versions.decoded(object).await?)
    }

    /// The text of an object of the cache as clients see it, also where a webhook converts it.
    ///
    /// # Errors
    /// What the webhook says that converts it.
    pub async fn shown_now(&self, entry: &Arc<Entry>) -> Result<Bytes, Status> {
        let Some(versions) = &self.converted else {
            return Ok(self.shown_entry(entry));
        };
        let texts = versions.texts(std::slice::from_ref(entry)).await?;
        Ok(texts.into_iter().next().unwrap_or_default())
    }

    /// The resource for those who look at metadata alone; for an object, that of the version in
    /// which it is stored. `None` if every resource is as good.
    #[must_use]
    pub fn as_stored(&self, object: Option<&Entry>) -> Option<&Arc<Self>> {
        let is_its = |one: &&Arc<Self>| {
            let version = one.gvk.api_version();
            object.is_some_and(|object| object.is_of(&version))
        };
        let mut all = self.as_stored.iter();
        all.find(is_its).or_else(|| self.as_stored.first())
    }

    /// A stored object as this resource shows it. For writes: a projection has none, and what a
    /// webhook converts is converted by then.
    pub fn shown(&self, object: Value) -> Value {
        match (&self.view, &self.stored_as) {
            (Some(seen), _) => typed((seen.conversion.from_stored)(object), &self.gvk),
            (None, Some(version)) => version.decoded(object),
            (None, None) => object,
        }
    }

    /// The same for an encoded object. Costs nothing unless this is a view or another version; what
    /// a webhook converts is left as it is ([`Resource::shown_now`]).
    pub fn shown_json(&self, json: Bytes) -> Bytes {
        if self.is_shown_as_stored() || self.converted.is_some() {
            return json;
        }
        if let Some(projected) = &self.projected {
            return projected.of_json(&json);
        }
        let Ok(object) = serde_json::from_slice::<Value>(&json) else {
            return json;
        };
        let mut object = self.shown(object);
        let revision = meta::resource_version(&object).parse().ok().map(Revision);
        encode::strip(&mut object);
        let Ok(encoded) = encode::encode(&object) else {
            return json;
        };
        revision.map_or(encoded.clone(), |revision| {
            encode::with_revision(&encoded, revision)
        })
    }

    /// The same for an object of the cache.
    pub fn shown_entry(&self, entry: &Entry) -> Bytes {
        match &self.projected {
            Some(projected) => projected.of_json(&entry.unmanaged()),
            None => self.shown_json(entry.json_bytes()),
        }
    }

    /// The same for an object that many watch: where one can be made for all of them, it is.
    pub fn shown_event(&self, entry: &Arc<Entry>) -> Bytes {
        match &self.projected {
            Some(projected) => projected.of_entry(entry),
            None => self.shown_json(entry.json_bytes()),
        }
    }
}
