//! A `kube::Client` over HTTPS whose client certificate can change while it is used.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::AUTHORIZATION};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::{Body, ConfigExt};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use tower::{BoxError, ServiceBuilder};

use super::{Identity, JoinError};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// What is sent and not acknowledged for so long never arrives: without a limit a request of before
/// a partition waits for the kernel's own patience, minutes after the network is whole again. Also
/// how soon a silent server is noticed.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(15);
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Connects with a certificate, or with a bearer token.
pub(crate) fn connect(
    server: &http::Uri,
    ca: &CertificateDer<'static>,
    identity: Option<Arc<Identity>>,
    bearer: Option<&str>,
) -> Result<kube::Client, JoinError> {
    let failed = |message: String| JoinError::Tls { message };
    let mut roots = RootCertStore::empty();
    roots
        .add(ca.clone())
        .map_err(|error| failed(error.to_string()))?;
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .map_err(|error| failed(error.to_string()))?
    .with_root_certificates(roots);
    let tls = match identity {
        Some(identity) => builder.with_client_cert_resolver(identity),
        None => builder.with_no_client_auth(),
    };
    let mut tcp = HttpConnector::new();
    // Below TLS: it would refuse the scheme that it is asked for.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(tcp);
    let hyper: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new()).build(https);
    let mut config = kube::Config::new(server.clone());
    if let Some(bearer) = bearer {
        let mut value = HeaderValue::from_str(&format!("Bearer {bearer}"))
            .map_err(|error| failed(error.to_string()))?;
        value.set_sensitive(true);
        config.headers.push((AUTHORIZATION, value));
    }
    let headers = config
        .extra_headers_layer()
        .map_err(|error| failed(error.to_string()))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(headers)
        .map_err(BoxError::from)
        .service(hyper);
    Ok(kube::Client::new(service, "default"))
}
