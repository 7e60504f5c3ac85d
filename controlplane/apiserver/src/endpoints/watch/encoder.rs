//! The lines of one watch in the form that its client asked for.
//!
//! Those of plain objects are the cache's own and come from there; what is made here is made for
//! this client alone.

use std::sync::Arc;

use coracle_registry::{
    resource::Resource,
    stored,
    watch_cache::{Entry, EventKind},
};
use coracle_store::Revision;
use serde_json::json;

use super::super::{Shape, now_secs};
use crate::table::{self, ListMeta, TableOptions, accept::Form};

/// One watch's lines.
pub(super) struct Encoder {
    resource: Arc<Resource>,
    shape: Shape,
    columns_sent: bool,
}

impl Encoder {
    pub(super) fn new(resource: &Arc<Resource>, shape: Shape) -> Self {
        Self {
            resource: Arc::clone(resource),
            shape,
            columns_sent: false,
        }
    }

    /// Whether a webhook has to convert what is shown.
    pub(super) fn is_converting(&self) -> bool {
        let is_metadata = matches!(self.shape.form, Form::PartialObjectMetadata(_));
        self.resource.converted.is_some() && !is_metadata
    }

    pub(super) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Whether lines go out as the cache has them.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.shape.form, Form::Object) && self.resource.is_shown_as_stored()
    }

    pub(super) fn event(&mut self, kind: EventKind, entry: &Arc<Entry>) -> Vec<u8> {
        let json = self.resource.shown_event(entry);
        self.event_of(kind, entry.revision(), &json)
    }

    /// The same of an object that is in its form already.
    pub(super) fn event_of(&mut self, kind: EventKind, at: Revision, json: &[u8]) -> Vec<u8> {
        match self.shape.form {
            Form::Object => line(kind.as_str(), json),
            Form::Table(_) => line(kind.as_str(), &self.table(Some(json), &at.to_string())),
            Form::PartialObjectMetadata(version) => {
                line(kind.as_str(), &table::partial_metadata(json, version))
            }
        }
    }

    fn table(&mut self, object: Option<&[u8]>, revision: &str) -> Vec<u8> {
        let Form::Table(version) = self.shape.form else {
            return Vec::new();
        };
        let options = TableOptions {
            version,
            include: self.shape.include,
            with_columns: !std::mem::replace(&mut self.columns_sent, true),
            now_secs: now_secs(),
        };
        let meta = ListMeta {
            resource_version: revision,
            ..ListMeta::default()
        };
        table::render(&*self.resource.strategy, object, options, &meta)
    }

    pub(super) fn bookmark(&mut self, revision: Revision) -> Vec<u8> {
        self.bookmark_with(revision, json!({}))
    }

    /// The bookmark that follows the objects that were there already.
    pub(super) fn initial_events_end(&mut self, revision: Revision) -> Vec<u8> {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        self.bookmark_with(revision, json!({"annotations": annotations}))
    }

    fn bookmark_with(&mut self, revision: Revision, mut metadata: serde_json::Value) -> Vec<u8> {
        let revision = revision.to_string();
        metadata["resourceVersion"] = json!(revision);
        metadata["creationTimestamp"] = json!(null);
        let object = match self.shape.form {
            Form::Table(_) => self.table(None, &revision),
            Form::Object => bookmark_object(
                &self.resource.gvk.api_version(),
                &self.resource.info.kind,
                &metadata,
            ),
            Form::PartialObjectMetadata(version) => {
                bookmark_object(version.api_version(), "PartialObjectMetadata", &metadata)
            }
        };
        line("BOOKMARK", &object)
    }
}

fn bookmark_object(api_version: &str, kind: &str, metadata: &serde_json::Value) -> Vec<u8> {
    stored::text(&json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}))
}

pub(super) fn line(kind: &str, object: &[u8]) -> Vec<u8> {
    let start = [br#"{"type":""#, kind.as_bytes(), br#"","object":"#].concat();
    [&start, object, b"}\n"].concat()
}
