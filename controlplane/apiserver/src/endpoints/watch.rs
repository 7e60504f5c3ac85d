//! WATCH: a stream of events until the client leaves, time is up, or the client is too slow.
//!
//! Events are the cache's own lines; only Table and PartialObjectMetadata are made per watcher.
//! When the server stops, the cache ends every watch.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use coracle_api::status::Status;
use coracle_registry::{
    resource::Resource,
    store::cache_status,
    stored,
    watch_cache::{Delivery, Entry, EventKind, WatchCacheError, Watcher},
};
use coracle_store::Revision;
use serde_json::json;
use tokio::time::{Instant, Sleep};

use super::{Call, Shape, now_secs};
use crate::{
    body::Body,
    list_options::{self, ListOptions, ListVerb, Version},
    reply::Reply,
    table::{self, ListMeta, TableOptions, accept::Form},
};

const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark comes so long before time is up.
const BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// Without `timeoutSeconds`: a random time from here to twice that, so that not all reconnect at
/// once.
const MIN_TIMEOUT_SECS: u64 = 1800;
/// Longest that a client may ask for: nobody waits for more, and the clock ends somewhere.
const MAX_TIMEOUT_SECS: u64 = 7 * 24 * 3600;
const CHUNK: usize = 32 * 1024;
const TOO_OLD: &str = "The resourceVersion for the provided watch is too old.";

/// Serves the stream.
pub(crate) async fn watch(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let options = ListOptions::parse(call.query, ListVerb::Watch)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let cache = &call.server.store.cache;
    let wants_initial = options.send_initial_events == Some(true);
    match options.version {
        Version::Newest => cache.catch_up().await,
        Version::Any => Ok(()),
        Version::NotOlderThan(revision) | Version::Exact(revision) => {
            cache.wait_for(revision).await
        }
    }
    .map_err(cache_status)?;
    let from = match options.version {
        Version::NotOlderThan(revision) | Version::Exact(revision) if !wants_initial => {
            Some(revision)
        }
        _ => None,
    };
    let mut initial = Vec::new();
    let mut end_of_initial = None;
    let watcher = match from {
        Some(revision) => match call.resource.cache.watch(selection, revision) {
            Err(WatchCacheError::TooOld { .. }) => return Ok(too_old()),
            watcher => watcher.map_err(cache_status)?,
        },
        None => {
            let (snapshot, watcher) = call.resource.cache.snapshot_and_watch(selection.clone());
            // Also unasked: a watch without a version has always begun with what is there.
            if options.send_initial_events != Some(false) {
                initial = snapshot
                    .select(&selection, &call.resource.prefix)
                    .cloned()
                    .collect();
            }
            end_of_initial = (wants_initial && options.bookmarks).then(|| snapshot.revision());
            watcher
        }
    };
    let timeout = options
        .timeout_secs
        .filter(|secs| *secs > 0)
        .unwrap_or_else(|| MIN_TIMEOUT_SECS + rand::random::<u64>() % MIN_TIMEOUT_SECS);
    let now = Instant::now();
    let deadline = now + Duration::from_secs(timeout.min(MAX_TIMEOUT_SECS));
    let mut stream = WatchStream {
        watcher,
        initial: initial.into_iter(),
        end_of_initial,
        deadline,
        next_bookmark: options.bookmarks.then(|| now + BOOKMARK_PERIOD),
        alarm: Box::pin(tokio::time::sleep_until(deadline)),
        encoder: Encoder {
            resource: Arc::clone(call.resource),
            shape,
            columns_sent: false,
        },
    };
    stream.set_alarm();
    let stream = futures::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((Ok(chunk), stream))
    });
    Ok(Reply::json(Body::Stream(Box::pin(stream))))
}

/// The client learns it inside the stream, as from upstream's cache.
fn too_old() -> Reply {
    Reply::json(line(
        "ERROR",
        &stored::text(&Status::expired(TOO_OLD).to_json()),
    ))
}

struct WatchStream {
    watcher: Watcher,
    initial: std::vec::IntoIter<Arc<Entry>>,
    end_of_initial: Option<Revision>,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Until the next bookmark or the deadline. Kept from event to event: setting a timer is dear.
    alarm: Pin<Box<Sleep>>,
    encoder: Encoder,
}

impl WatchStream {
    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.initial.len() > 0 {
            return Some(self.initial_chunk());
        }
        if let Some(revision) = self.end_of_initial.take() {
            return Some(self.encoder.initial_events_end(revision));
        }
        loop {
            // Also when there is always something to send.
            if Instant::now() >= self.deadline {
                return None;
            }
            // Too slow, or closing: the client comes back and resumes or relists.
            if self.encoder.is_plain() {
                tokio::select! {
                    biased;
                    lines = self.watcher.next_lines() => return lines.ok().map(Bytes::from),
                    () = &mut self.alarm => {}
                }
            } else {
                tokio::select! {
                    biased;
                    deliveries = self.watcher.next() => return deliveries.ok().map(|all| self.joined(&all)),
                    () = &mut self.alarm => {}
                }
            }
            let now = Instant::now();
            if now >= self.deadline {
                return None;
            }
            let last = self
                .deadline
                .checked_sub(BOOKMARK_LEAD)
                .unwrap_or(self.deadline);
            let next = now + BOOKMARK_PERIOD;
            self.next_bookmark = Some(if now < last && next > last {
                last
            } else {
                next
            });
            self.set_alarm();
            if let Some(revision) = self.watcher.progress() {
                return Some(self.encoder.bookmark(revision));
            }
        }
    }

    fn set_alarm(&mut self) {
        let at = self
            .next_bookmark
            .map_or(self.deadline, |at| at.min(self.deadline));
        self.alarm.as_mut().reset(at);
    }

    /// Events as one piece, no larger than they are: thousands of watchers may have one under way.
    fn joined(&mut self, deliveries: &[Delivery]) -> Bytes {
        let lines: Vec<Bytes> = deliveries
            .iter()
            .map(|one| self.encoder.event(one.kind, &one.entry))
            .collect();
        lines.concat().into()
    }

    fn initial_chunk(&mut self) -> Bytes {
        let mut chunk = BytesMut::with_capacity(CHUNK + 4096);
        while chunk.len() < CHUNK
            && let Some(entry) = self.initial.next()
        {
            chunk.extend_from_slice(&self.encoder.event(EventKind::Added, &entry));
        }
        chunk.freeze()
    }
}

struct Encoder {
    resource: Arc<Resource>,
    shape: Shape,
    columns_sent: bool,
}

impl Encoder {
    /// Whether lines go out as the cache has them.
    fn is_plain(&self) -> bool {
        matches!(self.shape.form, Form::Object) && self.resource.is_shown_as_stored()
    }

    fn event(&mut self, kind: EventKind, entry: &Entry) -> Bytes {
        match self.shape.form {
            Form::Object if self.resource.is_shown_as_stored() => entry.line(kind),
            Form::Object => line(kind.as_str(), &self.resource.shown_json(entry.json_bytes())),
            Form::Table(_) => {
                let revision = entry.revision().to_string();
                let json = self.resource.shown_json(entry.json_bytes());
                line(kind.as_str(), &self.table(Some(&json), &revision))
            }
            Form::PartialObjectMetadata(version) => line(
                kind.as_str(),
                &table::partial_metadata(&entry.json_bytes(), version),
            ),
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

    fn bookmark(&mut self, revision: Revision) -> Bytes {
        self.bookmark_with(revision, json!({}))
    }

    /// The bookmark that follows the objects that were there already.
    fn initial_events_end(&mut self, revision: Revision) -> Bytes {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        self.bookmark_with(revision, json!({"annotations": annotations}))
    }

    fn bookmark_with(&mut self, revision: Revision, mut metadata: serde_json::Value) -> Bytes {
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

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.extend_from_slice(br#"{"type":""#);
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(br#"","object":"#);
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.freeze()
}
