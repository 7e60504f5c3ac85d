//! What is cached of a resource, and how much of its past.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_store::KeyValue;

use super::fields::FieldIndex;

/// One resource to cache.
#[derive(Clone)]
pub struct ResourceConfig {
    /// `/registry/<group>/<resource>/`, the core group without its element, with the slash at the
    /// end.
    pub prefix: String,
    /// Whether keys go on with a namespace.
    pub namespaced: bool,
    /// The indexed fields; `None` if there are none besides name and namespace: objects are then
    /// never parsed.
    pub index: Option<FieldIndex>,
    /// Whether its past stays no longer for being recent: for what is written again and again, such
    /// as Leases.
    pub is_transient: bool,
    /// Makes the form that is cached of one that is stored; `None` for a kind that is cached as it
    /// is stored.
    pub convert: Option<Convert>,
}

/// See [`ResourceConfig::convert`]. `None` for what is stored as it is cached.
pub type Convert = Arc<dyn Fn(&[u8]) -> Option<Bytes> + Send + Sync>;

impl ResourceConfig {
    /// A stored object in the form that is cached; `None` if it is stored so.
    pub(crate) fn converted(&self, stored: &KeyValue) -> Option<KeyValue> {
        let convert = self.convert.as_ref()?;
        Some(KeyValue {
            value: convert(&stored.value)?,
            ..stored.clone()
        })
    }
}

impl fmt::Debug for ResourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceConfig")
            .field("prefix", &self.prefix)
            .field("namespaced", &self.namespaced)
            .finish_non_exhaustive()
    }
}

/// How much of the past is kept, for each resource.
#[derive(Debug, Clone, Copy)]
pub struct WatchCacheLimits {
    /// Most events in the ring.
    pub ring_events: usize,
    /// Most bytes of past objects that the ring keeps alive.
    pub ring_bytes: usize,
    /// Up to these bounds, an event stays until it is so old.
    pub ring_age: Duration,
    /// So many events stay at any age.
    pub ring_events_at_any_age: usize,
    /// And so many bytes.
    pub ring_bytes_at_any_age: usize,
    /// Most bytes that all rings keep alive together. Beyond, each goes back to what stays at any
    /// age.
    pub all_rings_bytes: usize,
    /// Most states that are kept for continue tokens.
    pub pins: usize,
    /// Most bytes of superseded objects that these states keep alive together.
    pub pin_bytes: u64,
    /// How long such a state is kept after its last use.
    pub pin_age: Duration,
    /// Most bytes of superseded objects that the beginnings of watches keep alive together: a
    /// client that does not take its own in time is cut off.
    pub beginning_bytes: u64,
    /// How many revisions before the present the cache starts with at most, so that watches survive
    /// a restart. The store has fewer when it has been compacted: what is older than five minutes
    /// goes.
    pub warm_revisions: u64,
}

impl WatchCacheLimits {
    /// Those of a resource.
    pub(super) fn of(self, resource: &ResourceConfig) -> Self {
        if !resource.is_transient {
            return self;
        }
        Self {
            ring_events: self.ring_events.min(self.ring_events_at_any_age),
            ring_bytes: self.ring_bytes.min(self.ring_bytes_at_any_age),
            ..self
        }
    }
}

/// Source of the age and of most events: `watch_cache_history.go` in
/// `k8s.io/apiserver/pkg/storage/cacher` at v1.37, `DefaultEventFreshDuration` (bookmarks come each
/// minute) and `defaultUpperBoundCapacity`.
impl Default for WatchCacheLimits {
    fn default() -> Self {
        Self {
            ring_events: 100 * 1024,
            ring_bytes: 64 << 20,
            ring_age: Duration::from_secs(75),
            ring_events_at_any_age: 8192,
            ring_bytes_at_any_age: 8 << 20,
            all_rings_bytes: 96 << 20,
            pins: 64,
            pin_bytes: 64 << 20,
            pin_age: Duration::from_secs(300),
            beginning_bytes: 16 << 20,
            warm_revisions: 50_000,
        }
    }
}
