//! Requests to a node's agent over TLS, with the API server's client certificate.
//!
//! An upgrade is relayed byte for byte only after the agent has agreed to it with 101; any other answer is relayed as
//! an answer and the connection closed, and redirects are never followed (CVE-2018-1002105, CVE-2020-8559).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::{Reason, Status};
use futures::TryStreamExt;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, BodyStream, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::location::Target;
use crate::{
    body::{Body, BoxError},
    pki::{Pki, PkiError},
    server::ApiServer,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an error's text that are relayed.
const ERROR_LIMIT: usize = 16 * 1024;
/// What concerns one connection only, or the client's relation to this server.
const NOT_RELAYED: &[HeaderName] =
    &[header::AUTHORIZATION, header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::COOKIE];

/// How the API server shows itself to nodes.
pub(crate) fn tls_config(pki: &Pki) -> Result<Arc<ClientConfig>, PkiError> {
    let parse = |_| PkiError::Parse { what: "kubelet-client.crt" };
    let mut roots = RootCertStore::empty();
    for certificate in pki.ca.chain()? {
        roots.add(certificate).map_err(parse)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(parse)?
        .with_root_certificates(roots)
        .with_client_auth_cert(pki.kubelet_client.chain()?, pki.kubelet_client.key()?)
        .map_err(parse)?;
    Ok(Arc::new(config))
}

/// GET on the node.
pub(super) async fn get(server: &ApiServer, target: &Target) -> Result<Response<Incoming>, Status> {
    send(server, target, Method::GET, HeaderMap::new()).await
}

/// Sends the upgrade on, and joins both sides once the node has agreed.
pub(super) async fn relay_upgrade(
    server: &Arc<ApiServer>,
    parts: &Parts,
    client: OnUpgrade,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let mut headers = parts.headers.clone();
    for name in NOT_RELAYED {
        headers.remove(name);
    }
    let mut response = send(server, target, parts.method.clone(), headers).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(failure(response).await);
    }
    let node = hyper::upgrade::on(&mut response);
    let mut answer = Response::new(Body::Empty);
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    let shutdown = server.shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            joined = join(client, node) => if let Err(error) = joined {
                tracing::debug!(error = %error, "stream ended");
            }
        }
    });
    Ok(answer)
}

async fn join(client: OnUpgrade, node: OnUpgrade) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (client, node) = tokio::time::timeout(ANSWER_TIMEOUT, async { tokio::try_join!(client, node) }).await??;
    tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(node)).await?;
    Ok(())
}

async fn send(
    server: &ApiServer,
    target: &Target,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Incoming>, Status> {
    let connection = tokio::time::timeout(CONNECT_TIMEOUT, connect(server, target)).await;
    let stream = match connection {
        Ok(stream) => stream.map_err(|error| unreachable_node(target, &error))?,
        Err(_) => return Err(unreachable_node(target, &"i/o timeout")),
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable_node(target, &error))?;
    // Lives as long as the response's body or the upgraded stream.
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::builder().method(method).uri(&target.path_and_query).body(Empty::<Bytes>::new());
    if let Ok(request) = &mut request {
        *request.headers_mut() = headers;
        let host = target.node.to_string();
        if let Ok(host) = host.parse() {
            request.headers_mut().insert(header::HOST, host);
        }
    }
    let request = request.map_err(Status::internal)?;
    match tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
        Ok(response) => response.map_err(|error| unreachable_node(target, &error)),
        Err(_) => Err(unreachable_node(target, &"timed out waiting for an answer")),
    }
}

async fn connect(server: &ApiServer, target: &Target) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(target.node).await?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::IpAddress(target.node.ip().into());
    TlsConnector::from(Arc::clone(&server.node_tls)).connect(name, stream).await
}

fn unreachable_node(target: &Target, error: &dyn std::fmt::Display) -> Status {
    let message = format!("error dialing backend: {}: {error}", target.node);
    Status::new(500, Reason::InternalError, message)
}

/// An answer of the node that is no success, as a Status.
pub(super) async fn failure(response: Response<Incoming>) -> Status {
    let status = response.status();
    let body = Limited::new(response.into_body(), ERROR_LIMIT).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    match status.as_u16() {
        400 => Status::bad_request(text),
        300..400 => Status::new(502, Reason::InternalError, "the node answered with a redirect, which is not followed"),
        404 => Status::new(404, Reason::NotFound, text),
        code => Status::new(code.max(400), Reason::InternalError, text),
    }
}

/// The node's body as ours, as it comes.
pub(super) fn stream_body(body: Incoming) -> Body {
    let frames = TryStreamExt::map_err(BodyStream::new(body), BoxError::from);
    let data = frames.try_filter_map(|frame| std::future::ready(Ok(frame.into_data().ok())));
    Body::Stream(Box::pin(data))
}
