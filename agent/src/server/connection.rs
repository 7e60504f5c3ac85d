//! Connections to the node's API: anybody reaches the port, pods too.
//!
//! Who has no certificate that is admitted is a stranger: answered once, within a time that counts
//! from the start of the connection, and sent away earlier when there are too many of them
//! ([`Connections`]). HTTP/1.1 alone: nothing that is admitted speaks anything else.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use coracle_relay::{Connections, Peer, Slot};
use coracle_telemetry::ErrorChain;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::{
    auth::{self, Acceptor},
    reply::{Body, ReplyError},
};

/// By when a stranger has shown who it is, or has its answer.
const STRANGER: Duration = Duration::from_secs(10);
/// From the end of an answer, or of the handshake, to the end of the next request's head.
const HEADER_LIMIT: Duration = Duration::from_secs(10);
/// The head of a request, and what waits to be sent.
const BUFFER: usize = 64 * 1024;
/// After a failed accept, such as for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves all who come with what `answer` has for those who may ask.
pub(super) async fn accept<A, F>(
    listener: TcpListener,
    acceptor: Acceptor,
    connections: Arc<Connections>,
    answer: A,
) where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, ReplyError>> + Send + 'static,
{
    // Streams end with the process; nothing waits for them.
    let tasks = TaskTracker::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot accept a connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let Some(slot) = connections.admit(peer.ip()) else {
            tracing::warn!(%peer, "refused a connection to the node's API: all places are taken");
            continue;
        };
        match acceptor.current() {
            Ok(acceptor) => {
                let (leave, answer) = (slot.leave(), answer.clone());
                coracle_telemetry::spawn_tracked(&tasks, "serve a connection", async move {
                    let held = Held {
                        stream,
                        slot: Arc::new(slot),
                    };
                    // Whoever stays has a claim by then, and is not told.
                    let _ = leave
                        .run_until_cancelled(Box::pin(serve(acceptor, held, answer)))
                        .await;
                });
            }
            Err(error) => {
                tracing::error!(error = %ErrorChain(&error), "cannot set up TLS of the node's API");
            }
        }
    }
}

async fn serve<A, F>(acceptor: TlsAcceptor, held: Held, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, ReplyError>> + Send + 'static,
{
    let until = Instant::now() + STRANGER;
    Peer::watch(&held.stream);
    let slot = Arc::clone(&held.slot);
    let stream = match timeout_at(until, acceptor.accept(held)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(error = %ErrorChain(&error), "TLS handshake"),
        Err(_) => return,
    };
    let caller = auth::caller(stream.get_ref().1);
    let is_admitted = auth::admit(&caller).is_ok();
    if is_admitted {
        slot.settle();
    }
    // From here on the connection alone holds its place, also as a stream that has left HTTP
    // behind.
    drop(slot);
    let service = service_fn(move |request: Request<Incoming>| {
        let (caller, answer) = (caller.clone(), answer.clone());
        async move {
            let response = match auth::admit(&caller) {
                Ok(()) => answer(request).await,
                Err(error) => Err(error),
            };
            Ok::<_, Infallible>(response.unwrap_or_else(ReplyError::into_response))
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(BUFFER)
        .keep_alive(is_admitted);
    let speaking = builder
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let ended = match is_admitted {
        true => Ok(speaking.await),
        false => timeout_at(until, speaking).await,
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(error = %ErrorChain(&error), "serve a connection of the node's API");
    }
}

/// A connection and its place, which it takes until it is closed.
struct Held {
    stream: TcpStream,
    slot: Arc<Slot>,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Held {
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

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests: tasks end with them, and their clock may stand"
)]
mod tests;
