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

async fn get(
    listening: &Listening,
    identity: Option<&KeyPair>,
    path: &str,
    token: Option<&str>,
) -> (u16, Value) {
    try_get(listening, identity, path, token).await.unwrap()
}

async fn try_get(
    listening: &Listening,
    identity: Option<&KeyPair>,
    path: &str,
    token: Option<&str>,
) -> Result<(u16, Value), Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    roots.add(listening.server.state.config.pki.ca.chain()?.remove(0))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match identity {
        Some(pair) => builder.with_client_auth_cert(pair.chain()?, pair.key()?)?,
        None => builder.with_no_client_auth(),
    };
    let stream = TcpStream::connect(listening.address).await?;
    let name = ServerName::IpAddress(listening.address.ip().into());
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    coracle_telemetry::spawn("task of a test", connection);
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = sender
        .send_request(request.body(Full::new(Bytes::new()))?)
        .await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
}

#[tokio::test]
async fn certificates_and_tokens_tell_who_asks() {
    let listening = testing::listen(testing::server().await).await;
    let pki = Arc::clone(&listening.server.state.config.pki);
    assert_eq!(get(&listening, Some(&pki.admin), PODS, None).await.0, 200);
    assert_eq!(get(&listening, None, PODS, None).await.0, 401);
    assert_eq!(
        get(&listening, None, "/version", None).await.1["minor"],
        "37"
    );
    assert_eq!(get(&listening, None, PODS, Some("wrong")).await.0, 401);
    let node = pki.issue_client("system:node:n1", "system:nodes").unwrap();
    assert_eq!(
        get(&listening, Some(&node), "/api/v1/nodes", None).await.0,
        200
    );
    assert_eq!(get(&listening, Some(&node), PODS, None).await.0, 403);
}

#[tokio::test]
async fn what_is_shown_to_nodes_opens_nothing_here() {
    let listening = testing::listen(testing::server().await).await;
    let pki = Arc::clone(&listening.server.state.config.pki);
    for path in [
        PODS,
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/nodes",
    ] {
        let (code, answer) = get(&listening, Some(&pki.old_kubelet_client), path, None).await;
        assert_eq!(code, 403, "{answer}");
        let said = answer["message"].as_str().unwrap();
        assert!(
            said.contains("User \"kube-apiserver-kubelet-client\" cannot list"),
            "{said}"
        );
    }
    // Of the nodes' authority: nobody whom this server knows. The handshake ends, at the latest
    // with the first answer.
    let answer = try_get(&listening, Some(&pki.kubelet_client), PODS, None).await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn an_expired_certificate_is_nobodys_on_an_open_connection() {
    let server = testing::server().await;
    let holder = |year: i32| {
        let mut params = rcgen::CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "alice");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params
            .self_signed(&rcgen::KeyPair::generate().unwrap())
            .unwrap();
        coracle_auth::authn::x509::Holder::of(certificate.der()).unwrap()
    };
    let headers = http::HeaderMap::new();
    let user = server
        .state
        .authenticator
        .credentials(Some(&holder(2900)), &headers, async { Ok(()) })
        .await
        .unwrap();
    assert_eq!(user.name, "alice");
    let expired = server
        .state
        .authenticator
        .credentials(Some(&holder(2020)), &headers, async { Ok(()) })
        .await;
    assert_eq!(expired.unwrap_err().code, 401);
}

#[tokio::test]
async fn a_server_that_cannot_verify_clients_does_not_start() {
    let mut pki = crate::pki::Pki::ephemeral(&crate::pki::ServerNames::default()).unwrap();
    pki.ca.cert_pem.clear();
    let config = crate::ApiServerConfig::new(
        Arc::new(pki),
        testing::SERVICE_CIDR.parse().unwrap(),
        std::net::SocketAddr::from(([198, 18, 0, 1], 6443)),
    );
    let server = crate::ApiServer::new(
        config,
        Arc::new(coracle_store::memory::MemoryBackend::new()),
    )
    .await
    .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ended = server
        .serve(listener, tokio_util::sync::CancellationToken::new())
        .await;
    assert!(
        matches!(ended, Err(crate::ApiServerError::VerifyClients(_))),
        "{ended:?}"
    );
}

#[tokio::test]
async fn server_stops_while_a_watch_is_open() {
    let listening = testing::listen(testing::server().await).await;
    let server = Arc::clone(&listening.server);
    let pki = Arc::clone(&server.state.config.pki);
    let watching = coracle_telemetry::spawn("task of a test", async move {
        let answer = get(
            &listening,
            Some(&pki.admin),
            &format!("{PODS}?watch=true"),
            None,
        )
        .await;
        drop(listening);
        answer
    });
    // The answer ends when the server lets it end.
    server.state.shutdown.cancel();
    let (code, _) = tokio::time::timeout(std::time::Duration::from_secs(20), watching)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(code, 200);
}
