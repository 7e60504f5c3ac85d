//! A `kube::Client` over HTTPS whose client certificate can change while it is used.

use std::sync::Arc;

use http::{HeaderValue, Uri, header::AUTHORIZATION};
use hyper_util::{client::legacy::Client as HyperClient, rt::TokioExecutor};
use kube::client::{Body, ConfigExt};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use tower::{BoxError, ServiceBuilder};

use super::{Identity, JoinError};
use crate::balancer::{Balancer, Connector, SERVER_NAME};

/// Whom to believe, and as whom to speak.
pub(crate) fn tls(
    ca: &CertificateDer<'static>,
    identity: Option<Arc<Identity>>,
) -> Result<ClientConfig, JoinError> {
    let failed = |error: rustls::Error| JoinError::Tls {
        message: error.to_string(),
    };
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).map_err(failed)?;
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots);
    Ok(match identity {
        Some(identity) => builder.with_client_cert_resolver(identity),
        None => builder.with_no_client_auth(),
    })
}

/// Speaks to whatever server the balancer has; with a bearer token, if there is one.
pub(crate) fn connect(
    balancer: &Balancer,
    tls: ClientConfig,
    bearer: Option<&str>,
) -> Result<kube::Client, JoinError> {
    let failed = |message: String| JoinError::Tls { message };
    let server = Uri::builder()
        .scheme("https")
        .authority(SERVER_NAME.to_string())
        .path_and_query("/")
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(Connector(balancer.clone()));
    let hyper: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new()).build(https);
    let mut config = kube::Config::new(server);
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
