//! How much a request gives the server to chew on: not its body alone, what it is about as well.
//! Not lists: they are made a piece at a time, as the client takes them.
//!
//! Forty bytes that label a pod have the server read, check and write all of the pod. What the
//! cache says is near enough: an object that has grown a moment ago is worked on once as the one
//! that it was.

use coracle_registry::resource::Resource;
use http::{HeaderMap, header};

use crate::{
    catalog::Serving,
    limits::LARGE,
    request_info::{ResourceRequest, Verb},
    state::State,
    table::accept,
};

/// A table's rows are made in one pass; a write goes through an object some eight times.
const PASSES: usize = 8;

/// In bytes, as [`crate::limits::Limits::worked_on`] takes them.
pub(crate) fn weight(
    serving: &Serving<State>,
    info: &ResourceRequest<'_>,
    headers: &HeaderMap,
    body: &[u8],
) -> usize {
    let Serving::Stored(resource) = serving else {
        return body.len();
    };
    let about = match info.verb {
        Verb::Patch if may_copy(body) => LARGE,
        // Those of a collection are deleted one after the other.
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => stored(resource, info),
        Verb::Get if is_transformed(headers) => stored(resource, info) / PASSES,
        _ => 0,
    };
    body.len().saturating_add(about)
}

/// Whether it may be a JSON patch that makes a large object of a small one.
fn may_copy(body: &[u8]) -> bool {
    body.len() < LARGE
        && body
            .windows(4)
            .any(|part| part == b"copy" || part.starts_with(b"\\u"))
}

/// Whether objects are not sent as the cache has them.
fn is_transformed(headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    accept::media_ranges(accept).any(|range| !range.as_kind.is_empty())
}

/// Of the object that the path names, if there is one.
fn stored(resource: &Resource, info: &ResourceRequest<'_>) -> usize {
    if info.name.is_empty() {
        return 0;
    }
    let resource = resource.storing();
    resource
        .cache
        .get(&resource.key(&info.namespace, &info.name))
        .map_or(0, |entry| entry.json_len())
}
