//! The objects of a kind in one of its versions, where a webhook makes them of what is stored.
//!
//! What was made is kept for a while, and what is being made is waited for by all who want it: an
//! event is converted once for everybody who watches, and a list that is asked for again and again
//! only where something has changed. A conversion goes on as long as anybody waits for it, whoever
//! began it.
//!
//! What fails is told to those who waited, and tried anew by the next.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use coracle_api::{meta, status::Status};
use coracle_store::Revision;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use serde_json::Value;

use super::Converter;
use crate::{encode, storage_version::Version, watch_cache::Entry};

/// Most objects of one call, as many as a page of a list has.
const BATCH_OBJECTS: usize = 500;
/// Most bytes of them, so that what a webhook makes of them fits an answer of 3 MB. A larger object
/// goes alone.
const BATCH_BYTES: usize = 512 << 10;
/// Most calls for a batch of which one answer would be too long: with what fits into one answer, a
/// batch may become some fifty times as large.
const MOST_CALLS: usize = 16;
/// Bytes that are kept of what was made for one version: two thousand objects of two kilobytes.
const KEPT_BYTES: usize = 4 << 20;
/// And so many, of what is being made and of what was.
const KEPT: usize = 8192;

/// One call for several objects, as all who want one of them wait for it.
type Batch = Shared<BoxFuture<'static, Result<Arc<[Bytes]>, Status>>>;
type WeakBatch = WeakShared<BoxFuture<'static, Result<Arc<[Bytes]>, Status>>>;

/// The objects of a kind in one of its versions.
pub struct Converted {
    converter: Arc<Converter>,
    own: Version,
    storage: Version,
    memory: Mutex<Memory>,
}

impl Converted {
    pub(crate) fn new(converter: Arc<Converter>, own: Version, storage: Version) -> Self {
        Self {
            converter,
            own,
            storage,
            memory: Mutex::default(),
        }
    }

    /// An object as it is to be stored.
    pub(crate) async fn encoded(&self, object: Value) -> Result<Value, Status> {
        self.in_version(object, &self.storage).await
    }

    /// A stored object in this version.
    pub(crate) async fn decoded(&self, object: Value) -> Result<Value, Status> {
        self.in_version(object, &self.own).await
    }

    /// An object of any version in another.
    pub(crate) async fn in_version(&self, object: Value, to: &Version) -> Result<Value, Status> {
        if object["apiVersion"] == to.api_version {
            return Ok(object);
        }
        let converted = self.converter.convert(vec![object], to).await?;
        // As many as were given.
        Ok(converted.into_iter().next().unwrap_or_default())
    }

    /// Whether all objects are stored in this version.
    #[must_use]
    pub fn are_own(&self, entries: &[Arc<Entry>]) -> bool {
        let mut entries = entries.iter();
        entries.all(|entry| entry.is_of(&self.own.api_version))
    }

    /// The text of each object in this version.
    ///
    /// # Errors
    /// Those of the converter: then there is none of any.
    pub async fn texts(&self, entries: &[Arc<Entry>]) -> Result<Vec<Bytes>, Status> {
        let wanted = self.look_up(entries);
        let mut texts = Vec::with_capacity(entries.len());
        for (entry, wanted) in entries.iter().zip(wanted) {
            texts.push(match wanted {
                Wanted::Made(text) => text,
                Wanted::Under { batch, at } => {
                    let made = batch.await?;
                    let text = made.get(at).cloned().unwrap_or_default();
                    self.memory.lock().keep(entry, &text);
                    text
                }
            });
        }
        Ok(texts)
    }

    /// Where each text is, or from which batch it will come. Batches are begun for what nobody has
    /// asked for.
    fn look_up(&self, entries: &[Arc<Entry>]) -> Vec<Wanted> {
        let mut memory = self.memory.lock();
        let found: Vec<Option<Wanted>> = entries
            .iter()
            .map(|entry| {
                if entry.is_of(&self.own.api_version) {
                    return Some(Wanted::Made(entry.json_bytes()));
                }
                memory.find(entry)
            })
            .collect();
        let mut missing = VecDeque::new();
        for (entry, found) in entries.iter().zip(&found) {
            if found.is_none() {
                missing.push_back(Arc::clone(entry));
            }
        }
        let mut begun = VecDeque::new();
        while let Some(batch) = next_batch(&mut missing) {
            let making = self.begin(batch.clone());
            for (at, entry) in batch.iter().enumerate() {
                memory.begin(entry, &making, at);
                begun.push_back(Wanted::Under {
                    batch: making.clone(),
                    at,
                });
            }
        }
        let found = found.into_iter();
        found
            .filter_map(|found| found.or_else(|| begun.pop_front()))
            .collect()
    }

    fn begin(&self, entries: Vec<Arc<Entry>>) -> Batch {
        let (converter, to) = (Arc::clone(&self.converter), self.own.clone());
        let making = async move { in_pieces(&converter, &entries, &to).await };
        making.boxed().shared()
    }
}

/// The texts of a batch: of one call, or of several where its answer is too long.
async fn in_pieces(
    converter: &Converter,
    batch: &[Arc<Entry>],
    to: &Version,
) -> Result<Arc<[Bytes]>, Status> {
    let read =
        |entry: &Arc<Entry>| serde_json::from_slice(&entry.json_bytes()).map_err(Status::internal);
    let mut texts = Vec::with_capacity(batch.len());
    let (mut left, mut calls) = (vec![batch], 0);
    while let Some(piece) = left.pop() {
        calls += 1;
        let objects = piece.iter().map(read).collect::<Result<_, _>>()?;
        match converter.convert(objects, to).await {
            Ok(converted) => {
                for object in converted {
                    texts.push(text(object)?);
                }
            }
            Err(why) if why.is_too_long && piece.len() > 1 && calls < MOST_CALLS => {
                let (first, second) = piece.split_at(piece.len() / 2);
                left.extend([second, first]);
            }
            Err(why) => return Err(why.into()),
        }
    }
    Ok(texts.into())
}

/// The objects of the next call.
fn next_batch(missing: &mut VecDeque<Arc<Entry>>) -> Option<Vec<Arc<Entry>>> {
    let first = missing.pop_front()?;
    let mut bytes = first.json_len();
    let mut batch = vec![first];
    while batch.len() < BATCH_OBJECTS
        && let Some(next) = missing.pop_front_if(|next| bytes + next.json_len() <= BATCH_BYTES)
    {
        bytes += next.json_len();
        batch.push(next);
    }
    Some(batch)
}

/// An object as clients see it: with its revision where the cache has it.
pub(crate) fn text(mut object: Value) -> Result<Bytes, Status> {
    let revision = meta::resource_version(&object).parse().ok().map(Revision);
    encode::strip(&mut object);
    let encoded = encode::encode(&object)?;
    Ok(revision.map_or(encoded.clone(), |revision| {
        encode::with_revision(&encoded, revision)
    }))
}

/// A text that is there, or will be.
enum Wanted {
    Made(Bytes),
    Under { batch: Batch, at: usize },
}

/// What was made of entries of the cache, and what is being made. Neither keeps them alive.
#[derive(Default)]
struct Memory {
    known: HashMap<usize, Known>,
    /// Places with the number of what was put there, the oldest first; also of what has been
    /// replaced since.
    order: VecDeque<(usize, u64)>,
    numbers: u64,
    bytes: usize,
}

struct Known {
    /// As long as it is held, nothing else comes to be at its place.
    _of: Weak<Entry>,
    number: u64,
    state: Making,
}

enum Making {
    Made(Bytes),
    Under { batch: WeakBatch, at: usize },
}

fn place(entry: &Arc<Entry>) -> usize {
    Arc::as_ptr(entry).addr()
}

impl Memory {
    fn find(&self, entry: &Arc<Entry>) -> Option<Wanted> {
        match &self.known.get(&place(entry))?.state {
            Making::Made(text) => Some(Wanted::Made(text.clone())),
            Making::Under { batch, at } => {
                let batch = batch.upgrade()?;
                // One that has failed is no answer to who asks later.
                let has_failed = batch.peek().is_some_and(Result::is_err);
                (!has_failed).then_some(Wanted::Under { batch, at: *at })
            }
        }
    }

    fn begin(&mut self, entry: &Arc<Entry>, batch: &Batch, at: usize) {
        if let Some(batch) = batch.downgrade() {
            self.put(entry, Making::Under { batch, at });
        }
    }

    fn keep(&mut self, entry: &Arc<Entry>, text: &Bytes) {
        let known = self.known.get(&place(entry));
        if !matches!(known.map(|known| &known.state), Some(Making::Made(_))) {
            self.put(entry, Making::Made(text.clone()));
        }
    }

    fn put(&mut self, entry: &Arc<Entry>, state: Making) {
        self.numbers += 1;
        let (place, number) = (place(entry), self.numbers);
        self.order.push_back((place, number));
        self.bytes += state.bytes();
        let known = Known {
            _of: Arc::downgrade(entry),
            number,
            state,
        };
        if let Some(before) = self.known.insert(place, known) {
            self.bytes -= before.state.bytes();
        }
        while self.bytes > KEPT_BYTES || self.order.len() > KEPT {
            let Some((place, number)) = self.order.pop_front() else {
                break;
            };
            let is_it = |known: &Known| known.number == number;
            if self.known.get(&place).is_some_and(is_it)
                && let Some(gone) = self.known.remove(&place)
            {
                self.bytes -= gone.state.bytes();
            }
        }
    }
}

impl Making {
    fn bytes(&self) -> usize {
        match self {
            Self::Made(text) => text.len(),
            Self::Under { .. } => 0,
        }
    }
}
