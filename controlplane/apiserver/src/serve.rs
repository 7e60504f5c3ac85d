//! Listening: TLS with optional client certificates, HTTP/1.1 and HTTP/2 on one port.
//!
//! Bounded everywhere: connections by number, and those of nobody in particular by time as well
//! ([`Connections`]); the handshake, the headers and answers that do not get on by time; bodies and
//! requests in flight by the handler.

mod idle_guard;
mod socket;
mod tls;

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use coracle_auth::authn::x509;
use coracle_relay::{Connections, Slot};
use coracle_telemetry::{Backoff, ErrorChain};
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::{
    idle_guard::{Decision, IdleGuard},
    socket::Socket,
};
use crate::{
    body::Held,
    connection::Connection,
    error::ApiServerError,
    handler,
    progress::Streams,
    source::Source,
    state::State,
    tls_session::{self, Session},
};

const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way get at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses after failed accepts, such as for lack of file descriptors.
const ACCEPT_RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// As upstream since CVE-2023-44487, `--http2-max-streams-per-connection`. Clients with more open
/// another connection.
const H2_MAX_STREAMS: u32 = 100;
const H2_PING: Duration = Duration::from_secs(30);
/// Of an answer that its client does not take, this much is held for it.
const H2_SEND_BUFFER: usize = 64 * 1024;
/// Of bodies that nobody reads yet, this much of a stream and of a connection is held.
const H2_STREAM_WINDOW: u32 = 256 * 1024;
const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The head of a request over HTTP/1.1, and what waits to be sent.
const H1_BUFFER: usize = 128 * 1024;

/// Serves until `shutdown`.
pub(crate) async fn serve(
    server: Arc<State>,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ApiServerError> {
    let acceptor = TlsAcceptor::from(Arc::new(tls::config(&server)?));
    let connections = Connections::new(server.config.max_connections);
    let drain = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let mut retry = ACCEPT_RETRY;
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let Some((stream, slot)) = admitted(accepted, &connections, &mut retry).await else {
            continue;
        };
        let (server, acceptor, drain) = (Arc::clone(&server), acceptor.clone(), drain.clone());
        coracle_telemetry::spawn_in(&mut tasks, "serve a connection", async move {
            let leave = slot.leave();
            tokio::select! {
                () = Box::pin(connection(server, acceptor, Socket::new(stream), slot, drain)) => {}
                () = leave.cancelled() => tracing::debug!("a connection of nobody in particular made room for another"),
            }
        });
    }
    drop(listener);
    // Watches end at once and let their connections go; other requests finish.
    server.shutdown.cancel();
    drain.cancel();
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("connections were cut off at shutdown");
    }
    tasks.shutdown().await;
    server.stop().await;
    Ok(())
}

/// A connection that has a place. Waits a little if there was none to accept.
async fn admitted(
    accepted: io::Result<(TcpStream, SocketAddr)>,
    connections: &Arc<Connections>,
    retry: &mut Backoff,
) -> Option<(TcpStream, Slot)> {
    match accepted {
        Ok((stream, peer)) => {
            retry.reset();
            let slot = connections.admit(peer.ip());
            if slot.is_none() {
                tracing::warn!(%peer, "refused a connection: all places are taken");
            }
            Some((stream, slot?))
        }
        Err(error) => {
            tracing::warn!(error = %ErrorChain(&error), "cannot accept a connection");
            tokio::time::sleep(retry.pause()).await;
            None
        }
    }
}

async fn connection(
    server: Arc<State>,
    acceptor: TlsAcceptor,
    socket: Socket,
    slot: Slot,
    drain: CancellationToken,
) {
    let opened = Instant::now();
    let accepted = acceptor.accept_with(socket.clone(), |tls| {
        tls.set_buffer_limit(Some(tls_session::SMALL_BUFFER));
    });
    let stream = match tokio::time::timeout(idle_guard::ANONYMOUS, accepted).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return tracing::debug!(error = %ErrorChain(&error), "TLS handshake failed");
        }
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first());
    let connection = Arc::new(Connection::new(
        certificate.and_then(x509::Holder::of),
        socket.peer(),
        slot,
    ));
    socket.keep(Arc::clone(&connection));
    let guard = IdleGuard::new(Arc::clone(&connection), socket, opened);
    let session = Session::new(
        stream,
        connection.large_answers().clone(),
        Socket::bound_unsent,
    );
    exchange(server, connection, session, guard, drain).await;
}

/// Speaks HTTP until one of the two has enough.
async fn exchange(
    server: Arc<State>,
    connection: Arc<Connection>,
    session: Session<Socket>,
    mut guard: IdleGuard,
    drain: CancellationToken,
) {
    let source = Source::Connection(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, source) = (Arc::clone(&server), source.clone());
        // Boxed, so that what it took to answer is freed while the answer, perhaps a watch, lasts.
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            Ok::<Response<Held>, Infallible>(handler::handle(&server, source, parts, body).await)
        })
    });
    let builder = builder();
    let mut speaking = pin!(builder.serve_connection_with_upgrades(TokioIo::new(session), service));
    let mut alarm = pin!(tokio::time::sleep_until(guard.first_check()));
    let mut is_draining = false;
    loop {
        tokio::select! {
            ended = speaking.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = %ErrorChain(&*error), "connection ended");
                }
                return;
            }
            () = drain.cancelled(), if !is_draining => {
                is_draining = true;
                speaking.as_mut().graceful_shutdown();
            }
            () = alarm.as_mut() => match guard.check(Instant::now()) {
                Decision::Keep { next_check } => alarm.as_mut().reset(next_check),
                Decision::Drain { next_check } => {
                    alarm.as_mut().reset(next_check);
                    speaking.as_mut().graceful_shutdown();
                }
                Decision::Close(why) => return tracing::debug!(why, "cut a connection off"),
            },
        }
    }
}

fn builder() -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(H1_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_MAX_STREAMS)
        .max_send_buf_size(H2_SEND_BUFFER)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING);
    builder
}
