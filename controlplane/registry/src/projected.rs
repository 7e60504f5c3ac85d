//! The objects of a kind that shows some of another's, as clients get them.
//!
//! Many watch such a kind for the same events, so what was made for one of them is kept for a
//! moment for the others. Not here: what is shown, which is each kind's business ([`Projection`]).

use std::sync::{Arc, Weak};

use bytes::Bytes;
use coracle_api::schema::{Schema, Structural};
use coracle_telemetry::ErrorChain;
use parking_lot::Mutex;

use crate::{strategy::Projection, watch_cache::Entry};

/// Objects that are kept: about as many as events lie between the watchers that are ahead and those
/// that follow. Half a kilobyte each.
const RECENT: usize = 256;

/// How a kind shows the objects of another.
pub struct Projected {
    kind: &'static dyn Projection,
    recent: Box<[Mutex<Option<Made>>]>,
}

/// One object, and what it was made of. That is not kept alive for it.
struct Made {
    of: Weak<Entry>,
    json: Bytes,
}

impl Projected {
    /// Nothing is made yet.
    #[must_use]
    pub fn new(kind: &'static dyn Projection) -> Self {
        Self {
            kind,
            recent: (0..RECENT).map(|_| Mutex::default()).collect(),
        }
    }

    /// Which kind it is of.
    #[must_use]
    pub fn kind(&self) -> &'static dyn Projection {
        self.kind
    }

    /// What its objects look like.
    #[must_use]
    pub fn schema(&self) -> Option<Schema> {
        Structural::read(&self.kind.openapi_schema())
            .ok()
            .map(Schema::Structural)
    }

    /// An encoded object of the storing kind as this kind shows it. Of one that cannot be read
    /// nothing is shown but that there is one.
    #[must_use]
    pub fn of_json(&self, json: &[u8]) -> Bytes {
        self.kind.project(json).map_or_else(
            |error| {
                let info = self.kind.resource();
                tracing::warn!(kind = info.kind, error = %ErrorChain(&error), "project an object");
                format!(
                    r#"{{"kind":"{}","apiVersion":"{}/{}","metadata":{{}}}}"#,
                    info.kind, info.group, info.version
                )
                .into()
            },
            Bytes::from,
        )
    }

    /// The same of an object of the cache, made once for all who ask about the same time. Who asks
    /// meanwhile waits: it takes some microseconds.
    #[must_use]
    pub fn of_entry(&self, entry: &Arc<Entry>) -> Bytes {
        let of_revision = entry.revision().0 % (RECENT as u64);
        let place = usize::try_from(of_revision).unwrap_or_default();
        let mut made = self.recent[place].lock();
        match &*made {
            // The allocation is this entry's as long as somebody holds a reference, weak or not.
            Some(made) if std::ptr::eq(made.of.as_ptr(), Arc::as_ptr(entry)) => made.json.clone(),
            _ => {
                let json = self.of_json(&entry.unmanaged());
                *made = Some(Made {
                    of: Arc::downgrade(entry),
                    json: json.clone(),
                });
                json
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kinds::net::podpeer::PodPeer,
        store::WriteOptions,
        testing::{minimal::minimal, started},
    };

    #[tokio::test]
    async fn what_many_watch_is_made_once() {
        let (store, registry) = started().await;
        let pods = registry.core("pods").unwrap();
        for name in ["a", "b"] {
            let mut pod = minimal(&crate::kinds::core::pod::Pod);
            pod["metadata"] = json!({"name": name});
            let made = store.create(pods, "n", pod, WriteOptions::default());
            made.await.unwrap();
        }
        store.cache.catch_up().await.unwrap();
        let entry = |name: &str| pods.cache.get(&pods.key("n", name)).unwrap();
        let (a, projected) = (entry("a"), Projected::new(&PodPeer));
        let first = projected.of_entry(&a);
        assert_eq!(projected.of_entry(&a).as_ptr(), first.as_ptr());
        assert_eq!(first, projected.of_json(&a.json_bytes()));
        // Another object in the same place, as a later revision may be.
        let b = entry("b");
        let place = usize::try_from(b.revision().0 % (RECENT as u64)).unwrap();
        *projected.recent[place].lock() = Some(Made {
            of: Arc::downgrade(&a),
            json: first.clone(),
        });
        assert_eq!(projected.of_entry(&b), projected.of_json(&b.json_bytes()));
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        let shown = Projected::new(&PodPeer).of_json(br#"{"metadata":{"labels":[}"#);
        let expect = r#"{"kind":"PodPeer","apiVersion":"net.coracle.dev/v1","metadata":{}}"#;
        assert_eq!(shown, expect);
    }
}
