//! Response bodies: whole, in lazily made chunks, or endless.

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

use crate::{
    limits::Seat,
    progress::{PATIENCE, Progress},
    tls_session::LargeAnswer,
};

/// Most of a whole body that is given away at once: what has been given away is out of sight.
const PIECE: usize = 64 * 1024;

/// Why a body ended early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
    /// As long as it lasts.
    Stream(BoxStream<'static, Result<Bytes, BoxError>>),
}

impl Body {
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
            Self::Stream(stream) => Pin::new(stream).poll_next(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Chunks { left, .. } => *left == 0,
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Chunks { left, .. } => SizeHint::with_exact(*left),
            Self::Stream(_) => SizeHint::default(),
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
        }
    }

    /// The body, of which its connection knows that it is large if it is.
    pub(crate) fn on(mut self, large: Option<LargeAnswer>) -> Self {
        self.large = large;
        self
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
            _ => Pin::new(&mut self.body).poll_frame(cx),
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
