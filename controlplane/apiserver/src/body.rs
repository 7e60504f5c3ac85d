//! Response bodies: whole, in lazily made chunks, or endless.

pub(crate) mod list;
pub(crate) mod pieces;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use coracle_registry::watch_cache::LINES_BYTES;
use futures::{Stream, stream::BoxStream};
use http_body::{Body as _, Frame, SizeHint};

pub use self::{
    list::List,
    pieces::{BoxError, Pieces},
};
use crate::{
    limits::Seat,
    progress::{PATIENCE, Progress},
    tls_session::LargeAnswer,
};

/// Most of a whole body that is given away at once: what has been given away is out of sight.
const PIECE: usize = 64 * 1024;
/// After so many bytes the thread looks at what else there is to do, however fast the client takes
/// them: some 1 ms.
const BREATH: usize = 1 << 20;

/// A response body.
#[derive(Default)]
pub enum Body {
    /// Nothing, or nothing more.
    #[default]
    Empty,
    /// All at once.
    Full(Bytes),
    /// Chunks made as the connection takes them, of a length known before.
    Chunks {
        /// Makes the chunks.
        source: Box<dyn Iterator<Item = Bytes> + Send>,
        /// Bytes still to come.
        left: u64,
    },
    /// Pieces that take time to make.
    Pieces(Box<Pieces>),
    /// A list that is not written yet; JSON unless somebody writes it otherwise.
    List(Box<List>),
    /// As long as it lasts.
    Stream(BoxStream<'static, Result<Bytes, BoxError>>),
}

impl Body {
    /// What is whole, in pieces.
    pub(crate) fn pieces_of(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send {
        std::iter::from_fn(move || {
            (!bytes.is_empty()).then(|| bytes.split_to(PIECE.min(bytes.len())))
        })
    }

    /// Whether it is more than a piece, as far as is known before it is made.
    pub(crate) fn is_large(&self) -> bool {
        let size = self.size_hint().exact();
        size.is_none_or(|size| size > PIECE as u64)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Full(_) => "Full",
            Self::Chunks { .. } => "Chunks",
            Self::Pieces(_) => "Pieces",
            Self::List(_) => "List",
            Self::Stream(_) => "Stream",
        })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(bytes)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Full(bytes.into())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Full(text.into())
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Full(Bytes::from_static(text.as_bytes()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let piece = bytes.split_to(PIECE.min(bytes.len()));
                if bytes.is_empty() {
                    *self = Self::Empty;
                }
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Self::Chunks { source, left } => match source.next() {
                Some(chunk) => {
                    *left = left.saturating_sub(chunk.len() as u64);
                    Poll::Ready(Some(Ok(Frame::data(chunk))))
                }
                None => {
                    *self = Self::Empty;
                    Poll::Ready(None)
                }
            },
            Self::Pieces(pieces) => pieces.poll_next(cx).map_ok(Frame::data),
            Self::List(_) => {
                if let Self::List(list) = std::mem::take(&mut *self) {
                    *self = (*list).into();
                }
                self.poll_frame(cx)
            }
            Self::Stream(stream) => Pin::new(stream).poll_next(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Chunks { left, .. } => *left == 0,
            Self::Pieces(pieces) => pieces.has_ended(),
            Self::List(_) | Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Chunks { left, .. } => SizeHint::with_exact(*left),
            Self::Pieces(pieces) => pieces
                .left()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::List(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A body, and what its request takes until it has gone.
#[derive(Debug)]
pub struct Held {
    body: Body,
    seat: Option<Seat>,
    large: Option<LargeAnswer>,
    progress: Option<Arc<Progress>>,
    /// Of a body without an end: how long the client may take for each piece.
    patience: Option<Duration>,
    /// Of a body without an end: what comes before all else of it.
    rest: Bytes,
    /// Of a body with an end: what has been given away since the last pause.
    given: usize,
}

impl Held {
    /// `seat` is given back when the body has gone; `progress` is told how the body gets on. A body
    /// with `patience` has no end, and may have nothing to say.
    pub(crate) fn new(
        body: Body,
        seat: Option<Seat>,
        progress: Option<Arc<Progress>>,
        patience: Option<Duration>,
    ) -> Self {
        if let Some(progress) = &progress {
            progress.begin(patience.is_some());
            progress.owe(PATIENCE);
        }
        Self {
            body,
            seat,
            large: None,
            progress,
            patience,
            rest: Bytes::new(),
            given: 0,
        }
    }

    /// The body, of which its connection knows that it is large if it is.
    pub(crate) fn on(mut self, large: Option<LargeAnswer>) -> Self {
        self.large = large;
        self
    }

    /// What comes next of a body with an end.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.given >= BREATH {
            self.given = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            self.given += frame.data_ref().map_or(0, Bytes::len);
        }
        Poll::Ready(frame)
    }

    /// The next piece of a body without an end, once the one before has been sent.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        progress: &Arc<Progress>,
        patience: Duration,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        ready!(progress.poll_sent(cx));
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx))
                .map(|frame| frame.map(Frame::into_data))
            {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.split_to(LINES_BYTES.min(self.rest.len()));
        Poll::Ready(Some(Ok(Frame::data(progress.give(piece, patience)))))
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match (self.progress.clone(), self.patience) {
            (Some(progress), Some(patience)) => self.poll_piece(cx, &progress, patience),
            _ => self.poll_part(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop((self.seat.take(), self.large.take()));
        if let Some(progress) = &self.progress {
            progress.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fast_client_leaves_room_for_others() {
        let chunk = Bytes::from(vec![b' '; PIECE]);
        let body = Body::Chunks {
            source: Box::new(std::iter::repeat_n(chunk, 64)),
            left: 64 * PIECE as u64,
        };
        let mut held = Held::new(body, None, None, None);
        let (mut given, mut pauses) = (0, 0);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while given < 64 * PIECE {
            match Pin::new(&mut held).poll_frame(&mut cx) {
                Poll::Pending => pauses += 1,
                Poll::Ready(frame) => given += frame.unwrap().unwrap().data_ref().unwrap().len(),
            }
        }
        assert_eq!(pauses, 3, "of four megabytes");
    }

    #[test]
    fn what_does_not_fit_a_piece_is_large() {
        let chunks = |left| Body::Chunks {
            source: Box::new(std::iter::empty()),
            left,
        };
        let endless = Body::Stream(Box::pin(futures::stream::pending()));
        for (body, is_large) in [
            (Body::Empty, false),
            (Body::from("a few words"), false),
            (Body::from(vec![0; PIECE]), false),
            (Body::from(vec![0; PIECE + 1]), true),
            (chunks(PIECE as u64), false),
            (chunks(PIECE as u64 + 1), true),
            (endless, true),
        ] {
            assert_eq!(body.is_large(), is_large, "{body:?}");
        }
    }
}
