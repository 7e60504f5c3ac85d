//! The TLS session of a connection, which holds little for a client that does not read, and more
//! while a large answer is under way: a call of the kernel for each record would cost more than the
//! answer itself.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// Of what a connection has encrypted and its client does not take, this much is held: a record.
pub(crate) const SMALL_BUFFER: usize = 16 * 1024;
/// And this much while an answer of many records is under way.
const LARGE_BUFFER: usize = 64 * 1024;

/// Answers of many records that are under way on one connection. Each has a minute to be taken, and
/// a seat of which there are few.
#[derive(Debug, Clone, Default)]
pub(crate) struct LargeAnswers(Arc<AtomicU32>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct LargeAnswer(Arc<AtomicU32>);

impl LargeAnswers {
    pub(crate) fn begin(&self) -> LargeAnswer {
        self.0.fetch_add(1, Ordering::Relaxed);
        LargeAnswer(Arc::clone(&self.0))
    }

    pub(crate) fn are_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for LargeAnswer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The session of a connection over `S`.
pub(crate) struct Session<S> {
    stream: TlsStream<S>,
    large_answers: LargeAnswers,
    has_large_buffer: bool,
    /// Tells `S` whether a large answer is under way.
    tell: fn(&S, bool),
}

impl<S> Session<S> {
    /// `stream` has [`SMALL_BUFFER`]; `tell` tells what is below it when that changes.
    pub(crate) fn new(
        stream: TlsStream<S>,
        large_answers: LargeAnswers,
        tell: fn(&S, bool),
    ) -> Self {
        Self {
            stream,
            large_answers,
            has_large_buffer: false,
            tell,
        }
    }

    fn fit_buffer(&mut self) {
        let is_large = self.large_answers.are_under_way();
        if is_large != self.has_large_buffer {
            let limit = if is_large { LARGE_BUFFER } else { SMALL_BUFFER };
            let (below, tls) = self.stream.get_mut();
            tls.set_buffer_limit(Some(limit));
            (self.tell)(below, is_large);
            self.has_large_buffer = is_large;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Session<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Session<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fit_buffer();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fit_buffer();
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_under_way_until_the_last_has_gone() {
        let of_connection = LargeAnswers::default();
        for answer in [of_connection.begin(), of_connection.begin()] {
            assert!(of_connection.are_under_way());
            drop(answer);
        }
        assert!(!of_connection.are_under_way());
    }
}
