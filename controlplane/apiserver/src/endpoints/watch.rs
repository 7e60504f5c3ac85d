//! WATCH: a stream of events until the client leaves, time is up, or the client is too slow.
//!
//! Events are the cache's own lines; only Table and PartialObjectMetadata are made per watcher.
//! When the server stops, the cache ends every watch.

mod converting;
mod encoder;

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_registry::{
    store::cache_status,
    stored,
    watch_cache::{Beginning, EventKind, LINES_BYTES, WatchCacheError, Watcher},
};
use coracle_store::Revision;
use tokio::time::{Instant, Sleep};

use self::{
    converting::{Converting, End},
    encoder::{Encoder, line},
};
use super::Call;
use crate::{
    body::Body,
    limits::Requester,
    list_options::{self, ListOptions, ListVerb, Version},
    reply::Reply,
    state::State,
};

const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// A last bookmark comes so long before time is up.
const BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// Without `timeoutSeconds`: a random time from here to twice that, so that not all reconnect at
/// once.
const MIN_TIMEOUT_SECS: u64 = 1800;
/// Longest that a client may ask for: nobody waits for more, and the clock ends somewhere.
const MAX_TIMEOUT_SECS: u64 = 7 * 24 * 3600;
const TOO_OLD: &str = "The resourceVersion for the provided watch is too old.";

/// Serves the stream.
pub(crate) async fn watch(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let options = ListOptions::parse(call.query, ListVerb::Watch)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let fields = list_options::converted_fields(call.resource, call.query)?;
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
    let (mut beginning, mut end_of_beginning) = (None, None);
    let watcher = match from {
        Some(revision) => match call.resource.cache.watch(selection, revision) {
            Err(WatchCacheError::TooOld { .. }) => return Ok(too_old()),
            watcher => watcher.map_err(cache_status)?,
        },
        None => {
            let (present, watcher) = call.resource.cache.begin_and_watch(selection);
            end_of_beginning = (wants_initial && options.bookmarks).then(|| present.revision());
            // Also unasked: a watch without a version has always begun with what is there.
            beginning = (options.send_initial_events != Some(false)).then_some(present);
            watcher
        }
    };
    let timeout = options
        .timeout_secs
        .filter(|secs| *secs > 0)
        .unwrap_or_else(|| MIN_TIMEOUT_SECS + rand::random::<u64>() % MIN_TIMEOUT_SECS);
    let now = Instant::now();
    let deadline = now + Duration::from_secs(timeout.min(MAX_TIMEOUT_SECS));
    let encoder = Encoder::new(call.resource, shape);
    let versions = call.resource.converted.clone();
    let versions = versions.filter(|_| encoder.is_converting() || fields.is_some());
    let mut stream = WatchStream {
        watcher,
        converting: versions.map(|versions| Converting::new(versions, fields)),
        is_over: false,
        beginning,
        end_of_beginning,
        deadline,
        next_bookmark: options.bookmarks.then(|| now + BOOKMARK_PERIOD),
        alarm: Box::pin(tokio::time::sleep_until(deadline)),
        encoder,
        server: Arc::clone(call.server),
        requester: call.requester,
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
    Reply::json(error_line(&Status::expired(TOO_OLD)))
}

fn error_line(status: &Status) -> Vec<u8> {
    line("ERROR", &stored::text(&status.to_json()))
}

struct WatchStream {
    watcher: Watcher,
    /// Until all of it has been sent.
    beginning: Option<Beginning>,
    end_of_beginning: Option<Revision>,
    /// Of objects that a webhook converts.
    converting: Option<Converting>,
    /// The client was told why.
    is_over: bool,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Until the next bookmark or the deadline. Kept from event to event: setting a timer is dear.
    alarm: Pin<Box<Sleep>>,
    encoder: Encoder,
    server: Arc<State>,
    requester: Requester,
}

impl WatchStream {
    /// The next piece of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        match self.begin().await {
            Ok(lines) if lines.is_empty() => self.beginning = None,
            Ok(lines) => return self.counted(lines),
            // Too slow: the client comes back.
            Err(End::Cut) => return None,
            Err(End::Failed(status)) => return Some(self.end(&status)),
        }
        if let Some(revision) = self.end_of_beginning.take() {
            return Some(self.encoder.initial_events_end(revision).into());
        }
        loop {
            // Also when there is always something to send.
            if Instant::now() >= self.deadline {
                return None;
            }
            // Too slow, or closing: the client comes back and resumes or relists.
            if let Some(converting) = &mut self.converting {
                tokio::select! {
                    biased;
                    lines = converting.next(&mut self.watcher, &mut self.encoder) => match lines {
                        Ok(lines) => return self.counted(lines),
                        Err(End::Cut) => return None,
                        Err(End::Failed(status)) => return Some(self.end(&status)),
                    },
                    () = &mut self.alarm => {}
                }
            } else if self.encoder.is_plain() {
                tokio::select! {
                    biased;
                    lines = self.watcher.next_lines() => return lines.ok().map(Bytes::from),
                    () = &mut self.alarm => {}
                }
            } else {
                tokio::select! {
                    biased;
                    lines = next_made(&mut self.watcher, &mut self.encoder) => return self.counted(lines.ok()?),
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
            if self.converting.as_ref().is_none_or(Converting::is_idle)
                && let Some(revision) = self.watcher.progress()
            {
                return Some(self.encoder.bookmark(revision).into());
            }
        }
    }

    /// The next of what was there when it began; empty at the end.
    async fn begin(&mut self) -> Result<Vec<u8>, End> {
        let Some(beginning) = &mut self.beginning else {
            return Ok(Vec::new());
        };
        match &mut self.converting {
            Some(converting) => converting.begin(beginning, &mut self.encoder).await,
            None if self.encoder.is_plain() => Ok(beginning.next_lines()?),
            None => Ok(made_of(beginning, &mut self.encoder)?),
        }
    }

    /// The last line.
    fn end(&mut self, status: &Status) -> Bytes {
        self.is_over = true;
        error_line(status).into()
    }

    fn set_alarm(&mut self) {
        let at = self
            .next_bookmark
            .map_or(self.deadline, |at| at.min(self.deadline));
        self.alarm.as_mut().reset(at);
    }

    /// Lines as they go out. What is longer than a piece is counted until it has gone; `None` if
    /// too much of the same client's has not.
    fn counted(&self, mut lines: Vec<u8>) -> Option<Bytes> {
        if lines.len() <= LINES_BYTES {
            return Some(lines.into());
        }
        lines.shrink_to_fit();
        let limits = &self.server.limits;
        limits.long_lines(self.requester, lines).ok()
    }
}

/// The next events in the client's form: about a piece, and whole lines.
async fn next_made(
    watcher: &mut Watcher,
    encoder: &mut Encoder,
) -> Result<Vec<u8>, WatchCacheError> {
    // One after the other: a batch of large objects is not made, nor kept, at once.
    let first = watcher.next_one().await?;
    let mut lines = encoder.event(first.kind, &first.entry);
    while lines.len() < LINES_BYTES
        && let Ok(Some(next)) = watcher.ready_one()
    {
        lines.extend(encoder.event(next.kind, &next.entry));
    }
    Ok(lines)
}

/// The next of what was there in the client's form; empty at the end.
fn made_of(beginning: &mut Beginning, encoder: &mut Encoder) -> Result<Vec<u8>, WatchCacheError> {
    let mut lines = Vec::new();
    while lines.len() < LINES_BYTES
        && let Some(entry) = beginning.next_entry()?
    {
        lines.extend(encoder.event(EventKind::Added, &entry));
    }
    Ok(lines)
}
