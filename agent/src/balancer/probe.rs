//! Asks an API server whether it is ready, in the way that the node's own requests take: TLS, with
//! the node's certificate, under the name that clients expect.
//!
//! That a connection can be made says nothing: the kernel makes it for a process that is stopped.
//! The answer to the one in use comes over a connection that is kept; another server has one a
//! question, since of all nodes' connections in reserve it would have little left.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header::CONNECTION, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use super::{address::ServerAddress, connection::Dialer, servers::Answer};

/// By when it has answered.
pub(super) const LIMIT: Duration = Duration::from_secs(3);
/// Of an answer: a line a check.
const BYTES_MOST: usize = 64 * 1024;

/// Asks.
#[derive(Clone)]
pub(super) struct Probe {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Probe {
    pub(super) fn new(tls: ClientConfig, name: ServerName<'static>) -> Self {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(name))
            .enable_http1()
            .wrap_connector(Dialer::new().into_connector());
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .build(https);
        Self { client }
    }

    /// What the server says.
    pub(super) async fn ask(&self, server: &ServerAddress, is_used: bool) -> Answer {
        match tokio::time::timeout(LIMIT, self.answer(server, is_used)).await {
            Ok(answer) => answer,
            Err(_) => Answer::Silence,
        }
    }

    async fn answer(&self, server: &ServerAddress, is_used: bool) -> Answer {
        let Ok(uri) = server.uri(PathAndQuery::from_static("/readyz")) else {
            return Answer::Refusal;
        };
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        if !is_used {
            let close = HeaderValue::from_static("close");
            request.headers_mut().insert(CONNECTION, close);
        }
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Answer::Refusal,
            // It broke off: asked again soon.
            Err(_) => return Answer::Silence,
        };
        let status = response.status();
        // To its end: else the connection cannot be used again.
        let body = Limited::new(response.into_body(), BYTES_MOST).collect();
        match (status, body.await) {
            (StatusCode::OK, Ok(_)) => Answer::Ready,
            (_, Ok(_)) => Answer::NotReady,
            (_, Err(_)) => Answer::Silence,
        }
    }
}
