//! Request rates over TLS:
//! `load KUBECONFIG_DIR ADDRESS SECONDS CONNECTIONS get|create|put|list500|list-all`.
//!
//! `KUBECONFIG_DIR` is the server's `pki` directory. One HTTP/1.1 connection a client, one request
//! at a time on each.

use std::{
    error::Error,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

type AnyError = Box<dyn Error + Send + Sync>;

const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, address, seconds, connections, what] = &args[..] else {
        return Err(
            "usage: load PKI_DIR ADDRESS SECONDS CONNECTIONS get|create|put|list500|list-all"
                .into(),
        );
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(
        Path::new(dir),
        address,
        seconds.parse()?,
        connections.parse()?,
        what,
    ))
}

async fn run(
    dir: &Path,
    address: &str,
    seconds: u64,
    connections: usize,
    what: &str,
) -> Result<(), AnyError> {
    let config = Arc::new(client_config(dir)?);
    let data = "x".repeat(700);
    let fixed = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"load"}},"data":{{"k":"{data}"}}}}"#
    );
    let mut first = connect(&config, address).await?;
    let _ = send(&mut first, "POST", PATH, &fixed).await?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut clients = JoinSet::new();
    for client in 0..connections {
        let (config, address, what, data) = (
            Arc::clone(&config),
            address.to_owned(),
            what.to_owned(),
            data.clone(),
        );
        coracle_telemetry::spawn_in(&mut clients, "a client", async move {
            let mut sender = connect(&config, &address).await?;
            let mut times = Vec::new();
            for round in 0.. {
                let started = Instant::now();
                if started >= end {
                    break;
                }
                let put = format!("{PATH}/load");
                let object = |meta: &str| {
                    format!(
                        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{{meta}}},"data":{{"k":"{data}","n":"{client}-{round}"}}}}"#
                    )
                };
                let code = match what.as_str() {
                    "get" => send(&mut sender, "GET", &put, "").await?,
                    "create" => {
                        send(
                            &mut sender,
                            "POST",
                            PATH,
                            &object(r#""generateName":"load-""#),
                        )
                        .await?
                    }
                    "put" => send(&mut sender, "PUT", &put, &object(r#""name":"load""#)).await?,
                    "list500" => send(&mut sender, "GET", &format!("{PATH}?limit=500"), "").await?,
                    _ => send(&mut sender, "GET", &format!("{PATH}?resourceVersion=0"), "").await?,
                };
                if code >= 300 {
                    return Err(format!("answer {code}").into());
                }
                times.push(started.elapsed());
            }
            Ok::<_, AnyError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = clients.join_next().await {
        times.extend(done??);
    }
    times.sort();
    report(what, connections, seconds, &times);
    Ok(())
}

#[allow(
    clippy::print_stdout,
    reason = "the figures are what this program is for"
)]
fn report(what: &str, connections: usize, seconds: u64, times: &[Duration]) {
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    let rate = times.len() as u64 / seconds.max(1);
    println!(
        "{what:9} c={connections:<3} {rate:>7}/s  p50 {:?}  p99 {:?}",
        at(50),
        at(99)
    );
}

fn client_config(dir: &Path) -> Result<ClientConfig, AnyError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.crt"))?)?;
    let chain =
        CertificateDer::pem_file_iter(dir.join("admin.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(dir.join("admin.key"))?)?)
}

async fn connect(
    config: &Arc<ClientConfig>,
    address: &str,
) -> Result<http1::SendRequest<Full<Bytes>>, AnyError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(Arc::clone(config))
        .connect(ServerName::try_from("localhost")?, stream)
        .await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    coracle_telemetry::spawn("task of a test", connection);
    Ok(sender)
}

async fn send(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<u16, AnyError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("accept", "application/json");
    let request = request
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let code = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(code)
}
