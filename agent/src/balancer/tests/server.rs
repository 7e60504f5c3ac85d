//! Servers of a cluster of their own, which do what the test wants.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::super::ServerAddress;

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Ready,
    NotReady,
    /// As a process that is stopped: the kernel accepts for it, and nobody answers.
    Stopped,
}

/// An authority, and the certificate of its servers.
pub(crate) struct Authority {
    acceptor: TlsAcceptor,
    pub(crate) ca: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let ca_key = rcgen::KeyPair::generate().expect("key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("params");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "authority of a test");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::CertifiedIssuer::self_signed(params, ca_key).expect("CA");
        let key = rcgen::KeyPair::generate().expect("key");
        let name = super::super::SERVER_NAME.to_string();
        let params = rcgen::CertificateParams::new(vec![name]).expect("params");
        let certificate = params.signed_by(&key, &issuer).expect("certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone(), issuer.der().clone()], key)
            .expect("certificate");
        Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            ca: issuer.der().clone(),
        }
    }

    /// What its clients speak with.
    pub(crate) fn tls(&self) -> ClientConfig {
        crate::join::tls(&self.ca, None).expect("TLS")
    }

    /// A server that is ready.
    pub(crate) async fn server(&self, name: &'static str) -> Server {
        let mut server = Server {
            name,
            acceptor: self.acceptor.clone(),
            at: SocketAddr::from(([127, 0, 0, 1], 0)),
            mode: watch::Sender::new(Mode::Ready),
            accepted: Arc::default(),
            hanging: Arc::default(),
            tasks: JoinSet::new(),
        };
        server.start().await;
        server
    }
}

/// One server.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    acceptor: TlsAcceptor,
    pub(crate) at: SocketAddr,
    mode: watch::Sender<Mode>,
    accepted: Arc<AtomicUsize>,
    hanging: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Server {
    pub(crate) fn address(&self) -> ServerAddress {
        self.at.into()
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many connections there have been.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How many requests have come that it never answers.
    pub(crate) fn hanging(&self) -> usize {
        self.hanging.load(Ordering::Relaxed)
    }

    /// As if its process were killed.
    pub(crate) async fn kill(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Listens, (again) at its address.
    pub(crate) async fn start(&mut self) {
        let listener = TcpListener::bind(self.at).await.expect("listen");
        self.at = listener.local_addr().expect("address");
        let (name, mode) = (self.name, self.mode.subscribe());
        let (acceptor, accepted) = (self.acceptor.clone(), Arc::clone(&self.accepted));
        let hanging = Arc::clone(&self.hanging);
        coracle_telemetry::spawn_in(&mut self.tasks, "a server of a test", async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                accepted.fetch_add(1, Ordering::Relaxed);
                let serve = serve(
                    stream,
                    acceptor.clone(),
                    (name, Arc::clone(&hanging)),
                    mode.clone(),
                );
                coracle_telemetry::spawn_in(&mut connections, "a connection of a test", serve);
            }
        });
    }
}

async fn running(mode: &mut watch::Receiver<Mode>) -> Mode {
    let running = mode.wait_for(|mode| *mode != Mode::Stopped).await;
    *running.expect("the server is there")
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    (name, hanging): (&'static str, Arc<AtomicUsize>),
    mut mode: watch::Receiver<Mode>,
) {
    running(&mut mode).await;
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut mode, hanging) = (mode.clone(), Arc::clone(&hanging));
        async move {
            let mode = running(&mut mode).await;
            let (status, text) = match request.uri().path() {
                "/hang" => {
                    hanging.fetch_add(1, Ordering::Relaxed);
                    std::future::pending().await
                }
                "/readyz" if mode == Mode::NotReady => (500, "not ready"),
                "/readyz" => (200, "ok"),
                _ => (200, name),
            };
            let body = Full::new(Bytes::from_static(text.as_bytes()));
            let mut response = Response::new(body);
            *response.status_mut() = http::StatusCode::from_u16(status).expect("status");
            Ok::<_, Infallible>(response)
        }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
