//! A client's TCP connection that can be looked at while somebody else reads and writes it.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use coracle_relay::Peer;
use coracle_telemetry::ErrorChain;
use futures::FutureExt as _;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use crate::connection::Connection;

/// What the kernel takes of a connection whose client does not, beyond what is on its way.
const UNSENT: u32 = 32 * 1024;
/// And while a large answer is under way.
const UNSENT_LARGE: u32 = 256 * 1024;

/// The connection. Its clones are the same connection.
#[derive(Clone)]
pub(super) struct Socket(Arc<Inner>);

struct Inner {
    stream: TcpStream,
    /// What it takes of others: kept as long as the socket is open, also by an upgrade that has
    /// left HTTP behind.
    kept: OnceLock<Arc<Connection>>,
}

impl Socket {
    /// Takes `stream`, and has the kernel watch its peer.
    pub(super) fn new(stream: TcpStream) -> Self {
        Peer::watch(&stream);
        let socket = Self(Arc::new(Inner {
            stream,
            kept: OnceLock::new(),
        }));
        socket.bound_unsent(false);
        socket
    }

    /// Bounds what the kernel holds for the client, with or without a large answer under way.
    pub(super) fn bound_unsent(&self, has_large_answer: bool) {
        let most = if has_large_answer {
            UNSENT_LARGE
        } else {
            UNSENT
        };
        if let Err(error) = SockRef::from(&self.0.stream).set_tcp_notsent_lowat(most) {
            tracing::debug!(error = %ErrorChain(&error), "cannot bound what the kernel holds for a client");
        }
    }

    /// Keeps what is known of the connection until the socket is closed.
    pub(super) fn keep(&self, connection: Arc<Connection>) {
        // Once for each socket.
        let _ = self.0.kept.set(connection);
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.stream.peer_addr().ok()
    }

    /// Whether the peer has said that nothing more will come. Seen even while nobody reads.
    pub(super) fn is_read_closed(&self) -> bool {
        let ready = self.0.stream.ready(Interest::READABLE).now_or_never();
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.stream.poll_read_ready(cx))?;
            match self.0.stream.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match self.0.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(cx))?;
            match self.0.stream.try_write_vectored(pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.0.stream).shutdown(std::net::Shutdown::Write))
    }
}
