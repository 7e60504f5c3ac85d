//! The agent of a node that a test plays: answers every request alike.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustls::{
    RootCertStore, ServerConfig,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::pki::{KeyPair, Pki};

/// What the node does after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Sends back what it gets in capitals.
    Echo,
    /// Sends so many bytes and ends the connection, without TLS' farewell.
    Burst(usize),
    /// Is the pod's port behind a tunnel: answers one request with a page; with TLS if so said.
    Page { is_secret: bool },
    /// The same, and answers with what it was asked.
    Asked,
}

const PAGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 48\r\n\r\n\
    <html><a href=\"/rewriteme\">x</a> <b href=\"/y\">yy";

/// A certificate of version 1, as simple tools make it, and its key.
const CERTIFICATE: &str = "MIIBHTCBxQIULG76uu+3SRr9PZXLH838bjpK9O8wCgYIKoZIzj0EAwIwETEPMA0GA1UEAwwGcG9ydGVyMCAXDTI2MTEyMjA5MDcwMVoYDzIxMjYxMDI5MDkwNzAxWjARMQ8wDQYDVQQDDAZwb3J0ZXIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAR5BUbdLDVT9iY9rrt53Q7LUq96G+dVsMcsmzmNGyGWbW/IkjIYEysCd1S85i2Fmz7k2bBEsqnQe6VfdxsArWr4MAoGCCqGSM49BAMCA0cAMEQCIEIh8n8IHdHB918DQtsqjoAG7a/QGOQXfRnwUtZrXal8AiAirtUhVMLa4UFZAGIpgo7ZGwxgXf3YJTWxtMCZ0fj7IQ==";

const KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg1P0BDJgJyoyn/qaSFTF9aBcQ4h/X3MQwr5xgT9hoQJehRANCAAR5BUbdLDVT9iY9rrt53Q7LUq96G+dVsMcsmzmNGyGWbW/IkjIYEysCd1S85i2Fmz7k2bBEsqnQe6VfdxsArWr4";

/// A backend with a certificate that nobody could verify.
fn secret_backend() -> TlsAcceptor {
    #[derive(Debug)]
    struct Only(Arc<CertifiedKey>);
    impl ResolvesServerCert for Only {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let der = |text: &str| BASE64_STANDARD.decode(text).unwrap();
    let key = provider
        .key_provider
        .load_private_key(PrivatePkcs8KeyDer::from(der(KEY)).into())
        .unwrap();
    let certified = Arc::new(CertifiedKey::new(vec![der(CERTIFICATE).into()], key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    TlsAcceptor::from(Arc::new(
        config
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Only(certified))),
    ))
}

/// Reads a request and answers it with the page.
async fn serve_page(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(PAGE.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    // What the peer still says would make the kernel forget what it has not read.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// Reads a request and answers it with its own first line.
async fn serve_asked(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let asked = request.lines().next().unwrap();
    let length = asked.len();
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    if !asked.starts_with("HEAD ") {
        answer.push_str(asked);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// A serving certificate of `node` by the cluster's authority, as agents have that joined before
/// nodes had their own.
pub(super) fn old_serving(pki: &Pki, node: &str) -> KeyPair {
    let key = rcgen::KeyPair::from_pem(&pki.ca.key_pem).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_pem(&pki.ca.cert_pem, key).unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:nodes");
    let key = rcgen::KeyPair::generate().unwrap();
    let cert_pem = params.signed_by(&key, &issuer).unwrap().pem();
    KeyPair {
        cert_pem,
        key_pem: key.serialize_pem(),
    }
}

/// The agent of the node `name` that answers every request with `answer`.
pub(super) async fn node(pki: &Pki, name: &str, answer: &'static str, then: Then) -> SocketAddr {
    let serving = pki
        .issue_node_serving(name, IpAddr::from([127, 0, 0, 1]))
        .unwrap();
    agent(&pki.kubelet_ca, &serving, answer, then).await
}

/// An agent that shows `serving` and admits whom `authority` vouches for.
pub(super) async fn agent(
    authority: &KeyPair,
    serving: &KeyPair,
    answer: &'static str,
    then: Then,
) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.chain().unwrap().remove(0)).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(serving.chain().unwrap(), serving.key().unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    coracle_telemetry::spawn("task of a test", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let connection = serve(acceptor.clone(), stream, answer, then);
            coracle_telemetry::spawn("task of a test", connection);
        }
    });
    address
}

/// One connection: a request, the answer, and what is to follow it.
async fn serve(acceptor: TlsAcceptor, stream: TcpStream, answer: &'static str, then: Then) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        // Who is not what it was taken for is left without a word.
        let Ok(byte) = stream.read_u8().await else {
            return;
        };
        request.push(byte);
    }
    let request = String::from_utf8(request).unwrap().to_lowercase();
    assert!(!request.contains("authorization"), "{request}");
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    match then {
        Then::Asked => serve_asked(stream).await,
        Then::Page { is_secret: false } => serve_page(stream).await,
        Then::Page { is_secret: true } => {
            serve_page(secret_backend().accept(stream).await.unwrap()).await;
        }
        Then::Burst(length) => {
            stream.write_all(&vec![7; length]).await.unwrap();
            stream.flush().await.unwrap();
            let (mut stream, _) = stream.into_inner();
            stream.shutdown().await.unwrap();
            // What is unread would make the kernel forget what is unsent.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
        Then::Echo => {
            while let Ok(byte) = stream.read_u8().await {
                let capital = [byte.to_ascii_uppercase()];
                stream.write_all(&capital).await.unwrap();
                stream.flush().await.unwrap();
            }
        }
    }
}
