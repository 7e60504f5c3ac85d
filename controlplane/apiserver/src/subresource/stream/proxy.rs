//! `proxy` below pods, services and nodes: HTTP to what runs there, upgrades included.
//!
//! ```text
//! .../services/[https:]NAME[:PORT]/proxy/PATH    one of the Service's endpoints, PORT by name or number
//! .../pods/[https:]NAME[:PORT]/proxy/PATH        the pod, PORT by number; without it the pod's first
//! .../nodes/NAME/proxy/PATH                      the node's agent
//! ```
//! Pods are reached through their node's agent, so this server needs no route to them. Links inside
//! of pages are moved below the proxy ([`rewrite`]). Redirects are the client's to follow, never
//! ours.
//!
//! Source: `pkg/registry/core/{pod,service,node}/.../strategy.go`, `ResourceLocation`, at v1.37.

mod backend;
mod rewrite;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_api::status::{Reason, Status};
use coracle_webhook::Io;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
    request::Parts,
};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::{
    node::{self, Side},
    relayed_headers,
};
use crate::{
    body::Body,
    endpoints::Call,
    reply::{Reply, TEXT},
    state::State,
};
use backend::{Backend, Id};
use rewrite::Place;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the head of the answer: some pages take their time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
const HTML: &str = "text/html";

/// Serves a request of any method to `behind`, a path of what runs there.
pub(crate) async fn serve(
    call: &Call<'_>,
    parts: &Parts,
    behind: Option<&str>,
) -> Result<Response<Body>, Status> {
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let behind = match behind {
        None if is_read => return Ok(redirect(parts)),
        behind => behind.unwrap_or("/"),
    };
    let id = Id::parse(&call.info.name).ok_or_else(|| {
        Status::bad_request(format!(
            "invalid {} request {:?}",
            call.resource.info.singular, call.info.name
        ))
    })?;
    let backend = backend::find(call, &id).await?;
    let stream = connect(call.server, &backend).await?;
    let stream = if id.is_https && !matches!(backend, Backend::Agent(_)) {
        encrypt(stream).await?
    } else {
        stream
    };
    let query = parts
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let request = request(call, parts, &format!("{behind}{query}"), &backend.host())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    // Lives as long as the response's body or the upgraded stream.
    coracle_telemetry::spawn("connection to a backend", connection.with_upgrades());
    let response = match tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
        Ok(response) => response.map_err(failed)?,
        Err(_) => return Err(failed("timed out waiting for an answer")),
    };
    relay(call, parts, response, &backend.host())
}

async fn connect(server: &State, backend: &Backend) -> Result<Box<dyn Io>, Status> {
    Ok(match backend {
        Backend::Agent(agent) => Box::new(node::open(server, agent).await?),
        Backend::Pod { pod, port } => Box::new(TokioIo::new(
            node::tunnel(server, pod, *port, Side::Pod)
                .await
                .map_err(failed)?,
        )),
        Backend::Address(address) => {
            let connecting =
                tokio::time::timeout(HANDSHAKE_TIMEOUT, tokio::net::TcpStream::connect(address));
            Box::new(connecting.await.map_err(failed)?.map_err(failed)?)
        }
    })
}

/// A connection to a port of a Service, by the way that its proxy goes.
pub(crate) async fn connect_to_service(
    server: &State,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<Box<dyn Io>, Status> {
    let backend = backend::of_service(server, namespace, name, port).await?;
    connect(server, &backend).await
}

/// The path behind the proxy, as it was sent.
pub(crate) fn path_behind<'a>(call: &Call<'_>, parts: &'a Parts) -> Option<&'a str> {
    rest(parts.uri.path(), call.info.rest)
}

/// What follows `/proxy`, with all its slashes; `None` if there is none. `named` is the same
/// without those at the ends.
fn rest<'a>(path: &'a str, named: &str) -> Option<&'a str> {
    let trimmed = path.trim_end_matches('/');
    let start = if named.is_empty() {
        trimmed.len()
    } else {
        trimmed.len().checked_sub(named.len() + 1)?
    };
    path.get(start..).filter(|rest| !rest.is_empty())
}

/// Relative links of the page behind must not lead beside it.
fn redirect(parts: &Parts) -> Response<Body> {
    let query = parts
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut reply = Reply::new(StatusCode::MOVED_PERMANENTLY, TEXT, Body::Empty);
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", parts.uri.path())) {
        reply.headers.push((header::LOCATION, location));
    }
    reply.into_response()
}

fn request(
    call: &Call<'_>,
    parts: &Parts,
    path: &str,
    host: &str,
) -> Result<Request<Full<Bytes>>, Status> {
    let mut headers = relayed_headers::of_request(&parts.headers);
    if headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains(HTML))
    {
        // Pages are read here: compressed ones could not be.
        headers.remove(header::ACCEPT_ENCODING);
    }
    if let Some(upgrade) = parts.headers.get(header::UPGRADE) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, upgrade.clone());
    }
    for (name, value) in [
        (header::HOST, host),
        (HeaderName::from_static("x-forwarded-uri"), parts.uri.path()),
        (HeaderName::from_static("x-forwarded-proto"), "https"),
    ] {
        headers.insert(
            name,
            HeaderValue::from_str(value).map_err(Status::internal)?,
        );
    }
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path
        .parse()
        .map_err(|_| Status::bad_request("invalid path"))?;
    *request.headers_mut() = headers;
    Ok(request)
}

fn relay(
    call: &Call<'_>,
    parts: &Parts,
    mut response: Response<Incoming>,
    host: &str,
) -> Result<Response<Body>, Status> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
            return Err(Status::bad_request("this connection cannot be upgraded"));
        };
        return Ok(node::joined(call.server, client, &mut response));
    }
    let (mut head, body) = response.into_parts();
    relayed_headers::remove_hop_by_hop(&mut head.headers);
    let path = parts.uri.path();
    let prefix = path_behind(call, parts).map_or(path, |behind| &path[..path.len() - behind.len()]);
    // A path of the backend is one below the proxy.
    if let Some(location) = head
        .headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        && location.starts_with('/')
        && let Ok(below) = HeaderValue::from_str(&format!("{prefix}{location}"))
    {
        head.headers.insert(header::LOCATION, below);
    }
    let mut body = node::stream_body(body);
    if parts.method != Method::HEAD
        && is_page(&head.headers)
        && let Body::Stream(pieces) = body
    {
        let own = parts
            .headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let own = own.or(parts.uri.authority().map(http::uri::Authority::as_str));
        let hosts = own.into_iter().chain([host]).map(str::to_owned).collect();
        // It is longer than was announced.
        head.headers.remove(header::CONTENT_LENGTH);
        body = Body::Stream(Box::pin(rewrite::pieces(
            pieces,
            Place {
                prefix: prefix.to_owned(),
                hosts,
            },
        )));
    }
    let mut relayed = Response::new(body);
    (*relayed.status_mut(), *relayed.headers_mut()) = (head.status, head.headers);
    Ok(relayed)
}

/// Whether the answer is a page that can be read.
fn is_page(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE)
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    kind.eq_ignore_ascii_case(HTML)
        && matches!(text(header::CONTENT_ENCODING), None | Some("" | "identity"))
}

fn failed(error: impl std::fmt::Display) -> Status {
    Status::new(
        503,
        Reason::ServiceUnavailable,
        format!("error trying to reach service: {error}"),
    )
}

async fn encrypt(stream: Box<dyn Io>) -> Result<Box<dyn Io>, Status> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Status::internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("backend").map_err(Status::internal)?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(failed)?
        .map_err(failed)?;
    Ok(Box::new(stream))
}

/// Pods have certificates of their own making: as upstream, these are not verified. No secret of
/// ours goes there.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    // Who may show any certificate proves nothing with its key. To ask for the proof would only
    // refuse what cannot be read here: certificates of version 1, keys that are shorter than this
    // library takes.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_behind_the_proxy_keeps_its_slashes() {
        let check = |path, named, expect| assert_eq!(rest(path, named), expect, "{path}");
        check("/api/v1/nodes/n/proxy", "", None);
        check("/api/v1/nodes/n/proxy/", "", Some("/"));
        check(
            "/api/v1/nodes/n/proxy/a/proxy/b/",
            "a/proxy/b",
            Some("/a/proxy/b/"),
        );
    }
}
