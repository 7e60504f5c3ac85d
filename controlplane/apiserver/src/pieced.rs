//! Documents that are joined of parts, each of which is made once and kept compressed.
//!
//! A part is compressed by itself, up to a full byte, so that parts one after the other are one
//! stream of deflate. So a document that tells of two thousand kinds costs what the one kind costs
//! that has changed, and is whole nowhere, neither when it is made nor when it is sent.
//!
//! Each part is made beside the runtime's threads, in a turn of its own: who waits for a document
//! keeps nobody else for longer than a part takes.
//!
//! Source: RFC 1951, 3.2.3 and 3.2.4, and RFC 1952.

use std::sync::{Arc, LazyLock, OnceLock};

use bytes::{Bytes, BytesMut};
use coracle_registry::beside::beside;
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress};
use sha2::{Digest as _, Sha256};

use crate::body::Body;

/// What a stream of gzip begins with, of deflate, of no time and no system.
const GZIP: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block of deflate: an empty one.
const LAST: [u8; 2] = [3, 0];
/// What is sent at once is so much at least, of parts that are much smaller.
const ENOUGH: usize = 32 * 1024;

static COMMA: LazyLock<Arc<Packed>> = LazyLock::new(|| Arc::new(Packed::of(b",")));

/// A part of documents, for as long as what it tells of is the same.
#[derive(Default)]
pub(crate) struct Part {
    /// Known of all that there is, once somebody has asked which documents there are.
    hash: OnceLock<[u8; 32]>,
    /// Of what somebody has asked for.
    packed: OnceLock<Arc<Packed>>,
}

/// A part, and what makes its text.
pub(crate) struct Source<'a> {
    pub(crate) part: Arc<Part>,
    pub(crate) make: Box<dyn Fn() -> Vec<u8> + 'a>,
}

/// A text, compressed.
pub(crate) struct Packed {
    deflate: Bytes,
    pub(crate) length: usize,
    crc: Crc,
}

impl Source<'_> {
    fn hash(&self) -> &[u8; 32] {
        made(&self.part.hash, || Sha256::digest((self.make)()).into())
    }

    /// The text, compressed.
    pub(crate) fn packed(&self) -> Arc<Packed> {
        let make = || {
            let text = (self.make)();
            self.part.hash.get_or_init(|| Sha256::digest(&text).into());
            Arc::new(Packed::of(&text))
        };
        Arc::clone(made(&self.part.packed, make))
    }
}

/// What is kept, made beside the runtime's threads if it is not there yet. Who asks for the same
/// waits for it.
pub(crate) fn made<T>(kept: &OnceLock<T>, make: impl FnOnce() -> T) -> &T {
    match kept.get() {
        Some(kept) => kept,
        None => beside(|| kept.get_or_init(make)),
    }
}

/// What tells a document from others of its kind: the same on all servers.
pub(crate) fn hash<'a>(frame: &[u8], sources: impl Iterator<Item = &'a Source<'a>>) -> String {
    let mut hash = Sha256::new_with_prefix(frame);
    sources.for_each(|source| hash.update(source.hash()));
    hex::encode_upper(hash.finalize())
}

impl Packed {
    fn of(text: &[u8]) -> Self {
        let (mut crc, mut deflate) = (Crc::new(), Vec::with_capacity(text.len() / 4 + 64));
        crc.update(text);
        let mut compress = Compress::new(Compression::default(), false);
        // Of nothing there is nothing.
        while !text.is_empty() {
            let rest = usize::try_from(compress.total_in()).map_or(&[][..], |read| &text[read..]);
            let compressed = compress.compress_vec(rest, &mut deflate, FlushCompress::Sync);
            compressed.expect("it is begun anew");
            let is_in = compress.total_in() == text.len() as u64;
            // What has filled all the room may have more to say.
            if is_in && deflate.len() < deflate.capacity() {
                break;
            }
            deflate.reserve(deflate.capacity());
        }
        deflate.shrink_to_fit();
        Self {
            deflate: deflate.into(),
            length: text.len(),
            crc,
        }
    }

    fn text(&self) -> Bytes {
        let (mut decompress, mut text) = (Decompress::new(false), Vec::with_capacity(self.length));
        let out = decompress.decompress_vec(&self.deflate, &mut text, FlushDecompress::Sync);
        out.expect("it was compressed here");
        text.into()
    }
}

/// A document on the way.
#[derive(Default)]
pub(crate) struct Joining {
    parts: Vec<Arc<Packed>>,
}

impl Joining {
    /// Goes on with a text that is in this document alone.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.parts.push(Arc::new(Packed::of(text)));
    }

    /// Goes on with parts.
    pub(crate) fn parts(&mut self, parts: Vec<Arc<Packed>>) {
        self.parts.extend(parts);
    }

    /// Goes on with parts that are members of a JSON object.
    pub(crate) fn members(&mut self, sources: &[Source<'_>]) {
        let mut is_first = true;
        for packed in sources.iter().map(Source::packed) {
            if packed.length == 0 {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.parts.push(Arc::clone(&COMMA));
            }
            self.parts.push(packed);
        }
    }

    /// The document, which has this hash.
    pub(crate) fn finish(self, hash: &str) -> Document {
        let (mut crc, parts) = (Crc::new(), Arc::<[_]>::from(self.parts));
        let (mut length, mut packed) = (0, GZIP.len() + LAST.len() + 8);
        for part in &*parts {
            crc.combine(&part.crc);
            length += part.length;
            packed += part.deflate.len();
        }
        let mut end = Vec::from(LAST);
        end.extend(crc.sum().to_le_bytes());
        end.extend(crc.amount().to_le_bytes());
        Document {
            parts,
            end: end.into(),
            length: length as u64,
            packed: packed as u64,
            tag: format!("\"{hash}\""),
        }
    }
}

/// A document as it is kept: its parts.
pub(crate) struct Document {
    parts: Arc<[Arc<Packed>]>,
    /// Of its stream of gzip.
    end: Bytes,
    length: u64,
    packed: u64,
    /// In quotes, as `ETag` has it.
    pub(crate) tag: String,
}

impl Document {
    /// With gzip.
    pub(crate) fn gzip(&self) -> Body {
        let (parts, end) = (Arc::clone(&self.parts), self.end.clone());
        let all = (0..parts.len()).map(move |place| parts[place].deflate.clone());
        let begin = std::iter::once(Bytes::from_static(&GZIP));
        Body::Chunks {
            source: Box::new(enough(begin.chain(all).chain([end]))),
            left: self.packed,
        }
    }

    /// For the few clients that do not take gzip.
    pub(crate) fn plain(&self) -> Body {
        Body::Chunks {
            source: Box::new(enough(self.texts())),
            left: self.length,
        }
    }

    fn texts(&self) -> impl Iterator<Item = Bytes> + Send + use<> {
        let parts = Arc::clone(&self.parts);
        let texts = (0..parts.len()).map(move |place| parts[place].text());
        texts.filter(|text| !text.is_empty())
    }

    /// All of it.
    #[cfg(test)]
    pub(crate) fn whole(&self) -> Vec<u8> {
        self.texts().flatten().collect()
    }
}

/// The same in fewer pieces.
fn enough(mut pieces: impl Iterator<Item = Bytes> + Send) -> impl Iterator<Item = Bytes> + Send {
    std::iter::from_fn(move || {
        let mut out = BytesMut::from(pieces.next()?);
        while out.len() < ENOUGH
            && let Some(more) = pieces.next()
        {
            out.extend_from_slice(&more);
        }
        Some(out.freeze())
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io::Read as _};

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn parts_are_one_document_and_are_made_once() {
        let (parts, made) = (
            std::array::from_fn::<Arc<Part>, 3, _>(|_| Arc::default()),
            Cell::new(0),
        );
        let large: String = (0..40_000).map(|number| number.to_string()).collect();
        let texts = [
            "\"a\":1".to_owned(),
            String::new(),
            format!("\"b\":\"{large}\""),
        ];
        let sources = || -> Vec<Source<'_>> {
            let pairs = parts.iter().zip(&texts);
            let source = |(part, text): (&Arc<Part>, &String)| {
                let (text, made) = (text.clone(), &made);
                let make = move || {
                    made.set(made.get() + 1);
                    text.clone().into_bytes()
                };
                Source {
                    part: Arc::clone(part),
                    make: Box::new(make),
                }
            };
            pairs.map(source).collect()
        };
        let first = hash(b"frame", sources().iter());
        assert_eq!(made.get(), 3, "for the hashes");
        let join = || {
            let mut joining = Joining::default();
            joining.text(b"{");
            joining.members(&sources());
            joining.text(b"}");
            joining.finish(&hash(b"frame", sources().iter()))
        };
        let document = join();
        assert_eq!(document.tag, format!("\"{first}\""));
        join();
        assert_eq!(made.get(), 6, "and once to be kept");
        let expect = format!("{{\"a\":1,\"b\":\"{large}\"}}");
        let sent = async |body: Body| {
            let left = body.collect().await.unwrap();
            left.to_bytes()
        };
        assert_eq!(sent(document.plain()).await, expect);
        let gzip = sent(document.gzip()).await;
        assert!(gzip.len() < expect.len() / 2);
        assert_eq!(gzip.len() as u64, document.packed);
        let mut unpacked = String::new();
        GzDecoder::new(&gzip[..])
            .read_to_string(&mut unpacked)
            .unwrap();
        assert_eq!(unpacked, expect);
    }
}
