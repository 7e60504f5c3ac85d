//! A small real admission webhook, for the end-to-end tests: what an operator ships in its image.
//!
//! ```text
//! webhook ADDRESS CERTIFICATE KEY
//! /inject     pods get a container `sidecar`, unless they have one
//! /labels     what has no label `team` is refused
//! /version    what it was asked about is allowed, and told in a warning
//! ```
//! It speaks AdmissionReview v1, over TLS alone, and ends with SIGTERM, as every program does.

use std::{env, fs, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key] = args.as_slice() else {
        bail!("webhook ADDRESS CERTIFICATE KEY");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tls = tls(certificate, key)?;
    runtime.block_on(serve(address.parse().context("an address")?, tls))
}

fn tls(certificate: &str, key: &str) -> Result<ServerConfig> {
    let read = |path: &str| fs::read(path).with_context(|| path.to_owned());
    let certificate = read(certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let key = PrivateKeyDer::from_pem_slice(&read(key)?).context("a key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder
        .with_no_client_auth()
        .with_single_cert(chain.context("a certificate")?, key)?)
}

async fn serve(address: SocketAddr, tls: ServerConfig) -> Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(address).await.context("bind")?;
    println!("listening on {address}");
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        #[expect(clippy::disallowed_methods, reason = "a program of its own")]
        connections.spawn(connection(acceptor.clone(), stream));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let serving = http1::Builder::new();
    let serving = serving.serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = serving.await {
        println!("a connection has ended: {error}");
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let asked = &review["request"];
    let mut response = match path.as_str() {
        "/inject" => inject(&asked["object"]),
        "/labels" => labels(&asked["object"]),
        _ => {
            json!({"allowed": true, "warnings": [format!("{} {}", asked["operation"], asked["kind"])]})
        }
    };
    println!("{path} {} {}", asked["operation"], asked["name"]);
    response["uid"] = asked["uid"].clone();
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": response});
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Full::new(answer.to_string().into()))?)
}

fn inject(pod: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array();
    let mut containers = containers.into_iter().flatten();
    if containers.any(|container| container["name"] == "sidecar") {
        return json!({"allowed": true});
    }
    let sidecar = json!({"name": "sidecar", "image": "busybox", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "echo beside; exec sleep 3600"]});
    let patch = json!([{"op": "add", "path": "/spec/containers/-", "value": sidecar}]);
    json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch.to_string())})
}

fn labels(object: &Value) -> Value {
    let team = &object["metadata"]["labels"]["team"];
    if team.is_string() {
        return json!({"allowed": true});
    }
    json!({"allowed": false, "status": {"code": 403, "message": "a label \"team\" must say whose it is"}})
}
