//! GET of a collection. Objects are sent as the cache holds them: concatenated, never encoded
//! again.

use std::sync::Arc;

use bytes::Bytes;
use coracle_api::status::Status;
use coracle_registry::{
    resource::Resource,
    store::cache_status,
    watch_cache::{Continue, Entry, ListAt, ListRequest, ListResult, Selection, WatchCacheError},
};
use coracle_store::Revision;
use http::StatusCode;
use parking_lot::Mutex;

use super::{Call, Shape, now_secs};
use crate::{
    body::Body,
    list_options::{self, ListOptions, ListVerb, Token, Version},
    reply::Reply,
    table::{self, ListMeta, TableOptions, accept::Form},
    weight,
};

/// Entries are gathered into chunks of at least so many bytes.
const CHUNK: usize = 64 * 1024;

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
deleted between the time the first chunk was returned and now may show up in the list.";

/// Serves the collection.
pub(crate) async fn list(call: &Call<'_>) -> Result<Reply, Status> {
    let shape = call.shape()?;
    let options = ListOptions::parse(call.query, ListVerb::List)?;
    let selection = list_options::selection(call.resource, call.info, call.query)?;
    let result = match read(call, &options, selection).await {
        Err(WatchCacheError::TooOld { .. }) if options.token.is_some() => {
            return Ok(continue_expired(&options));
        }
        result => result.map_err(cache_status)?,
    };
    let place = Place::of(call.resource, &result);
    // Nearly all lists: nothing is decoded, and the text is made as the connection takes it.
    if matches!(shape.form, Form::Object) && call.resource.is_shown_as_stored() {
        return Ok(Reply::json(objects_body(
            call.resource,
            result.entries,
            &place.meta(),
        )));
    }
    let weight = weight::listed(&result.entries);
    let made = async { Ok(made(call.resource, &result.entries, shape, &place.meta())) };
    let limits = &call.server.limits;
    limits.worked_on(call.requester, weight, made).await
}

/// Which state a list is of, and where it goes on.
struct Place {
    revision: String,
    token: Option<String>,
    remaining: Option<usize>,
}

impl Place {
    fn of(resource: &Resource, result: &ListResult) -> Self {
        let token = |next: &Continue| {
            let start = next.after.strip_prefix(&resource.prefix);
            Token::new(
                i64::try_from(next.revision.0).unwrap_or(i64::MAX),
                start.unwrap_or(&next.after),
                next.remaining,
            )
        };
        Self {
            revision: result.revision.to_string(),
            token: result.next.as_ref().map(|next| token(next).encode()),
            remaining: result.next.as_ref().and_then(|next| next.remaining),
        }
    }

    fn meta(&self) -> ListMeta<'_> {
        ListMeta {
            resource_version: &self.revision,
            continue_token: self.token.as_deref(),
            remaining_item_count: self.remaining.map(|count| count as u64),
        }
    }
}

/// A list whose objects are not sent as the cache has them: each is decoded.
fn made(resource: &Resource, entries: &[Arc<Entry>], shape: Shape, meta: &ListMeta<'_>) -> Reply {
    let objects: Vec<_> = entries
        .iter()
        .map(|entry| resource.shown_json(entry.json_bytes()))
        .collect();
    let texts = objects.iter().map(|json| &json[..]);
    match shape.form {
        Form::Object => Reply::json(
            [
                head(resource, meta).as_bytes(),
                &objects.join(&b","[..]),
                b"]}\n",
            ]
            .concat(),
        ),
        Form::Table(version) => {
            let options = TableOptions {
                version,
                include: shape.include,
                with_columns: true,
                now_secs: now_secs(),
            };
            Reply::line(&table::render(&*resource.strategy, texts, options, meta))
        }
        Form::PartialObjectMetadata(version) => {
            Reply::line(&table::partial_metadata_list(texts, version, meta))
        }
    }
}

/// What a collection request selects, also for deletecollection.
pub(crate) async fn read(
    call: &Call<'_>,
    options: &ListOptions,
    selection: Selection,
) -> Result<ListResult, WatchCacheError> {
    let cache = &call.server.store.cache;
    let mut request = ListRequest {
        limit: options.limit,
        ..ListRequest::all(selection)
    };
    match (&options.token, options.version) {
        (Some(token), _) => {
            request.after = Some(format!("{}{}", call.resource.prefix, token.start));
            match u64::try_from(token.rv) {
                Ok(revision) => {
                    // Another server may have given it, which was further. Or nobody.
                    cache.wait_for_written(Revision(revision)).await?;
                    request.at = ListAt::Exact(Revision(revision));
                    request.remaining = token.remaining;
                }
                Err(_) => cache.catch_up().await?,
            }
        }
        (None, Version::Newest) => cache.catch_up().await?,
        (None, Version::Any) => {}
        (None, Version::NotOlderThan(revision)) => cache.wait_for(revision).await?,
        (None, Version::Exact(revision)) => {
            cache.wait_for(revision).await?;
            request.at = ListAt::Exact(revision);
        }
    }
    cache.list(&call.resource.cache, &request).await
}

/// 410 with a token that goes on in the present state.
fn continue_expired(options: &ListOptions) -> Reply {
    let mut status = Status::expired(CONTINUE_EXPIRED).to_json();
    if let Some(token) = &options.token {
        let token = Token::new(-1, &token.start, None).encode();
        status["metadata"] = serde_json::json!({"continue": token});
    }
    Reply::value(&status).with_status(StatusCode::GONE)
}

/// The text of a list before its items.
fn head(resource: &Resource, meta: &ListMeta<'_>) -> String {
    format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{},"items":["#,
        resource.info.kind,
        resource.gvk.api_version(),
        serde_json::to_string(meta).unwrap_or_default()
    )
}

fn objects_body(resource: &Resource, entries: Vec<Arc<Entry>>, meta: &ListMeta<'_>) -> Body {
    let head = head(resource, meta);
    let items: usize = entries.iter().map(|entry| entry.json_len()).sum();
    let left = head.len() + items + entries.len().saturating_sub(1) + 3;
    Body::Chunks {
        source: Box::new(Chunks {
            head: Some(head),
            entries,
            next: 0,
        }),
        left: left as u64,
    }
}

/// Makes the text of a list as the connection takes it.
///
/// Chunks are written into buffers that come back once they have been sent ([`Buffer`]): large
/// ones, taken from the allocator and given back for every piece, cost more than the text itself.
struct Chunks {
    /// What stands before the items, until the first chunk has taken it.
    head: Option<String>,
    entries: Vec<Arc<Entry>>,
    /// The entry that the next chunk begins with. Past the end once the last chunk is made.
    next: usize,
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let head = self.head.take();
        if head.is_none() && self.next > self.entries.len() {
            return None;
        }
        let mut chunk = Buffer::take();
        chunk.extend_from_slice(head.unwrap_or_default().as_bytes());
        while chunk.len() < CHUNK
            && let Some(entry) = self.entries.get(self.next)
        {
            if self.next > 0 {
                chunk.extend_from_slice(b",");
            }
            entry.append_json(&mut chunk.0);
            self.next += 1;
        }
        if self.next == self.entries.len() {
            chunk.extend_from_slice(b"]}\n");
            self.next += 1;
        }
        Some(chunk.freeze())
    }
}

/// A piece of text under way to a client.
struct Buffer(Vec<u8>);

/// Buffers that wait for the next chunk.
static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// Most buffers that wait: a megabyte and a half.
const BUFFERS_KEPT: usize = 16;
const BUFFER_BYTES: usize = CHUNK + CHUNK / 2;

impl Buffer {
    fn take() -> Self {
        Self(
            BUFFERS
                .lock()
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES)),
        )
    }

    fn extend_from_slice(&mut self, text: &[u8]) {
        self.0.extend_from_slice(text);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut text = std::mem::take(&mut self.0);
        let mut waiting = BUFFERS.lock();
        // One that a large object has made larger is not kept.
        if waiting.len() < BUFFERS_KEPT && text.capacity() == BUFFER_BYTES {
            text.clear();
            waiting.push(text);
        }
    }
}
