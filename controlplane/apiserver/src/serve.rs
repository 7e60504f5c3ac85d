//! Listening: TLS 1.2 and 1.3 with optional client certificates, HTTP/1.1 and HTTP/2 on one port.
//!
//! Bounded everywhere: connections by a semaphore, the handshake and the headers by time, bodies and requests in
//! flight by the handler.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::{
    CipherSuite, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    authn,
    body::Body,
    handler, reply,
    server::{ApiServer, ApiServerError},
};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests under way get at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed accept, such as for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const H2_MAX_STREAMS: u32 = 250;
const H2_PING: Duration = Duration::from_secs(30);

/// Serves until `shutdown`.
pub(crate) async fn serve(
    server: Arc<ApiServer>,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ApiServerError> {
    let acceptor = TlsAcceptor::from(Arc::new(tls_config(&server)?));
    let connections = Arc::new(Semaphore::new(server.config.max_connections));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &connections) => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let Some((stream, permit)) = accepted else { continue };
        let watcher = graceful.watcher();
        let (server, acceptor) = (Arc::clone(&server), acceptor.clone());
        tasks.spawn(async move {
            let _permit = permit;
            Box::pin(connection(server, acceptor, stream, watcher)).await;
        });
    }
    drop(listener);
    // Watches end at once and let their connections go; other requests finish.
    server.shutdown.cancel();
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were cut off at shutdown");
    }
    tasks.shutdown().await;
    server.stop().await;
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Small answers must not wait for acknowledgements.
            let _ = stream.set_nodelay(true);
            Some((stream, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            None
        }
    }
}

async fn connection(
    server: Arc<ApiServer>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    // Read once a connection: every request on it has this identity, while it lasts.
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.and_then(authn::x509::Holder::of).map(Arc::new);
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, certificate) = (Arc::clone(&server), certificate.clone());
        // Boxed, so that what it took to answer is freed while the answer, perhaps a watch, lasts.
        Box::pin(async move { Ok::<_, Infallible>(answer(server, certificate, request).await) })
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_MAX_STREAMS)
        .keep_alive_interval(H2_PING)
        .keep_alive_timeout(H2_PING);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(error = %error, "connection ended");
    }
}

async fn answer(
    server: Arc<ApiServer>,
    certificate: Option<Arc<authn::x509::Holder>>,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    match authn::authenticate(&server, certificate.as_deref(), &parts.headers).await {
        Ok(user) => handler::handle(&server, user, parts, body).await,
        Err(status) => reply::failure(&status),
    }
}

fn tls_config(server: &ApiServer) -> Result<ServerConfig, ApiServerError> {
    let pki = &server.config.pki;
    let provider = Arc::new(provider());
    let mut roots = RootCertStore::empty();
    for certificate in pki.ca.chain()? {
        roots.add(certificate).map_err(ApiServerError::SetUpTls)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(ApiServerError::VerifyClients)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ApiServerError::SetUpTls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pki.server.chain()?, pki.server.key()?)
        .map_err(ApiServerError::SetUpTls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    // Clients keep their connections; a new process has no ticket. What would be kept for resumption is memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The cipher suites in the order that Go's clients ask for: what is as strong for less work comes first.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| {
        let is_small = matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        );
        (suite.tls13().is_none(), !is_small)
    });
    provider
}
