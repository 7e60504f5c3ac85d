//! What follows the metadata in the text of an object, held as its difference to that of another
//! one.
//!
//! The pods of one template differ in a few hundred of some thousand bytes, and so do nodes. The
//! first of them is the model that the next ones are compared with; one that is not like it becomes
//! the next model. A model stays as long as an object has it. A text is put together again from
//! pieces of the model and bytes of its own, as fast as it can be copied.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

/// What is shorter stays as it is.
const WORTH_SHARING: usize = 1024;
/// What is longer is seldom alike, and takes long to compare.
const MOST_BYTES: usize = 64 << 10;
/// So many bytes of a model are looked for at a time; less is not worth a piece.
const BLOCK: usize = 16;
/// Models that new texts are compared with, of one resource.
const MODELS: usize = 1024;

/// The end of a text; empty where it stays as it is.
#[derive(Clone, Default)]
pub(super) struct Tail(Option<Box<Difference>>);

#[derive(Clone)]
struct Difference {
    model: Arc<[u8]>,
    /// For each piece: how many bytes of its own, these bytes, where it goes on in the model, and
    /// how far.
    pieces: Box<[u8]>,
    len: usize,
}

impl Tail {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Of the text.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |difference| difference.len)
    }

    /// The text, part by part.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.0.iter().map(|difference| Parts {
            model: &difference.model,
            pieces: &difference.pieces,
            of_model: &[],
        });
        parts.flatten()
    }
}

struct Parts<'a> {
    model: &'a [u8],
    pieces: &'a [u8],
    /// Comes next.
    of_model: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.of_model.is_empty() {
            return Some(std::mem::take(&mut self.of_model));
        }
        let (own, rest) = take_number(self.pieces)?;
        let (own, rest) = rest.split_at_checked(own)?;
        let (at, rest) = take_number(rest)?;
        let (length, rest) = take_number(rest)?;
        self.of_model = self.model.get(at..at + length).unwrap_or_default();
        self.pieces = rest;
        Some(own)
    }
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

fn take_number(mut bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        number |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((number, rest));
        }
        (bytes, shift) = (rest, shift + 7);
    }
}

/// What new texts are compared with.
#[derive(Default)]
pub(super) struct Models(HashMap<u64, Model>);

struct Model {
    text: Arc<[u8]>,
    /// Where in the text a block is, by its hash; 0 is nowhere.
    places: Box<[u32]>,
}

impl Models {
    /// `text`, where it is one that is worth it. What has the same `likeness` is probably alike.
    pub(super) fn tail(&mut self, likeness: u64, text: &[u8]) -> Tail {
        if !(WORTH_SHARING..=MOST_BYTES).contains(&text.len()) {
            return Tail::default();
        }
        if self.0.len() >= MODELS && !self.0.contains_key(&likeness) {
            self.0.retain(|_, model| Arc::strong_count(&model.text) > 1);
            if self.0.len() >= MODELS {
                self.0.clear();
            }
        }
        let model = match self.0.entry(likeness) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Model::of(text)),
        };
        let pieces = model.difference(text).unwrap_or_else(|| {
            *model = Model::of(text);
            let mut pieces = Vec::new();
            push_piece(&mut pieces, &[], 0, text.len());
            pieces
        });
        Tail(Some(Box::new(Difference {
            model: Arc::clone(&model.text),
            pieces: pieces.into(),
            len: text.len(),
        })))
    }
}

fn push_piece(out: &mut Vec<u8>, own: &[u8], at: usize, length: usize) {
    put_number(out, own.len());
    out.extend_from_slice(own);
    put_number(out, at);
    put_number(out, length);
}

impl Model {
    fn of(text: &[u8]) -> Self {
        let mut places = vec![0; (text.len() / BLOCK * 2).next_power_of_two()];
        for (number, block) in text.chunks_exact(BLOCK).enumerate() {
            if let Some(place) = place_of(block, places.len()) {
                places[place] = u32::try_from(number * BLOCK + 1).unwrap_or_default();
            }
        }
        Self {
            text: text.into(),
            places: places.into(),
        }
    }

    /// Where the text may go on as `rest` does.
    fn find(&self, rest: &[u8]) -> Option<usize> {
        let place = *self.places.get(place_of(rest, self.places.len())?)?;
        (place as usize).checked_sub(1)
    }

    /// `text` in pieces; `None` if that is not worth it.
    fn difference(&self, text: &[u8]) -> Option<Vec<u8>> {
        let model = &*self.text;
        let mut out = Vec::new();
        // Where own bytes begin; where is looked; how far the model was ahead of the text there.
        let (mut own, mut at, mut ahead) = (0, 0, 0_isize);
        while at < text.len() {
            // Mostly a value is as long as the other one.
            let aligned = at.checked_add_signed(ahead);
            let mut candidates = aligned.into_iter().chain(self.find(&text[at..]));
            let common = |from: usize| common(model.get(from..).unwrap_or_default(), &text[at..]);
            let enough = BLOCK.min(text.len() - at);
            let Some(from) = candidates.find(|from| common(*from) >= enough) else {
                at += 1;
                if out.len() + (at - own) > text.len() / 2 {
                    return None;
                }
                continue;
            };
            let length = common(from);
            let before = text[own..at].iter().rev().zip(model[..from].iter().rev());
            let before = before.take_while(|(one, other)| one == other).count();
            push_piece(
                &mut out,
                &text[own..at - before],
                from - before,
                before + length,
            );
            at += length;
            own = at;
            ahead = (from + length).checked_signed_diff(at)?;
        }
        push_piece(&mut out, &text[own..], 0, 0);
        (out.len() <= text.len() / 2).then_some(out)
    }
}

/// How many bytes are the same from the beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Where a block with these first bytes stands among `places`, a power of two.
fn place_of(bytes: &[u8], places: usize) -> Option<usize> {
    /// Of the golden ratio, as in Knuth's multiplicative hashing.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (low, rest) = bytes.split_first_chunk::<8>()?;
    let high = rest.first_chunk::<8>()?;
    let mixed = u64::from_le_bytes(*low).wrapping_mul(FACTOR) ^ u64::from_le_bytes(*high);
    let hash = mixed.wrapping_mul(FACTOR) >> 32;
    Some(usize::try_from(hash).unwrap_or_default() & (places - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: usize, status: &str) -> String {
        let spec = r#""terminationMessagePath":"/dev/termination-log","livenessProbe":{"httpGet":{"path":"/healthz"}}"#;
        format!(
            r#","spec":{{"nodeName":"node-{number:05}","containers":[{{{}}}]}},"status":{{"phase":"{status}","podIP":"10.{number}.0.1"}}}}"#,
            [spec; 12].join(","),
        )
    }

    fn whole(tail: &Tail) -> String {
        let text = tail.parts().collect::<Vec<_>>().concat();
        assert_eq!(text.len(), tail.len());
        String::from_utf8(text).unwrap()
    }

    fn own_bytes(tail: &Tail) -> usize {
        tail.0.as_ref().map_or(0, |one| one.pieces.len())
    }

    #[test]
    fn what_is_alike_is_held_as_a_difference() {
        let mut models = Models::default();
        for number in [1, 22, 333, 4, 55_555] {
            let text = pod(number, "Running");
            let tail = models.tail(0, text.as_bytes());
            assert_eq!(whole(&tail), text);
            assert!(own_bytes(&tail) < 60, "{}", own_bytes(&tail));
        }
        assert_eq!(models.0.len(), 1);
    }

    #[test]
    fn what_is_not_alike_becomes_the_next_model() {
        let mut models = Models::default();
        let (one, other) = (pod(1, "Running"), "x,y;".repeat(700));
        let kept = [&one, &other, &one].map(|text| models.tail(0, text.as_bytes()));
        assert_eq!(
            kept.each_ref().map(whole),
            [&one, &other, &one].map(Clone::clone)
        );
        assert!(kept.iter().all(|tail| own_bytes(tail) < 10));
    }

    #[test]
    fn what_is_short_stays_as_it_is_and_models_have_a_bound() {
        let mut models = Models::default();
        assert!(models.tail(0, &[b' '; WORTH_SHARING - 1]).is_empty());
        let text = pod(1, "Running");
        let kept: Vec<Tail> = (0..MODELS as u64 + 9)
            .map(|likeness| models.tail(likeness, text.as_bytes()))
            .collect();
        assert!(models.0.len() <= MODELS);
        assert!(kept.iter().all(|tail| whole(tail) == text));
    }

    #[test]
    fn every_text_comes_back() {
        // Of two letters: blocks are found all over the place, and in the wrong one.
        let mut state = 1_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut models = Models::default();
        let mut text: Vec<u8> = (0..4000)
            .map(|_| b'a' + u8::from(next() % 8 == 0))
            .collect();
        for _ in 0..500 {
            let length = text.len() as u64;
            let at = usize::try_from(next() % length).unwrap();
            match next() % 4 {
                0 => drop(text.splice(at..at, [b'b'; 3])),
                1 if text.len() > 2000 => drop(text.drain(at..text.len().min(at + 40))),
                _ => text[at] ^= 1,
            }
            let tail = models.tail(0, &text);
            assert_eq!(tail.parts().collect::<Vec<_>>().concat(), text);
        }
        for number in [0, 1, 127, 128, 300, 1 << 20] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(take_number(&out), Some((number, &[][..])));
        }
    }
}
