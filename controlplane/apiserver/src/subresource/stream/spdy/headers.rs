//! SPDY/3 header blocks: name and value pairs in one zlib stream a direction, primed with the
//! protocol's dictionary.
//!
//! Reads what clients send. What is sent to clients is one block only, the empty one, so nothing is
//! ever compressed here.
//!
//! Source: SPDY Protocol Draft 3, 2.6.10.

use flate2::{Decompress, FlushDecompress, Status};

use super::error::FrameError;

/// Most bytes of a block once inflated. Clients of Kubernetes send under 200.
const BLOCK_LIMIT: usize = 16 * 1024;
const PAIRS_LIMIT: usize = 64;
const PIECE: usize = 1024;

/// Each of these is preceded by its length in the dictionary.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host \
    if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
    Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
/// Adler-32 of the dictionary: how the zlib stream names it.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

/// The zlib stream's header with the dictionary's name.
const ZLIB_HEADER: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];
/// A stored deflate block with the four bytes of "no headers", and an empty one, as a flush leaves
/// it: Go's inflate gives nothing out before it. Whole bytes, so that blocks follow each other.
const EMPTY_BLOCK: [u8; 14] = [0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Names and values in order; several values of one name are joined by a NUL.
pub(crate) type Headers = Vec<(String, String)>;

pub(super) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS.split(' ').map(|word| word.replace('_', " ")) {
        bytes.extend_from_slice(&u32::try_from(word.len()).unwrap_or_default().to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TEXT.as_bytes());
    bytes
}

/// The block of no headers; the first of a connection begins its zlib stream.
pub(super) fn empty_block(first: bool) -> Vec<u8> {
    let start: &[u8] = if first { &ZLIB_HEADER } else { &[] };
    [start, &EMPTY_BLOCK].concat()
}

/// Reads the blocks of one direction of one connection, in their order.
pub(super) struct HeaderReader(Decompress);

impl HeaderReader {
    pub(super) fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// One block.
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Headers, FrameError> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut inflated = Vec::new();
        let mut piece = [0; PIECE];
        loop {
            let (taken, given) = (self.0.total_in(), self.0.total_out());
            let outcome = self.0.decompress(block, &mut piece, FlushDecompress::Sync);
            let count = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
            let (taken, given) = (
                count(self.0.total_in(), taken),
                count(self.0.total_out(), given),
            );
            block = block.get(taken..).ok_or(FrameError::Compression)?;
            inflated.extend_from_slice(&piece[..given.min(PIECE)]);
            if inflated.len() > BLOCK_LIMIT {
                return Err(FrameError::HeadersTooLarge);
            }
            match outcome {
                Err(error) => match error.needs_dictionary() {
                    Some(DICTIONARY_ID) => {
                        self.0
                            .set_dictionary(&dictionary())
                            .map_err(|_| FrameError::Compression)?;
                    }
                    Some(_) => return Err(FrameError::WrongDictionary),
                    None => return Err(FrameError::Compression),
                },
                Ok(Status::StreamEnd) => return Err(FrameError::Compression),
                // All taken, and room was left: all given.
                Ok(_) if block.is_empty() && given < PIECE => return Ok(inflated),
                Ok(_) if taken == 0 && given == 0 => return Err(FrameError::Compression),
                Ok(_) => {}
            }
        }
    }
}

fn parse(block: &[u8]) -> Result<Headers, FrameError> {
    let mut rest = block;
    let pairs = number(&mut rest)?;
    if pairs > PAIRS_LIMIT {
        return Err(FrameError::HeadersTooLarge);
    }
    let mut headers = Headers::with_capacity(pairs);
    for _ in 0..pairs {
        let name = text(&mut rest)?.to_ascii_lowercase();
        headers.push((name, text(&mut rest)?));
    }
    if rest.is_empty() {
        Ok(headers)
    } else {
        Err(FrameError::Headers)
    }
}

fn number(rest: &mut &[u8]) -> Result<usize, FrameError> {
    let (digits, behind) = rest.split_first_chunk::<4>().ok_or(FrameError::Headers)?;
    *rest = behind;
    usize::try_from(u32::from_be_bytes(*digits)).map_err(|_| FrameError::Headers)
}

fn text(rest: &mut &[u8]) -> Result<String, FrameError> {
    let length = number(rest)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(FrameError::Headers)?;
    *rest = behind;
    String::from_utf8(bytes.to_vec()).map_err(|_| FrameError::Headers)
}
