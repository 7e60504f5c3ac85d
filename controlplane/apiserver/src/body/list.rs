//! A list under way: its objects, and how each is written as the connection takes it. Neither its
//! text nor the objects as they are shown are ever whole in memory.

use std::{fmt, sync::Arc, vec};

use bytes::Bytes;
use coracle_registry::watch_cache::Entry;
use parking_lot::Mutex;

use super::{Body, pieces::Pieces};
use crate::limits::{Permit, Turns};

/// Items are gathered into pieces of at least so many bytes.
pub(crate) const PIECE: usize = 64 * 1024;
/// Most items of a piece that are made, however small they come out: the objects that they are made
/// of may be large.
const ITEMS: usize = 100;

/// A list that is not written yet: in which form, is for the client to say.
pub struct List {
    /// The members before the items, as JSON.
    pub(crate) head: Vec<(&'static str, String)>,
    /// What the items are called.
    pub(crate) name: &'static str,
    pub(crate) items: Items,
    /// For pieces that take time.
    pub(crate) turns: Turns,
}

/// The items: objects, each of which goes when it has been written.
pub(crate) struct Items {
    objects: vec::IntoIter<Arc<Entry>>,
    form: ItemForm,
    /// Of objects that nobody else holds.
    _room: Option<Permit>,
}

/// What an item looks like.
pub(crate) enum ItemForm {
    /// As the cache has it: copied.
    Stored,
    /// As this writes it, which takes time.
    Made(MakeItem),
}

/// Appends the JSON of an object, as it is shown.
pub(crate) type MakeItem = Box<dyn Fn(&Entry, &mut Vec<u8>) + Send>;

impl Items {
    pub(crate) fn new(objects: Vec<Arc<Entry>>, form: ItemForm, room: Option<Permit>) -> Self {
        Self {
            objects: objects.into_iter(),
            form,
            _room: room,
        }
    }

    /// Those that have not been written.
    pub(crate) fn rest(&self) -> &[Arc<Entry>] {
        self.objects.as_slice()
    }

    /// Bytes of the objects that have not been written.
    fn weight(&self) -> usize {
        self.rest().iter().map(|object| object.json_len()).sum()
    }

    /// Whether all of them fit a piece, as far as is known before they are written.
    pub(crate) fn are_few(&self) -> bool {
        self.rest().len() <= ITEMS && self.weight() <= PIECE
    }

    /// Appends the JSON of one of them.
    pub(crate) fn append(&self, object: &Entry, out: &mut Vec<u8>) {
        match &self.form {
            ItemForm::Stored => object.append_json(out),
            ItemForm::Made(write) => write(object, out),
        }
    }

    /// Appends the JSON of the next; false at the end.
    pub(crate) fn append_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(object) = self.objects.next() else {
            return false;
        };
        self.append(&object, out);
        true
    }
}

impl List {
    /// A member of the head, as JSON.
    pub(crate) fn member(&self, name: &str) -> &str {
        let found = self.head.iter().find(|(own, _)| *own == name);
        found.map_or("null", |(_, json)| json)
    }

    /// All of it.
    pub(crate) fn into_text(self) -> Vec<u8> {
        self.into_json_pieces()
            .flat_map(|piece| piece.to_vec())
            .collect()
    }

    /// As JSON, a piece at a time.
    pub(crate) fn into_json_pieces(self) -> impl Iterator<Item = Bytes> + Send + use<> {
        JsonPieces {
            head: Some(self.json_head()),
            has_begun: false,
            has_ended: false,
            items: self.items,
        }
    }

    /// The text before the items.
    fn json_head(&self) -> String {
        let mut head = String::with_capacity(256);
        for (name, json) in &self.head {
            let open = if head.is_empty() { '{' } else { ',' };
            head.extend([open, '"']);
            head.push_str(name);
            head.push_str("\":");
            head.push_str(json);
        }
        head.push_str(",\"");
        head.push_str(self.name);
        head.push_str("\":[");
        head
    }
}

/// The list as JSON.
impl From<List> for Body {
    fn from(list: List) -> Self {
        match list.items.form {
            ItemForm::Stored => {
                let commas = list.items.rest().len().saturating_sub(1);
                let ends = list.json_head().len() + END.len();
                let left = (list.items.weight() + commas + ends) as u64;
                Self::Chunks {
                    source: Box::new(list.into_json_pieces()),
                    left,
                }
            }
            ItemForm::Made(_) if list.items.are_few() => list.into_text().into(),
            ItemForm::Made(_) => {
                let turns = list.turns.clone();
                let pieces = Box::new(list.into_json_pieces().map(Ok));
                Self::Pieces(Box::new(Pieces::new(pieces, turns, None)))
            }
        }
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List")
            .field("head", &self.head)
            .field("items", &self.items.rest().len())
            .finish_non_exhaustive()
    }
}

/// What stands after the items.
const END: &[u8] = b"]}\n";

/// Makes the text of a list.
///
/// Pieces are written into buffers that come back once they have been sent ([`Buffer`]): large
/// ones, taken from the allocator and given back for every piece, cost more than the text itself.
struct JsonPieces {
    /// What stands before the items, until the first piece has taken it.
    head: Option<String>,
    items: Items,
    has_begun: bool,
    has_ended: bool,
}

impl Iterator for JsonPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        let mut piece = Buffer::take();
        let text = &mut piece.0;
        text.extend_from_slice(self.head.take().unwrap_or_default().as_bytes());
        let most = match self.items.form {
            ItemForm::Stored => usize::MAX,
            ItemForm::Made(_) => ITEMS,
        };
        let mut written = 0;
        while text.len() < PIECE && written < most && !self.items.rest().is_empty() {
            if std::mem::replace(&mut self.has_begun, true) {
                text.push(b',');
            }
            self.items.append_next(text);
            written += 1;
        }
        if self.items.rest().is_empty() {
            text.extend_from_slice(END);
            self.has_ended = true;
        }
        Some(piece.freeze())
    }
}

/// A piece of text under way to a client.
struct Buffer(Vec<u8>);

/// Buffers that wait for the next piece.
static BUFFERS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// Most buffers that wait: a megabyte and a half.
const BUFFERS_KEPT: usize = 16;
const BUFFER_BYTES: usize = PIECE + PIECE / 2;

impl Buffer {
    fn take() -> Self {
        Self(
            BUFFERS
                .lock()
                .pop()
                .unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES)),
        )
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
