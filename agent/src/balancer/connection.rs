//! A TCP connection to one API server, and how it is closed when that server is left.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use coracle_telemetry::ErrorChain;
use http::uri::PathAndQuery;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::ServiceExt as _;

use super::address::ServerAddress;

/// For a name and a handshake of TCP: there is another server to be tried in the time that the
/// caller has.
const DIAL_LIMIT: Duration = Duration::from_secs(3);
/// What is sent and not acknowledged for so long never arrives: without a limit a request of before
/// a partition waits for the kernel's own patience, minutes after the network is whole again. Also
/// how soon a silent machine is noticed.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(15);
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Makes connections.
#[derive(Debug, Clone)]
pub(super) struct Dialer(HttpConnector);

impl Dialer {
    pub(super) fn new() -> Self {
        let mut tcp = HttpConnector::new();
        // Below TLS: it would refuse the scheme that it is asked for.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(DIAL_LIMIT));
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        Self(tcp)
    }

    /// As a part of clients that speak TLS.
    pub(super) fn into_connector(self) -> HttpConnector {
        self.0
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) async fn dial(&self, server: &ServerAddress) -> Result<TcpStream, String> {
        let uri = server.uri(PathAndQuery::from_static("/"));
        let uri = uri.map_err(|error| error.to_string())?;
        match tokio::time::timeout(DIAL_LIMIT, self.0.clone().oneshot(uri)).await {
            Ok(Ok(stream)) => Ok(stream.into_inner()),
            Ok(Err(error)) => Err(ErrorChain(&error).to_string()),
            Err(_) => Err(format!("no answer within {} s", DIAL_LIMIT.as_secs())),
        }
    }
}

/// A connection to a server. It fails as soon as the server is left.
#[derive(Debug)]
pub(crate) struct ToServer {
    stream: TcpStream,
    left: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl ToServer {
    pub(super) fn new(stream: TcpStream, left: CancellationToken) -> Self {
        Self {
            stream,
            left: Box::pin(left.cancelled_owned()),
        }
    }

    /// Whoever reads is woken when the server is left: clients always read, if only to hear of the
    /// connection's end.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.left.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "this API server is not used any more",
            )),
        }
    }
}

impl AsyncRead for ToServer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ToServer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for ToServer {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
