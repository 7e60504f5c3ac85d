//! One object as the cache holds it: encoded once, with what selectors ask about found once.
//!
//! The object's JSON lies inside a ready watch line, `{"type":"ADDED","object":` before it and
//! `}\n` after it, so that a LIST (a slice) and a WATCH (the whole) share the same bytes. Labels
//! and the UID are offsets into these bytes. What managers own is taken out of them
//! ([`super::managed`]), and what follows the metadata, where that of another object is like it
//! ([`super::alike`]). The object is never held as a tree.

mod layout;

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use coracle_store::{KeyValue, Revision};

use super::{
    alike::Tail,
    event::EventKind,
    fields::Fields,
    managed::Gaps,
    metadata::{self, Labels, Metadata, Span},
    pool::Pool,
};
use crate::stored;

const LINE_SUFFIX: &[u8] = b"}\n";

/// Most bytes of lines at once. A client that does not read holds so much.
pub const LINES_BYTES: usize = 16 * 1024;

/// A stored object, ready to be served.
pub struct Entry {
    key: Arc<str>,
    /// Where in `key` the namespace is; empty for cluster-scoped objects.
    namespace: Range<u16>,
    name_start: u16,
    /// To the end of its metadata, if the rest is elsewhere.
    line: Bytes,
    /// Where in the object's JSON something was taken out.
    gaps: Gaps,
    /// What follows the metadata.
    tail: Tail,
    line_kind: EventKind,
    revision: Revision,
    create_revision: Revision,
    uid: Span,
    labels: Labels,
    fields: Fields,
    terminating: bool,
}

/// A stored object that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("stored object {key} is not an object of JSON")]
pub(crate) struct DecodeStored {
    key: Arc<str>,
    #[source]
    source: serde_json::Error,
}

/// What to make an entry from.
pub(crate) struct EntrySource<'a> {
    /// The stored state.
    pub(crate) kv: &'a KeyValue,
    /// Which line the bytes become.
    pub(crate) kind: EventKind,
    /// `/registry/<group>/<resource>/`.
    pub(crate) prefix: &'a str,
    /// Whether keys have a namespace element.
    pub(crate) namespaced: bool,
    /// Where texts are shared.
    pub(crate) pool: &'a Pool,
}

impl Entry {
    /// The key, `/registry/...`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The namespace; `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        if self.namespace.is_empty() {
            return None;
        }
        Some(&self.key[usize::from(self.namespace.start)..usize::from(self.namespace.end)])
    }

    /// The name: the last element of the key.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key[usize::from(self.name_start)..]
    }

    /// `metadata.uid`; empty if the object has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.uid.text(self.head())
    }

    /// The object's JSON but for what its managers own: a long `fieldsV1` is `{}`. For readers
    /// inside the server, which look for other things; what clients see is [`Entry::json_bytes`].
    #[must_use]
    pub fn unmanaged(&self) -> Cow<'_, [u8]> {
        if self.tail.is_empty() {
            return self.head().into();
        }
        let mut json = Vec::with_capacity(self.head().len() + self.tail.len());
        json.extend_from_slice(self.head());
        self.tail
            .parts()
            .for_each(|part| json.extend_from_slice(part));
        json.into()
    }

    /// The same without what is elsewhere: at least to the end of its metadata.
    fn head(&self) -> &[u8] {
        let end = match self.tail.is_empty() {
            true => self.line.len() - LINE_SUFFIX.len(),
            false => self.line.len(),
        };
        &self.line[self.line_kind.line_prefix().len()..end]
    }

    /// The object's JSON, part by part.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.gaps.filled(self.head()).chain(self.tail.parts())
    }

    /// Whether the bytes that are held are all of it.
    fn is_whole(&self) -> bool {
        self.gaps.is_empty() && self.tail.is_empty()
    }

    /// The object's JSON, resourceVersion included; shared with the cache if nothing was taken out
    /// of it.
    #[must_use]
    pub fn json_bytes(&self) -> Bytes {
        if self.is_whole() {
            return self
                .line
                .slice(self.line_kind.line_prefix().len()..self.line.len() - LINE_SUFFIX.len());
        }
        let mut json = Vec::with_capacity(self.json_len());
        self.append_json(&mut json);
        json.into()
    }

    /// Appends [`Entry::json_bytes`] to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        self.parts().for_each(|part| out.extend_from_slice(part));
    }

    /// How long [`Entry::json_bytes`] is.
    pub fn json_len(&self) -> usize {
        self.head().len() + self.gaps.growth() + self.tail.len()
    }

    /// The watch line of this object: `{"type":"ADDED","object":{...}}` and a newline.
    ///
    /// Costs nothing for the kind of event that made this entry if nothing was taken out; else it
    /// is made.
    #[must_use]
    pub fn line(&self, kind: EventKind) -> Bytes {
        if self.is_line(kind) {
            return self.line.clone();
        }
        let mut line = Vec::with_capacity(self.line_len(kind));
        self.append_line(kind, 0, usize::MAX, &mut line);
        line.into()
    }

    /// Appends what follows the first `skip` bytes of [`Entry::line`] to `out`, `most` bytes at
    /// most.
    pub(crate) fn append_line(&self, kind: EventKind, skip: usize, most: usize, out: &mut Vec<u8>) {
        let (mut skip, end) = (skip, out.len().saturating_add(most));
        let mut append = |part: &[u8]| {
            let from = skip.min(part.len());
            let to = part.len().min(from.saturating_add(end - out.len()));
            skip -= from;
            out.extend_from_slice(&part[from..to]);
        };
        if self.is_line(kind) {
            append(&self.line);
        } else {
            append(kind.line_prefix());
            self.parts().for_each(&mut append);
            append(LINE_SUFFIX);
        }
    }

    /// How long [`Entry::line`] is.
    pub(crate) fn line_len(&self, kind: EventKind) -> usize {
        kind.line_prefix().len() + self.json_len() + LINE_SUFFIX.len()
    }

    /// Whether the bytes that are held are the line for `kind`.
    fn is_line(&self, kind: EventKind) -> bool {
        kind == self.line_kind && self.is_whole()
    }

    /// The `resourceVersion`: the revision of the last write; for a deleted object that of the
    /// deletion.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The revision of the write that created the object.
    #[must_use]
    pub fn create_revision(&self) -> Revision {
        self.create_revision
    }

    /// Whether this is its `apiVersion`.
    #[must_use]
    pub fn is_of(&self, api_version: &str) -> bool {
        stored::api_version(self.head()) == api_version
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name, self.head())
    }

    /// All labels, in stored order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter(self.head())
    }

    /// The value of `metadata.name`, `metadata.namespace` or an indexed field; `None` for a field
    /// that is not indexed.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace().unwrap_or_default()),
            _ => self.fields.get(name),
        }
    }

    /// All indexed fields.
    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Whether `metadata.deletionTimestamp` is set.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// How many bytes the encoded object occupies, what it shares included.
    pub(crate) fn size(&self) -> usize {
        self.line.len() + self.gaps.growth() + self.tail.len()
    }

    /// Makes an entry of a stored state. `index` gets the object as a tree if it needs one.
    pub(super) fn decode(
        source: &EntrySource<'_>,
        index: impl FnOnce(&[u8]) -> Result<Fields, serde_json::Error>,
    ) -> Result<Self, DecodeStored> {
        let key = &source.kv.key;
        let failed = |error| DecodeStored {
            key: Arc::clone(key),
            source: error,
        };
        let mut line = layout::line_of(source.kind, &source.kv.value, source.kv.mod_revision)
            .map_err(failed)?;
        let json_start = source.kind.line_prefix().len();
        let mut metadata = metadata::parse(&line[json_start..]).map_err(failed)?;
        let gaps = Gaps::cut(&mut line, json_start, &metadata.managed, source.pool);
        // It is made of places in the text, which has become shorter.
        if !gaps.is_empty() {
            metadata = metadata::parse(&line[json_start..]).map_err(failed)?;
        }
        let (namespace, name_start) = layout::split_key(key, source);
        let of = &key[usize::from(namespace.start)..usize::from(namespace.end)];
        let name = &key[usize::from(name_start)..];
        let tail = match metadata.end {
            0 => Tail::default(),
            end => layout::cut_tail(&mut line, json_start + end, |text| {
                source.pool.tail(of, name, text)
            }),
        };
        let Metadata {
            uid,
            labels,
            terminating,
            ..
        } = metadata;
        let fields = index(&source.kv.value).map_err(failed)?;
        Ok(Self {
            key: Arc::clone(key),
            namespace,
            name_start,
            line: line.into(),
            gaps,
            tail,
            line_kind: source.kind,
            revision: source.kv.mod_revision,
            create_revision: source.kv.create_revision,
            uid,
            labels,
            fields,
            terminating,
        })
    }

    /// This object as a watcher sees it go at `revision`: what it was, with the revision of its
    /// going.
    pub(crate) fn gone_at(&self, revision: Revision) -> Self {
        let kind = EventKind::Deleted;
        let json = self.head();
        // The revision is always the first member of the metadata: `decode` put it there.
        let digits_start =
            stored::metadata_start(json).unwrap_or_default() + br#""resourceVersion":""#.len();
        let digits = json[digits_start..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let number = revision.to_string();
        let line = [
            kind.line_prefix(),
            &json[..digits_start],
            number.as_bytes(),
            &json[digits_start + digits..],
            if self.tail.is_empty() {
                LINE_SUFFIX
            } else {
                b""
            },
        ]
        .concat();
        let parsed = metadata::parse(&line[kind.line_prefix().len()..]).unwrap_or_default();
        let gaps = self
            .gaps
            .moved(digits_start + digits, digits_start + number.len());
        Self {
            key: Arc::clone(&self.key),
            namespace: self.namespace.clone(),
            name_start: self.name_start,
            line: line.into(),
            gaps,
            tail: self.tail.clone(),
            line_kind: kind,
            revision,
            create_revision: self.create_revision,
            uid: parsed.uid,
            labels: parsed.labels,
            fields: self.fields.clone(),
            terminating: self.terminating,
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("revision", &self.revision.0)
            .finish_non_exhaustive()
    }
}

/// An entry in key order.
#[derive(Clone)]
pub(crate) struct ByKey(pub(crate) Arc<Entry>);

impl std::borrow::Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        self.0.key()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.key.cmp(&other.0.key)
    }
}
