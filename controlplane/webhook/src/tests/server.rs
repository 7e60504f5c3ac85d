//! A webhook on loopback.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{DialError, Dialer, Io, ServiceReference};

/// What a server has to show.
pub(super) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// Whom to believe, in PEM.
    pub(super) bundle: Vec<u8>,
}

fn authority() -> (Certificate, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate, Issuer::new(params, key))
}

/// A certificate of a client that is its own authority, and its key, both in PEM.
pub(super) fn client() -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "client");
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

impl Identity {
    /// Of an authority, for these names, until that year.
    pub(super) fn until(names: &[&str], year: i32) -> Self {
        let (authority, issuer) = authority();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            bundle: authority.pem().into_bytes(),
        }
    }

    pub(super) fn of(names: &[&str]) -> Self {
        Self::until(names, 3000)
    }

    /// As `openssl req -x509` makes one: its own authority, and one for others.
    pub(super) fn own(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            bundle: certificate.pem().into_bytes(),
        }
    }
}

/// What it does with a request.
#[derive(Clone)]
pub(super) enum Behaviour {
    /// Says what it was asked: path, host and body.
    Echo,
    /// Never answers.
    Hangs,
    /// This code, kind and body.
    Says(u16, &'static str, Bytes),
    /// Leads elsewhere.
    Redirects,
    /// Says this much of an answer that was to be longer, and goes.
    BreaksOff,
    /// Echo, and goes.
    SaysOnce,
    /// Answers before it has read what it is asked, and does not read on.
    SaysEarly,
    /// Says how the caller is authorized.
    Who,
}

/// One that listens.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) bundle: Vec<u8>,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    pub(super) async fn start(identity: Identity, behaviour: Behaviour) -> Self {
        Self::listen(identity, behaviour, WebPkiClientVerifier::no_client_auth()).await
    }

    /// One for those only who have this certificate.
    pub(super) async fn of_clients(identity: Identity, behaviour: Behaviour, pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Self::listen(identity, behaviour, clients.build().unwrap()).await
    }

    async fn listen(
        identity: Identity,
        behaviour: Behaviour,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(identity.chain, identity.key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self {
            address,
            bundle: identity.bundle,
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (server.connections.clone(), server.requests.clone());
        coracle_telemetry::spawn("webhook", async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let (acceptor, behaviour) = (acceptor.clone(), behaviour.clone());
                let requests = requests.clone();
                coracle_telemetry::spawn("connection", async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let answer = |request| {
                        requests.fetch_add(1, Ordering::Relaxed);
                        answer(request, behaviour.clone())
                    };
                    let is_once = matches!(behaviour, Behaviour::SaysOnce);
                    let mut serving = http1::Builder::new();
                    let serving = serving.keep_alive(!is_once);
                    let _ = serving
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                });
            }
        });
        server
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn answer(
    request: Request<Incoming>,
    behaviour: Behaviour,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    if matches!(behaviour, Behaviour::SaysEarly) {
        coracle_telemetry::spawn("unread", async move {
            std::future::pending::<()>().await;
            drop(body);
        });
        return Ok(Response::new(Full::new("early".into())));
    }
    let body = body.collect().await.map_err(std::io::Error::other)?;
    let respond = |code: u16, kind: &str, body: Bytes| {
        let response = Response::builder()
            .status(code)
            .header(header::CONTENT_TYPE, kind);
        Ok(response.body(Full::new(body)).unwrap())
    };
    match behaviour {
        Behaviour::Echo | Behaviour::SaysOnce => {
            let host = head.headers[header::HOST].to_str().unwrap();
            let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
            let said = format!("{} {} {host} {body}", head.method, head.uri);
            respond(200, "application/json", said.into())
        }
        Behaviour::Hangs | Behaviour::SaysEarly => std::future::pending().await,
        Behaviour::Who => {
            let said = head.headers.get(header::AUTHORIZATION);
            let said = said.map_or("nobody", |said| said.to_str().unwrap());
            respond(200, "text/plain", said.to_owned().into())
        }
        Behaviour::Says(code, kind, body) => respond(code, kind, body),
        Behaviour::Redirects => {
            let mut response = respond(302, "text/plain", Bytes::new())?;
            let elsewhere = "https://127.0.0.1:1/".parse().unwrap();
            response.headers_mut().insert(header::LOCATION, elsewhere);
            Ok(response)
        }
        Behaviour::BreaksOff => {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Err(std::io::Error::other("broken"))
        }
    }
}

/// Leads every Service to one address.
pub(super) struct To(pub(super) SocketAddr);

#[async_trait]
impl Dialer for To {
    async fn dial(&self, service: &ServiceReference) -> Result<Box<dyn Io>, DialError> {
        if service.name == "missing" {
            let what = format!("service {:?} not found", service.name);
            return Err(DialError(what));
        }
        let stream = TcpStream::connect(self.0).await.unwrap();
        Ok(Box::new(stream))
    }
}
