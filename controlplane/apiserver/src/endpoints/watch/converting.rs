//! A watch in a version that a conversion webhook makes.
//!
//! Events go to the webhook in batches, and each once for all who watch. Nothing is lost by a
//! webhook that fails: the watch ends with an error, the client comes back to where it was, and
//! others are not in its way.

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::{selector::FieldSelector, status::Status};
use coracle_registry::{
    converter::Converted,
    stored,
    watch_cache::{Beginning, Delivery, Entry, EventKind, WatchCacheError, Watcher},
};
use coracle_store::Revision;
use serde_json::Value;

use super::{super::converted::has_fields, encoder::Encoder};

/// Most events that are converted for a watch at once.
const EVENTS: usize = 100;
/// Most bytes of them, but for one that is larger.
const BYTES: usize = 256 << 10;

/// Events on their way through the webhook.
pub(super) struct Converting {
    versions: Arc<Converted>,
    fields: Option<FieldSelector>,
    /// Taken from the cache, and not sent.
    pending: Vec<Event>,
}

/// An event before it is known what it is to somebody who selects by fields.
struct Event {
    kind: EventKind,
    entry: Arc<Entry>,
    before: Option<Arc<Entry>>,
}

/// How such a watch ends.
pub(super) enum End {
    /// The client comes back by itself.
    Cut,
    /// The client is told.
    Failed(Status),
}

impl From<WatchCacheError> for End {
    fn from(_: WatchCacheError) -> Self {
        Self::Cut
    }
}

impl Converting {
    pub(super) fn new(versions: Arc<Converted>, fields: Option<FieldSelector>) -> Self {
        Self {
            versions,
            fields,
            pending: Vec::new(),
        }
    }

    /// Whether everything that was taken has been sent.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// The lines of the next events. Cancel-safe: what was taken is kept.
    pub(super) async fn next(
        &mut self,
        watcher: &mut Watcher,
        encoder: &mut Encoder,
    ) -> Result<Vec<u8>, End> {
        loop {
            if self.pending.is_empty() {
                self.take(watcher.next_one().await?);
            }
            while self.has_room()
                && let Some(next) = watcher.ready_one()?
            {
                self.take(next);
            }
            let lines = self.lines(encoder).await.map_err(End::Failed)?;
            if !lines.is_empty() {
                return Ok(lines);
            }
        }
    }

    /// The lines of the next objects that were there when the watch began; empty at the end.
    pub(super) async fn begin(
        &mut self,
        beginning: &mut Beginning,
        encoder: &mut Encoder,
    ) -> Result<Vec<u8>, End> {
        loop {
            while self.has_room()
                && let Some(entry) = beginning.next_entry()?
            {
                self.pending.push(Event {
                    kind: EventKind::Added,
                    entry,
                    before: None,
                });
            }
            let is_end = self.pending.is_empty();
            let lines = self.lines(encoder).await.map_err(End::Failed)?;
            if is_end || !lines.is_empty() {
                return Ok(lines);
            }
        }
    }

    fn take(&mut self, delivery: Delivery) {
        let Delivery { kind, entry, event } = delivery;
        let is_asked = self.fields.is_some() && kind == EventKind::Modified;
        self.pending.push(Event {
            kind,
            entry,
            before: event.prev.clone().filter(|_| is_asked),
        });
    }

    fn has_room(&self) -> bool {
        let bytes: usize = self.pending.iter().map(|one| one.entry.json_len()).sum();
        self.pending.len() < EVENTS && bytes < BYTES
    }

    /// Converts what is pending. It stays so if that fails.
    async fn lines(&mut self, encoder: &mut Encoder) -> Result<Vec<u8>, Status> {
        let both = |one: &Event| [Some(Arc::clone(&one.entry)), one.before.clone()];
        let entries: Vec<Arc<Entry>> = self.pending.iter().flat_map(both).flatten().collect();
        let mut texts = self.versions.texts(&entries).await?.into_iter();
        let mut lines = Vec::new();
        for event in self.pending.drain(..) {
            let text = texts.next().unwrap_or_default();
            let before = event.before.as_ref().and_then(|_| texts.next());
            let selects = |text: &[u8]| has_fields(encoder.resource(), self.fields.as_ref(), text);
            let (now, was) = (selects(&text), before.as_deref().map(selects));
            let Some(kind) = seen_as(event.kind, now, was) else {
                continue;
            };
            // What leaves the selection is shown as it was, with the revision of the event.
            let revision = event.entry.revision();
            let shown = match before.filter(|_| kind == EventKind::Deleted && !now) {
                Some(before) => gone(&before, revision)?,
                None => text,
            };
            lines.extend(encoder.event_of(kind, revision, &shown));
        }
        Ok(lines)
    }
}

/// What an event is to somebody whose fields an object has now, or had before if that is asked.
fn seen_as(kind: EventKind, now: bool, was: Option<bool>) -> Option<EventKind> {
    match (kind, now, was) {
        (EventKind::Modified, true, Some(false)) => Some(EventKind::Added),
        (EventKind::Modified, false, Some(true)) => Some(EventKind::Deleted),
        (_, now, _) => now.then_some(kind),
    }
}

/// An object with the revision of its going.
fn gone(text: &[u8], at: Revision) -> Result<Bytes, Status> {
    let mut object: Value = serde_json::from_slice(text).map_err(Status::internal)?;
    object["metadata"]["resourceVersion"] = at.to_string().into();
    Ok(stored::text(&object).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_into_a_selection_by_fields_is_new_and_what_leaves_it_is_gone() {
        use EventKind::{Added, Deleted, Modified};
        for (kind, now, was, expect) in [
            (Modified, true, Some(true), Some(Modified)),
            (Modified, true, Some(false), Some(Added)),
            (Modified, false, Some(true), Some(Deleted)),
            (Modified, false, Some(false), None),
            (Modified, true, None, Some(Modified)),
            (Added, true, None, Some(Added)),
            (Added, false, None, None),
            (Deleted, true, None, Some(Deleted)),
            (Deleted, false, None, None),
        ] {
            assert_eq!(seen_as(kind, now, was), expect, "{kind:?} {now} {was:?}");
        }
    }
}
