use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::raw::PODS;
use crate::{
    pki::KeyPair,
    testing::{self, Listening},
};

async fn get(listening: &Listening, identity: Option<&KeyPair>, path: &str, token: Option<&str>) -> (u16, Value) {
    let mut roots = RootCertStore::empty();
    roots.add(listening.server.config.pki.ca.chain().unwrap().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        Some(pair) => builder.with_client_auth_cert(pair.chain().unwrap(), pair.key().unwrap()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(listening.address).await.unwrap();
    let name = ServerName::IpAddress(listening.address.ip().into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn certificates_and_tokens_tell_who_asks() {
    let listening = testing::listen(testing::server().await).await;
    let pki = Arc::clone(&listening.server.config.pki);
    assert_eq!(get(&listening, Some(&pki.admin), PODS, None).await.0, 200);
    assert_eq!(get(&listening, None, PODS, None).await.0, 401);
    assert_eq!(get(&listening, None, "/version", None).await.1["minor"], "37");
    assert_eq!(get(&listening, None, PODS, Some("wrong")).await.0, 401);
    let node = pki.issue_client("system:node:n1", "system:nodes").unwrap();
    assert_eq!(get(&listening, Some(&node), "/api/v1/nodes", None).await.0, 200);
    assert_eq!(get(&listening, Some(&node), PODS, None).await.0, 403);
}

#[tokio::test]
async fn server_stops_while_a_watch_is_open() {
    let listening = testing::listen(testing::server().await).await;
    let server = Arc::clone(&listening.server);
    let pki = Arc::clone(&server.config.pki);
    let watching = tokio::spawn(async move {
        let answer = get(&listening, Some(&pki.admin), &format!("{PODS}?watch=true"), None).await;
        drop(listening);
        answer
    });
    // The answer ends when the server lets it end.
    server.shutdown.cancel();
    let (code, _) = tokio::time::timeout(std::time::Duration::from_secs(20), watching).await.unwrap().unwrap();
    assert_eq!(code, 200);
}
