//! What happened to an object, and what of it one watcher sees.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use coracle_store::Revision;
use tokio::time::Instant;

use super::entry::Entry;

/// The `type` of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The object is new, or new to the selection.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or gone from the selection.
    Deleted,
}

impl EventKind {
    /// As on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// What stands before the object in a watch line; `}` and a newline stand after it.
    pub(crate) fn line_prefix(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }
}

/// A change of one object, shared by all watchers.
#[derive(Debug)]
pub struct WatchEvent {
    /// What happened in the store.
    pub kind: EventKind,
    /// The object after the event; for a deletion its last state with the revision of the deletion.
    pub entry: Arc<Entry>,
    /// The object before, if it existed.
    pub prev: Option<Arc<Entry>>,
    /// The store's revision of the change.
    pub revision: Revision,
    /// When it came here.
    pub(super) at: Instant,
    /// `prev` as seen by those whose selection it leaves; made when the first of them asks.
    departed: OnceLock<Arc<Entry>>,
}

impl WatchEvent {
    pub(super) fn new(
        kind: EventKind,
        entry: Arc<Entry>,
        prev: Option<Arc<Entry>>,
        at: Instant,
    ) -> Self {
        let revision = entry.revision();
        Self {
            kind,
            entry,
            prev,
            revision,
            at,
            departed: OnceLock::new(),
        }
    }

    /// What a watcher with this selection sees; `None` if nothing.
    ///
    /// Source: `k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`, `convertToWatchEvent`: what
    /// leaves the selection is shown as it was before, with the revision of the event.
    pub(crate) fn shown_to(
        &self,
        selects: impl Fn(&Entry) -> bool,
    ) -> Option<(EventKind, &Arc<Entry>)> {
        let now = self.kind != EventKind::Deleted && selects(&self.entry);
        let before = self.prev.as_deref().is_some_and(&selects);
        Some(match (before, now) {
            (false, false) => return None,
            (false, true) => (EventKind::Added, &self.entry),
            (true, true) => (EventKind::Modified, &self.entry),
            (true, false) if self.kind == EventKind::Deleted => (EventKind::Deleted, &self.entry),
            (true, false) => (EventKind::Deleted, self.departed()?),
        })
    }

    /// As [`WatchEvent::shown_to`], to keep.
    pub(crate) fn seen_by(self: &Arc<Self>, selects: impl Fn(&Entry) -> bool) -> Option<Delivery> {
        let (kind, entry) = self.shown_to(selects)?;
        Some(Delivery {
            kind,
            entry: Arc::clone(entry),
            event: Arc::clone(self),
        })
    }

    fn departed(&self) -> Option<&Arc<Entry>> {
        let prev = self.prev.as_ref()?;
        Some(
            self.departed
                .get_or_init(|| Arc::new(prev.gone_at(self.revision))),
        )
    }
}

/// An event as one watcher is to see it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The type to announce.
    pub kind: EventKind,
    /// The object to show.
    pub entry: Arc<Entry>,
    /// The change behind it.
    pub event: Arc<WatchEvent>,
}

impl Delivery {
    /// The event in plain JSON with a newline; in nearly all cases bytes shared with the cache.
    #[must_use]
    pub fn line(&self) -> Bytes {
        self.entry.line(self.kind)
    }

    /// The `resourceVersion` that the event announces.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.event.revision
    }
}
