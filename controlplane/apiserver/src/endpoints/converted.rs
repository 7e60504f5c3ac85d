//! What a conversion webhook has made of objects of the cache, for those who read them.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use coracle_api::{selector::FieldSelector, status::Status};
use coracle_registry::{resource::Resource, watch_cache::Entry};
use serde_json::Value;

use crate::table::accept::Form;

/// The texts of objects in the version of a request, by what they were made of.
pub(crate) struct Texts(HashMap<Made, Bytes>);

/// Entries are told apart by what holds in one list: no key is in it twice.
type Made = Box<str>;

impl Texts {
    /// Those of `entries` that have `fields`; `None` if the cache has them as they are shown:
    /// nobody converts them, or nobody looks at more than the metadata.
    ///
    /// # Errors
    /// What the converter says.
    pub(crate) async fn of(
        resource: &Resource,
        form: Form,
        fields: Option<&FieldSelector>,
        entries: &[Arc<Entry>],
    ) -> Result<Option<Self>, Status> {
        let Some(versions) = &resource.converted else {
            return Ok(None);
        };
        let is_metadata = matches!(form, Form::PartialObjectMetadata(_));
        if fields.is_none() && (is_metadata || versions.are_own(entries)) {
            return Ok(None);
        }
        let texts = versions.texts(entries).await?;
        let all = entries.iter().zip(texts);
        let selected = all.filter(|(_, text)| has_fields(resource, fields, text));
        let made = selected.map(|(entry, text)| (entry.key().into(), text));
        Ok(Some(Self(made.collect())))
    }

    pub(crate) fn has(&self, entry: &Entry) -> bool {
        self.0.contains_key(entry.key())
    }

    /// The text of an object that is there.
    pub(crate) fn get(&self, entry: &Entry) -> Bytes {
        self.0.get(entry.key()).cloned().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(Bytes::len).sum()
    }
}

/// Whether an object is selected by fields that it has in the version of a request.
pub(crate) fn has_fields(resource: &Resource, fields: Option<&FieldSelector>, text: &[u8]) -> bool {
    let Some(fields) = fields else { return true };
    let Ok(object) = serde_json::from_slice::<Value>(text) else {
        return false;
    };
    let values: HashMap<&str, String> = fields
        .requirements()
        .iter()
        .map(|one| (&*one.field, resource.strategy.field(&object, &one.field)))
        .collect();
    fields.matches(|field| values.get(field).map(String::as_str))
}
