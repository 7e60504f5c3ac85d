//! Probes and hooks that make an HTTP request. Certificates are not verified, as upstream has it.
//!
//! Redirects are followed on the same host; one that leads to another host is not, and ends a probe
//! well but with a warning. Source: `pkg/probe/http/http.go` at v1.37.

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use tokio::net::TcpStream;

use super::{Outcome, port_number};

/// As many requests as Go's client makes before it gives up on redirects.
const MAX_REQUESTS: usize = 10;
/// What of the body goes into the event.
const MAX_BODY: usize = 10 * 1024;

/// A request, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    host: String,
    port: u16,
    tls: bool,
    path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        pod_ip: Option<IpAddr>,
    ) -> Result<Self, String> {
        let host = action
            .host
            .clone()
            .filter(|host| !host.is_empty())
            .or_else(|| pod_ip.map(|ip| ip.to_string()));
        let path = action.path.clone().unwrap_or_default();
        Ok(Self {
            host: host.ok_or("no address to connect to")?,
            port: port_number(&action.port, container).ok_or("no such port")?,
            tls: action.scheme.as_deref() == Some("HTTPS"),
            path: if path.starts_with('/') {
                path
            } else {
                format!("/{path}")
            },
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
        })
    }

    /// The same request to where the answer leads; `None` if that is another host.
    fn redirected(&self, location: &str) -> Result<Option<Self>, BoxError> {
        let target = reqwest::Url::parse(&self.url())?.join(location)?;
        let host = target
            .host_str()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if !host.eq_ignore_ascii_case(&self.host) {
            return Ok(None);
        }
        // A name that the request gave to the host stays with it only as long as nobody names the
        // host anew.
        let relative = reqwest::Url::parse(location).is_err();
        let keep = |(name, _): &&(String, String)| relative || !name.eq_ignore_ascii_case("host");
        let query = target
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        Ok(Some(Self {
            host: self.host.clone(),
            port: target.port_or_known_default().unwrap_or(self.port),
            tls: target.scheme() == "https",
            path: format!("{}{query}", target.path()),
            headers: self.headers.iter().filter(keep).cloned().collect(),
        }))
    }

    fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        format!("{scheme}://{host}:{}{}", self.port, self.path)
    }
}

pub(crate) async fn probe(request: &Request, limit: Duration) -> Outcome {
    match tokio::time::timeout(limit, send(request)).await {
        Ok(Ok(Answer { code: 200..300, .. })) => Outcome::Success,
        Ok(Ok(Answer {
            code: 300..400,
            body,
        })) => {
            let body = String::from_utf8_lossy(&body);
            Outcome::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        Ok(Ok(Answer { code, .. })) => {
            Outcome::Failure(format!("HTTP probe failed with statuscode: {code}"))
        }
        Ok(Err(error)) => match error.downcast_ref::<TooManyRedirects>() {
            Some(TooManyRedirects(location)) => {
                Outcome::Failure(format!("Get \"{location}\": {error}"))
            }
            None => Outcome::Failure(format!("Get \"{}\": {error}", request.url())),
        },
        Err(_) => Outcome::Failure(format!(
            "Get \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            request.url()
        )),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The last answer: status code and the beginning of the body.
#[derive(Debug)]
pub(crate) struct Answer {
    code: u16,
    body: Bytes,
}

/// Would have led on to here.
#[derive(Debug, thiserror::Error)]
#[error("stopped after {MAX_REQUESTS} redirects")]
struct TooManyRedirects(String);

/// Sends it, and goes where the answer sends it on the same host.
pub(crate) async fn send(request: &Request) -> Result<Answer, BoxError> {
    let (mut next, mut last) = (request.clone(), String::new());
    for _ in 0..MAX_REQUESTS {
        let (answer, location) = send_once(&next).await?;
        let Some(location) = location.filter(|_| matches!(answer.code, 301..=303 | 307 | 308))
        else {
            return Ok(answer);
        };
        let Some(target) = next.redirected(&location)? else {
            return Ok(answer);
        };
        (next, last) = (target, location);
    }
    Err(TooManyRedirects(last).into())
}

/// On a connection of its own; with the answer's `Location`.
async fn send_once(request: &Request) -> Result<(Answer, Option<String>), BoxError> {
    let stream = TcpStream::connect((request.host.as_str(), request.port)).await?;
    stream.set_nodelay(true)?;
    if request.tls {
        let name = rustls_pki_types::ServerName::try_from(request.host.clone())?;
        let stream = tokio_rustls::TlsConnector::from(Arc::clone(&ANY_CERTIFICATE))
            .connect(name, stream)
            .await?;
        exchange(request, TokioIo::new(stream)).await
    } else {
        exchange(request, TokioIo::new(stream)).await
    }
}

async fn exchange<S>(request: &Request, stream: S) -> Result<(Answer, Option<String>), BoxError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let exchange = async move {
        let named = |name: &str| {
            request
                .headers
                .iter()
                .any(|(header, _)| header.eq_ignore_ascii_case(name))
        };
        let mut message = hyper::Request::get(&request.path);
        if !named("host") {
            message = message.header(
                hyper::header::HOST,
                format!("{}:{}", request.host, request.port),
            );
        }
        if !named("user-agent") {
            message = message.header(hyper::header::USER_AGENT, "kube-probe/1.37");
        }
        if !named("accept") {
            message = message.header(hyper::header::ACCEPT, "*/*");
        }
        for (name, value) in &request.headers {
            message = message.header(name, value);
        }
        let response = sender
            .send_request(message.body(Empty::<Bytes>::new())?)
            .await?;
        let code = response.status().as_u16();
        let location = response.headers().get(hyper::header::LOCATION);
        let location = location
            .and_then(|location| location.to_str().ok())
            .map(str::to_owned);
        // More than this nobody reads: the connection ends here anyway.
        let body = Limited::new(response.into_body(), MAX_BODY)
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        Ok((Answer { code, body }, location))
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        result = &mut exchange => result,
        end = &mut connection => {
            end?;
            exchange.await
        }
    }
}

static ANY_CERTIFICATE: LazyLock<Arc<rustls::ClientConfig>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth();
    Arc::new(config)
});

#[derive(Debug)]
struct Unverified(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls_pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls_pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
