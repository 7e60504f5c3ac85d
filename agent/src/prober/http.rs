//! Probes and hooks that make an HTTP request. Certificates are not verified, as upstream has it.

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
    pub(crate) fn new(action: &HTTPGetAction, container: &Container, pod_ip: Option<IpAddr>) -> Result<Self, String> {
        let host = action.host.clone().filter(|host| !host.is_empty()).or_else(|| pod_ip.map(|ip| ip.to_string()));
        let path = action.path.clone().unwrap_or_default();
        Ok(Self {
            host: host.ok_or("no address to connect to")?,
            port: port_number(&action.port, container).ok_or("no such port")?,
            tls: action.scheme.as_deref() == Some("HTTPS"),
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            headers: action
                .http_headers
                .iter()
                .flatten()
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
        })
    }

    fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}{}", self.port, self.path)
    }
}

pub(crate) async fn probe(request: &Request, limit: Duration) -> Outcome {
    match tokio::time::timeout(limit, send(request)).await {
        Ok(Ok((code, _))) if (200..400).contains(&code) => Outcome::Success,
        Ok(Ok((code, _))) => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
        Ok(Err(error)) => Outcome::Failure(format!("Get \"{}\": {error}", request.url())),
        Err(_) => Outcome::Failure(format!(
            "Get \"{}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            request.url()
        )),
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends it on a connection of its own; status code and the beginning of the body.
pub(crate) async fn send(request: &Request) -> Result<(u16, Bytes), BoxError> {
    let stream = TcpStream::connect((request.host.as_str(), request.port)).await?;
    stream.set_nodelay(true)?;
    if request.tls {
        let name = rustls_pki_types::ServerName::try_from(request.host.clone())?;
        let stream = tokio_rustls::TlsConnector::from(Arc::clone(&ANY_CERTIFICATE)).connect(name, stream).await?;
        exchange(request, TokioIo::new(stream)).await
    } else {
        exchange(request, TokioIo::new(stream)).await
    }
}

async fn exchange<S>(request: &Request, stream: S) -> Result<(u16, Bytes), BoxError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let exchange = async move {
        let named = |name: &str| request.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
        let mut message = hyper::Request::get(&request.path);
        if !named("host") {
            message = message.header(hyper::header::HOST, format!("{}:{}", request.host, request.port));
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
        let response = sender.send_request(message.body(Empty::<Bytes>::new())?).await?;
        let code = response.status().as_u16();
        // More than this nobody reads: the connection ends here anyway.
        let body = Limited::new(response.into_body(), MAX_BODY)
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        Ok((code, body))
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
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls_pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
