//! The smallest client that can measure a Kubernetes API: a connection of HTTP/1.1, or of HTTP/2
//! for many watches; TLS, the kubeconfig's certificate.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use base64::Engine;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(120);
const JSON: &str = "application/json";
/// What Go's client grants a stream and a connection before it has read anything.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// Where and as whom.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    tls: Arc<rustls::ClientConfig>,
}

impl Target {
    /// Reads the kubeconfig's first cluster and user.
    pub(crate) fn load(kubeconfig: &str) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(kubeconfig).with_context(|| format!("read {kubeconfig}"))?;
        let config: Value = serde_yaml::from_str(&text).context("parse the kubeconfig")?;
        let field = |pointer: &str| {
            let found = config.pointer(pointer).and_then(Value::as_str);
            found
                .map(str::to_owned)
                .ok_or_else(|| anyhow!("the kubeconfig has no {pointer}"))
        };
        let pem = |pointer: &str| -> anyhow::Result<Vec<u8>> {
            Ok(base64::engine::general_purpose::STANDARD.decode(field(pointer)?)?)
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem(
            "/clusters/0/cluster/certificate-authority-data",
        )?)?)?;
        let chain = CertificateDer::pem_slice_iter(&pem("/users/0/user/client-certificate-data")?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&pem("/users/0/user/client-key-data")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let server = field("/clusters/0/cluster/server")?;
        let address = server
            .strip_prefix("https://")
            .context("the server is not https")?
            .to_owned();
        Ok(Self {
            address,
            tls: Arc::new(tls),
        })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let (sender, connection) = http1::handshake(self.dial(self.tls.clone()).await?).await?;
        // Ends with the connection; what it fails with, the request fails with, too.
        drop(tokio::spawn(connection));
        Ok(Connection { sender })
    }

    /// Opens a connection for many requests at once, as Go's client does.
    pub(crate) async fn connect_shared(&self) -> anyhow::Result<Shared> {
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = self.dial(Arc::new(tls)).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await?;
        drop(tokio::spawn(connection));
        Ok(Shared {
            sender,
            host: self.address.clone(),
        })
    }

    async fn dial(
        &self,
        tls: Arc<rustls::ClientConfig>,
    ) -> anyhow::Result<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>> {
        let tcp = TcpStream::connect(&self.address).await.context("connect")?;
        tcp.set_nodelay(true)?;
        let host = self
            .address
            .rsplit_once(':')
            .map_or(self.address.as_str(), |(host, _)| host)
            .to_owned();
        let connector = tokio_rustls::TlsConnector::from(tls);
        Ok(TokioIo::new(
            connector
                .connect(ServerName::try_from(host)?, tcp)
                .await
                .context("TLS handshake")?,
        ))
    }
}

/// An open connection that carries many requests at once.
#[derive(Clone)]
pub(crate) struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    host: String,
}

impl Shared {
    /// Begins a watch; its body is the caller's to read.
    pub(crate) async fn watch(&mut self, path: &str) -> anyhow::Result<Incoming> {
        let request = Request::get(format!("https://{}{path}", self.host));
        self.begin(path, request).await
    }

    /// The same in the name of somebody else.
    pub(crate) async fn watch_as(
        &mut self,
        path: &str,
        user: &str,
        group: &str,
    ) -> anyhow::Result<Incoming> {
        let request = Request::get(format!("https://{}{path}", self.host))
            .header("impersonate-user", user)
            .header("impersonate-group", group);
        self.begin(path, request).await
    }

    async fn begin(
        &mut self,
        path: &str,
        request: hyper::http::request::Builder,
    ) -> anyhow::Result<Incoming> {
        let request = request
            .header("accept", "application/json")
            .body(Full::default())?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        anyhow::ensure!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        Ok(response.into_body())
    }
}

/// An open connection: one request at a time.
pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Sends and reads the whole answer, keeping nothing of it, as `hey` does; its status must be a
    /// success.
    pub(crate) async fn drain(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> anyhow::Result<usize> {
        let work = async {
            let response = self.send(method.clone(), path, body).await?;
            let status = response.status();
            anyhow::ensure!(status.is_success(), "{method} {path}: {status}");
            let (mut body, mut length) = (response.into_body(), 0);
            while let Some(frame) = body.frame().await {
                length += frame?.data_ref().map_or(0, Bytes::len);
            }
            Ok(length)
        };
        tokio::time::timeout(DEADLINE, work)
            .await
            .map_err(|_| anyhow!("no answer within {DEADLINE:?}"))?
    }

    /// Sends and reads the whole answer; its status must be a success.
    pub(crate) async fn bytes(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> anyhow::Result<Bytes> {
        let work = async {
            let response = self.send(method.clone(), path, body).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            if !status.is_success() {
                bail!(
                    "{method} {path}: {status} {}",
                    String::from_utf8_lossy(&bytes[..bytes.len().min(300)])
                );
            }
            Ok(bytes)
        };
        tokio::time::timeout(DEADLINE, work)
            .await
            .map_err(|_| anyhow!("no answer within {DEADLINE:?}"))?
    }

    /// As [`Connection::bytes`], parsed.
    pub(crate) async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        Ok(serde_json::from_slice(
            &self.bytes(method, path, body).await?,
        )?)
    }

    /// Creates an object.
    pub(crate) async fn post(&mut self, path: &str, object: &Value) -> anyhow::Result<()> {
        let body = Some(Bytes::from(object.to_string()));
        self.bytes(Method::POST, path, body).await.map(drop)
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(&mut self, path: &str, patch: &Value) -> anyhow::Result<()> {
        let body = Bytes::from(patch.to_string());
        let patch = "application/merge-patch+json";
        let request = (Method::PATCH, path, Some(body));
        let answer = self.send_as(request, patch, JSON).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let said = || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
        anyhow::ensure!(status.is_success(), "PATCH {path}: {status} {}", said());
        Ok(())
    }

    /// Gets in the form of `accept`, and reads the answer without keeping it.
    pub(crate) async fn drain_as(&mut self, path: &str, accept: &str) -> anyhow::Result<usize> {
        let request = (Method::GET, path, None);
        let answer = self.send_as(request, JSON, accept).await?;
        anyhow::ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        let (mut body, mut length) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }

    /// Sends; the body of the answer is the caller's to read (a watch).
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> anyhow::Result<hyper::Response<Incoming>> {
        self.send_as((method, path, body), JSON, JSON).await
    }

    async fn send_as(
        &mut self,
        (method, path, body): (Method, &str, Option<Bytes>),
        content: &str,
        accept: &str,
    ) -> anyhow::Result<hyper::Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "bench")
            .header("accept", accept)
            .header("content-type", content)
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
        Self {
            body,
            buffer: Vec::new(),
        }
    }

    /// The next event; an error at the end of the stream.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame())
                .await
                .context("the watch is silent")?;
            let frame = frame.context("the watch has ended")??;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
