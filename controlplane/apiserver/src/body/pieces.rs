//! Pieces of an answer that take time to make: each is made when the connection has taken the one
//! before, beside the runtime's threads and in turn with those of others.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::limits::{Turns, Working};

/// Why a body ended early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Makes pieces. What it takes for one, it takes on a thread that may block.
pub(crate) type PieceSource = Box<dyn Iterator<Item = Result<Bytes, BoxError>> + Send>;

/// The pieces of one answer. An error is its end: the client sees that the answer was cut off, not
/// that it is over.
pub struct Pieces {
    state: State,
    turns: Turns,
    /// Bytes still to come, if that is known.
    left: Option<u64>,
}

enum State {
    /// For the client to take what there is.
    Waiting(PieceSource),
    Making(Working<(PieceSource, Option<Result<Bytes, BoxError>>)>),
    Ended,
}

impl Pieces {
    /// Of `length` bytes together, if that is known.
    pub(crate) fn new(source: PieceSource, turns: Turns, length: Option<u64>) -> Self {
        Self {
            state: State::Waiting(source),
            turns,
            left: length,
        }
    }

    /// Bytes still to come, if that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended) || self.left == Some(0)
    }

    /// What makes them, of pieces of which nobody has taken one.
    pub(crate) fn into_source(self) -> PieceSource {
        match self.state {
            State::Waiting(source) => source,
            _ => Box::new(std::iter::empty()),
        }
    }

    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BoxError>>> {
        self.begin();
        let State::Making(made) = &mut self.state else {
            return Poll::Ready(None);
        };
        let made = ready!(Pin::new(made).poll(cx)).flatten();
        self.state = State::Ended;
        Poll::Ready(match made {
            Ok((source, Some(Ok(piece)))) => {
                self.state = State::Waiting(source);
                self.left = self
                    .left
                    .map(|left| left.saturating_sub(piece.len() as u64));
                Some(Ok(piece))
            }
            Ok((_, end)) => end,
            Err(error) => Some(Err(error.into())),
        })
    }

    /// Has the next piece made, unless it is.
    fn begin(&mut self) {
        self.state = match mem::replace(&mut self.state, State::Ended) {
            State::Waiting(mut source) => State::Making(self.turns.work(move || {
                let piece = source.next();
                (source, piece)
            })),
            state => state,
        };
    }
}
