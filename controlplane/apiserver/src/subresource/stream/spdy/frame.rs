//! SPDY/3.1 frames: bytes in, frames out, and back. No I/O here.
//!
//! Flow control is left to TCP, as the clients of Kubernetes do: they neither keep windows nor heed
//! them. Data frames are handed on as they come, never gathered, so that a frame of 16 MiB costs no
//! memory.
//!
//! Source: SPDY Protocol Draft 3.1, 2.2 and 2.6; `github.com/moby/spdystream` v0.5.0.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::{
    error::FrameError,
    headers::{self, HeaderReader, Headers},
};

const HEAD: usize = 8;
const VERSION: u16 = 3;
/// Most bytes of a control frame.
const CONTROL_LIMIT: usize = 16 * 1024;
/// Most bytes of data in one frame that is sent.
const DATA_LIMIT: usize = 32 * 1024;
const FIN: u8 = 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// What a client said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Opens a stream.
    Open {
        /// Odd, and larger than all before.
        stream: u32,
        /// Such as `streamtype`.
        headers: Headers,
        /// The client will send nothing on it.
        fin: bool,
    },
    /// Bytes of a stream, perhaps a part of a frame only.
    Data {
        /// The stream's identifier.
        stream: u32,
        /// May be empty.
        bytes: Bytes,
        /// The client will send nothing more on it.
        fin: bool,
    },
    /// Gives a stream up.
    Reset {
        /// The stream's identifier.
        stream: u32,
    },
    /// To be sent back.
    Ping(u32),
    /// The client opens no more streams.
    GoAway,
    /// Nothing that matters here: settings, windows, further headers.
    Ignored,
}

/// Why a stream is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// There are too many.
    Refused = 3,
    /// Nobody wants its data any more.
    Cancel = 5,
}

/// The rest of a data frame.
struct Rest {
    stream: u32,
    fin: bool,
    left: usize,
}

/// Makes frames of bytes, however they are cut.
pub(crate) struct Decoder {
    buffer: BytesMut,
    headers: HeaderReader,
    rest: Option<Rest>,
    last_opened: u32,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            buffer: BytesMut::new(),
            headers: HeaderReader::new(),
            rest: None,
            last_opened: 0,
        }
    }

    /// Takes bytes as they come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; `None` until more bytes have come.
    ///
    /// # Errors
    /// These bytes are no SPDY; all after them are lost.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.rest.is_some() {
            return Ok(self.data());
        }
        let Some(head) = self.buffer.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = usize::from(head[5]) << 16 | usize::from(head[6]) << 8 | usize::from(head[7]);
        if word >> 31 == 0 {
            self.buffer.advance(HEAD);
            self.rest = Some(Rest {
                stream: word,
                fin: flags & FIN != 0,
                left: length,
            });
            return Ok(self.data());
        }
        let [version, kind] = [word >> 16 & 0x7fff, word & 0xffff]
            .map(|half| u16::try_from(half).unwrap_or_default());
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > CONTROL_LIMIT {
            return Err(FrameError::ControlTooLarge(length));
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD);
        let body = self.buffer.split_to(length);
        self.control(kind, flags, &body).map(Some)
    }

    fn data(&mut self) -> Option<Frame> {
        let rest = self.rest.as_mut()?;
        if self.buffer.is_empty() && rest.left > 0 {
            return None;
        }
        let bytes = self
            .buffer
            .split_to(rest.left.min(self.buffer.len()))
            .freeze();
        rest.left -= bytes.len();
        let (stream, is_last) = (rest.stream, rest.left == 0);
        let fin = rest.fin && is_last;
        if is_last {
            self.rest = None;
        }
        Some(Frame::Data { stream, bytes, fin })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Frame, FrameError> {
        let number = |at: usize| {
            let digits = body
                .get(at..)
                .and_then(|rest| rest.first_chunk::<4>())
                .ok_or(FrameError::Cut)?;
            Ok(u32::from_be_bytes(*digits))
        };
        let stream = || number(0).map(|id| id & 0x7fff_ffff);
        match kind {
            SYN_STREAM => {
                let stream = stream()?;
                let headers = self.headers.read(body.get(10..).ok_or(FrameError::Cut)?)?;
                if stream % 2 == 0 || stream <= self.last_opened {
                    return Err(FrameError::StreamId(stream));
                }
                self.last_opened = stream;
                Ok(Frame::Open {
                    stream,
                    headers,
                    fin: flags & FIN != 0,
                })
            }
            // Their headers are read although nobody wants them: they are part of the one zlib
            // stream.
            SYN_REPLY | HEADERS => {
                self.headers.read(body.get(4..).ok_or(FrameError::Cut)?)?;
                Ok(Frame::Ignored)
            }
            RST_STREAM => Ok(Frame::Reset { stream: stream()? }),
            PING => number(0).map(Frame::Ping),
            GOAWAY => Ok(Frame::GoAway),
            SETTINGS | WINDOW_UPDATE => Ok(Frame::Ignored),
            other => Err(FrameError::UnknownType(other)),
        }
    }
}

fn control(kind: u16, length: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u32(u32::try_from(length).unwrap_or_default());
    frame
}

/// Accepts a stream, with no headers.
pub(crate) fn reply(stream: u32, is_first: bool) -> Bytes {
    let block = headers::empty_block(is_first);
    let mut frame = control(SYN_REPLY, 4 + block.len());
    frame.put_u32(stream);
    frame.extend_from_slice(&block);
    frame.freeze()
}

/// Gives a stream up.
pub(crate) fn reset(stream: u32, reason: Reason) -> Bytes {
    let mut frame = control(RST_STREAM, 8);
    frame.put_u32(stream);
    frame.put_u32(reason as u32);
    frame.freeze()
}

/// The answer to a ping.
pub(crate) fn ping(id: u32) -> Bytes {
    let mut frame = control(PING, 4);
    frame.put_u32(id);
    frame.freeze()
}

/// Says that the connection ends: `last` is the last stream that was served.
pub(crate) fn go_away(last: u32, is_error: bool) -> Bytes {
    let mut frame = control(GOAWAY, 8);
    frame.put_u32(last);
    frame.put_u32(u32::from(is_error));
    frame.freeze()
}

/// Bytes of a stream, in as many frames as needed; the last of them ends the stream with `fin`.
pub(crate) fn data(stream: u32, bytes: &[u8], fin: bool) -> Bytes {
    let mut frames = BytesMut::with_capacity(bytes.len() + (bytes.len() / DATA_LIMIT + 1) * HEAD);
    let mut rest = bytes;
    loop {
        let (piece, behind) = rest.split_at(rest.len().min(DATA_LIMIT));
        rest = behind;
        let flags = if fin && rest.is_empty() {
            u32::from(FIN) << 24
        } else {
            0
        };
        frames.put_u32(stream);
        frames.put_u32(flags | u32::try_from(piece.len()).unwrap_or_default());
        frames.extend_from_slice(piece);
        if rest.is_empty() {
            return frames.freeze();
        }
    }
}
