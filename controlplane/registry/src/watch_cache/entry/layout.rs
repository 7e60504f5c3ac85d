//! How a line is made of a stored object, and what of it is kept. Pure.

use std::ops::Range;

use coracle_store::Revision;

use super::{
    super::{alike::Tail, event::EventKind},
    EntrySource, LINE_SUFFIX,
};
use crate::stored;

/// The watch line of a stored object, resourceVersion spliced in.
pub(super) fn line_of(
    kind: EventKind,
    stored: &[u8],
    revision: Revision,
) -> Result<Vec<u8>, serde_json::Error> {
    let stored = stored::normalized(stored)?;
    let revision = revision.to_string();
    // Exactly as long as it gets: an entry keeps it.
    let spliced = br#""resourceVersion":"","#.len() + revision.len();
    let mut line =
        Vec::with_capacity(kind.line_prefix().len() + stored.len() + spliced + LINE_SUFFIX.len());
    line.extend_from_slice(kind.line_prefix());
    stored::append_with_revision(&mut line, &stored, &revision);
    line.extend_from_slice(LINE_SUFFIX);
    Ok(line)
}

/// Where namespace and name are in a key. A key too long for the offsets has no valid name anyway.
pub(super) fn split_key(key: &str, source: &EntrySource<'_>) -> (Range<u16>, u16) {
    let offset = |at: usize| u16::try_from(at).unwrap_or_default();
    let start = source.prefix.len();
    match key[start..].find('/').filter(|_| source.namespaced) {
        Some(slash) => (
            offset(start)..offset(start + slash),
            offset(start + slash + 1),
        ),
        None => (0..0, offset(start)),
    }
}

/// Ends `line` at `from` if what follows there, but for the end of the line, is held elsewhere.
pub(super) fn cut_tail(line: &mut Vec<u8>, from: usize, hold: impl FnOnce(&[u8]) -> Tail) -> Tail {
    let tail = hold(&line[from..line.len() - LINE_SUFFIX.len()]);
    if !tail.is_empty() {
        line.truncate(from);
        line.shrink_to_fit();
    }
    tail
}
