//! The smallest client that can measure a Kubernetes API: one HTTP/1.1 connection, TLS, the kubeconfig's certificate.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    client::conn::http1::SendRequest,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(120);

/// Where and as whom.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    tls: Arc<rustls::ClientConfig>,
}

impl Target {
    /// Reads the kubeconfig's first cluster and user.
    pub(crate) fn load(kubeconfig: &str) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(kubeconfig).with_context(|| format!("read {kubeconfig}"))?;
        let config: Value = serde_yaml::from_str(&text).context("parse the kubeconfig")?;
        let field = |pointer: &str| {
            let found = config.pointer(pointer).and_then(Value::as_str);
            found.map(str::to_owned).ok_or_else(|| anyhow!("the kubeconfig has no {pointer}"))
        };
        let pem = |pointer: &str| -> anyhow::Result<Vec<u8>> {
            Ok(base64::engine::general_purpose::STANDARD.decode(field(pointer)?)?)
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("/clusters/0/cluster/certificate-authority-data")?)?)?;
        let chain = CertificateDer::pem_slice_iter(&pem("/users/0/user/client-certificate-data")?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&pem("/users/0/user/client-key-data")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let server = field("/clusters/0/cluster/server")?;
        let address = server.strip_prefix("https://").context("the server is not https")?.to_owned();
        Ok(Self { address, tls: Arc::new(tls) })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let tcp = TcpStream::connect(&self.address).await.context("connect")?;
        tcp.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host).to_owned();
        let connector = tokio_rustls::TlsConnector::from(self.tls.clone());
        let tls = connector.connect(ServerName::try_from(host)?, tcp).await.context("TLS handshake")?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        // Ends with the connection; what it fails with, the request fails with, too.
        drop(tokio::spawn(connection));
        Ok(Connection { sender })
    }
}

/// An open connection: one request at a time.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Sends and reads the whole answer; its status must be a success.
    pub(crate) async fn bytes(&mut self, method: Method, path: &str, body: Option<Bytes>) -> anyhow::Result<Bytes> {
        let work = async {
            let response = self.send(method.clone(), path, body).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            if !status.is_success() {
                bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)]));
            }
            Ok(bytes)
        };
        tokio::time::timeout(DEADLINE, work).await.map_err(|_| anyhow!("no answer within {DEADLINE:?}"))?
    }

    /// As [`Connection::bytes`], parsed.
    pub(crate) async fn json(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        Ok(serde_json::from_slice(&self.bytes(method, path, body).await?)?)
    }

    /// Sends; the body of the answer is the caller's to read (a watch).
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> anyhow::Result<hyper::Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "bench")
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(Full::new(body.unwrap_or_default()))?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// The lines of a watch, as they come.
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// The next event; an error at the end of the stream.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await.context("the watch is silent")?;
            let frame = frame.context("the watch has ended")??;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
