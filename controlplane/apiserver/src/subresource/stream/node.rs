//! Requests to a node's agent over TLS, with the API server's client certificate.
//!
//! An upgrade is relayed byte for byte only after the agent has agreed to it with 101; any other
//! answer is relayed as an answer and the connection closed, and redirects are never followed
//! (CVE-2018-1002105, CVE-2020-8559).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::{Reason, Status};
use coracle_relay::relay;
use coracle_telemetry::ErrorChain;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, BodyStream, Empty, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::client::generate_key, protocol::Role},
};

use super::{
    carrier, identity,
    location::{Agent, Target},
    port_forward::Pod,
    relayed_headers,
};
use crate::{
    body::{Body, BoxError},
    state::State,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of an error's text that are relayed.
const ERROR_LIMIT: usize = 16 * 1024;
/// GET on the node.
pub(crate) async fn get(server: &State, target: &Target) -> Result<Response<Incoming>, Status> {
    send(server, target, Method::GET, HeaderMap::new()).await
}

/// Which address of a pod is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Its loopback, as port-forward has it.
    Loopback,
    /// Its own address, as proxies have it.
    Pod,
}

/// A connection to a TCP port of a pod, made by the pod's node: pods need no route to this server.
pub(super) async fn tunnel(
    server: &State,
    pod: &Pod,
    port: u16,
    side: Side,
) -> Result<Upgraded, Status> {
    let side = if side == Side::Pod {
        "&address=pod"
    } else {
        ""
    };
    let path_and_query = format!(
        "/portForward/{}/{}?port={port}{side}",
        pod.namespace, pod.name
    );
    let target = Target {
        agent: pod.agent.clone(),
        path_and_query,
    };
    upgraded(
        server,
        &target,
        upgrade_headers(HeaderValue::from_static("tcp")),
    )
    .await
}

/// A WebSocket with one of a node's streams.
pub(super) async fn websocket(
    server: &State,
    target: &Target,
    protocol: &'static str,
) -> Result<WebSocketStream<TokioIo<Upgraded>>, Status> {
    let mut headers = upgrade_headers(HeaderValue::from_static("websocket"));
    headers.insert(
        header::SEC_WEBSOCKET_VERSION,
        HeaderValue::from_static("13"),
    );
    headers.insert(
        header::SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(protocol),
    );
    let key = HeaderValue::from_str(&generate_key()).map_err(Status::internal)?;
    headers.insert(header::SEC_WEBSOCKET_KEY, key);
    let upgraded = upgraded(server, target, headers).await?;
    Ok(carrier::websocket(upgraded, Role::Client).await)
}

fn upgrade_headers(to: HeaderValue) -> HeaderMap {
    let connection = (header::CONNECTION, HeaderValue::from_static("Upgrade"));
    [connection, (header::UPGRADE, to)].into_iter().collect()
}

async fn upgraded(server: &State, target: &Target, headers: HeaderMap) -> Result<Upgraded, Status> {
    let mut response = send(server, target, Method::GET, headers).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(failure(response).await);
    }
    match tokio::time::timeout(ANSWER_TIMEOUT, hyper::upgrade::on(&mut response)).await {
        Ok(upgraded) => upgraded.map_err(|error| unreachable_node(target, &error)),
        Err(_) => Err(unreachable_node(
            target,
            &"timed out waiting for the upgrade",
        )),
    }
}

/// Sends the upgrade on, and joins both sides once the node has agreed.
pub(super) async fn relay_upgrade(
    server: &Arc<State>,
    parts: &Parts,
    client: OnUpgrade,
    target: &Target,
) -> Result<Response<Body>, Status> {
    let mut headers = relayed_headers::of_request(&parts.headers);
    if let Some(to) = parts.headers.get(header::UPGRADE) {
        headers.extend(upgrade_headers(to.clone()));
    }
    let mut response = send(server, target, parts.method.clone(), headers).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(failure(response).await);
    }
    Ok(joined(server, client, &mut response))
}

/// Relays an upgrade that the other side has agreed to: the answer to the client, and then every
/// byte.
pub(super) fn joined(
    server: &State,
    client: OnUpgrade,
    response: &mut Response<Incoming>,
) -> Response<Body> {
    let node = hyper::upgrade::on(&mut *response);
    let mut answer = Response::new(Body::Empty);
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    let shutdown = server.shutdown.clone();
    coracle_telemetry::spawn("relay to a node", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = join(client, node) => {}
        }
    });
    answer
}

async fn join(client: OnUpgrade, node: OnUpgrade) {
    match tokio::time::timeout(ANSWER_TIMEOUT, async { tokio::try_join!(client, node) }).await {
        Ok(Ok((client, node))) => relay(TokioIo::new(client), TokioIo::new(node)).await,
        Ok(Err(error)) => tracing::debug!(error = %ErrorChain(&error), "upgrade failed"),
        Err(_) => tracing::debug!("upgrade was not taken in time"),
    }
}

async fn send(
    server: &State,
    target: &Target,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Incoming>, Status> {
    let stream = open(server, &target.agent).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable_node(target, &error))?;
    // Lives as long as the response's body or the upgraded stream.
    coracle_telemetry::spawn("connection to a node", connection.with_upgrades());
    let mut request = Request::builder()
        .method(method)
        .uri(&target.path_and_query)
        .body(Empty::<Bytes>::new());
    if let Ok(request) = &mut request {
        *request.headers_mut() = headers;
        let host = target.agent.address.to_string();
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

/// A TLS connection to a node's agent.
pub(super) async fn open(server: &State, agent: &Agent) -> Result<TlsStream<TcpStream>, Status> {
    match tokio::time::timeout(CONNECT_TIMEOUT, connect(server, agent)).await {
        Ok(stream) => stream.map_err(|error| unreachable(agent, &error)),
        Err(_) => Err(unreachable(agent, &"i/o timeout")),
    }
}

async fn connect(server: &State, agent: &Agent) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(agent.address).await?;
    let _ = stream.set_nodelay(true);
    let name = ServerName::IpAddress(agent.address.ip().into());
    let stream = TlsConnector::from(Arc::clone(&server.node_tls))
        .connect(name, stream)
        .await?;
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first);
    // Before anything is said: what a Node's status names may be anybody with a certificate of this
    // cluster.
    if !identity::is_node(certificate, &agent.node) {
        let message = format!("tls: the certificate is not that of node {:?}", agent.node);
        return Err(std::io::Error::other(message));
    }
    Ok(stream)
}

fn unreachable_node(target: &Target, error: &dyn std::fmt::Display) -> Status {
    unreachable(&target.agent, error)
}

fn unreachable(agent: &Agent, error: &dyn std::fmt::Display) -> Status {
    Status::new(
        500,
        Reason::InternalError,
        format!("error dialing backend: {}: {error}", agent.address),
    )
}

/// An answer of the node that is no success, as a Status.
pub(super) async fn failure(response: Response<Incoming>) -> Status {
    let status = response.status();
    let body = Limited::new(response.into_body(), ERROR_LIMIT)
        .collect()
        .await;
    let text = body
        .map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned())
        .unwrap_or_default();
    match status.as_u16() {
        400 => Status::bad_request(text),
        300..400 => Status::new(
            502,
            Reason::InternalError,
            "the node answered with a redirect, which is not followed",
        ),
        404 => Status::new(404, Reason::NotFound, text),
        code => Status::new(code.max(400), Reason::InternalError, text),
    }
}

/// The node's body as ours, as it comes.
pub(crate) fn stream_body(body: Incoming) -> Body {
    let frames = TryStreamExt::map_err(BodyStream::new(body), BoxError::from);
    let data = frames.try_filter_map(|frame| std::future::ready(Ok(frame.into_data().ok())));
    Body::Stream(Box::pin(data))
}
