//! Somebody between the server that joins and the first one.

use coracle_apiserver::pki::{Pki, ServerNames};

use super::*;

/// A server of somebody who has a certificate of his own making, and shows the cluster's authority
/// beside it.
#[tokio::test(flavor = "multi_thread")]
async fn one_in_the_middle_is_told_nothing() {
    let [genuine, other] = [(); 2].map(|()| Pki::ephemeral(&ServerNames::default()).unwrap());
    let mut chain = other.server.chain().unwrap();
    chain.insert(1, genuine.ca.chain().unwrap().remove(0));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, other.server.key().unwrap())
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let middle = coracle_telemetry::spawn("the one in the middle", async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        if let Ok(mut stream) = acceptor.accept(stream).await {
            // It may break off.
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut heard).await;
        }
        heard
    });
    let dir = tempfile::tempdir().unwrap();
    let hash = genuine.ca_hash().unwrap();
    let token = format!("K10{hash}::server:0123456789abcdef");
    let said = refused_by(bare(&dir.path().join("new")), &joining(&url, &token)).await;
    assert!(
        said.contains("does not have the certificate authority"),
        "{said}"
    );
    assert_eq!(middle.await.unwrap(), b"");
}
