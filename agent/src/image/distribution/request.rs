//! One request to a registry and its answer.

use std::{str::FromStr, time::Duration};

use http::{StatusCode, header};
use reqwest::{Certificate, RequestBuilder, Response, Url, redirect};

use super::{
    super::{
        error::{RegistryError, Said},
        registries::Tls,
    },
    guard::Guard,
    retry::retry_after,
};

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// For one request: a document as a whole, or the beginning of a blob.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Of an error's body, for people.
const REASON_MAX: u64 = 4 << 10;

/// Trusts whom the node trusts, and follows nobody by itself.
pub(super) fn client(
    tls: &Tls,
    base: &Url,
    guard: Guard,
) -> Result<reqwest::Client, RegistryError> {
    // Absent where the library is used without the program.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let mut extra = Vec::new();
    if let Some(path) = &tls.ca_file {
        let data = std::fs::read(path).map_err(|source| RegistryError::CaFile {
            path: path.clone(),
            source,
        })?;
        extra =
            Certificate::from_pem_bundle(&data).map_err(|source| RegistryError::Certificates {
                path: path.clone(),
                source,
            })?;
    }
    let builder = || {
        reqwest::Client::builder()
            .user_agent(concat!("coracle/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_DEADLINE)
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(tls.insecure_skip_verify)
            .dns_resolver(guard.clone())
    };
    let client = match builder().tls_certs_merge(extra.clone()).build() {
        // A machine without any trusted roots can still ask the registries whose authority it is
        // told, or without TLS.
        Err(_) if base.scheme() == "http" || !extra.is_empty() => {
            builder().tls_certs_only(extra).build()
        }
        client => client,
    };
    client.map_err(|source| RegistryError::Client {
        host: host(base).to_owned(),
        source,
    })
}

/// One request gets so long.
pub(super) async fn in_time<T>(
    work: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, RegistryError> {
    match tokio::time::timeout(REQUEST_DEADLINE, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(RegistryError::Deadline(REQUEST_DEADLINE)),
    }
}

pub(super) async fn send(request: RequestBuilder, url: &Url) -> Result<Response, RegistryError> {
    let sent = request.send().await;
    sent.map_err(|error| RegistryError::of_request(host(url), error))
}

/// Whom the URL is of.
pub(super) fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

pub(super) fn not_an_address(
    what: &'static str,
    address: &str,
) -> impl FnOnce(<Url as FromStr>::Err) -> RegistryError {
    let address = address.to_owned();
    move |source| RegistryError::Address {
        what,
        address,
        source,
    }
}

/// Where the answer sends the node.
pub(super) fn location(response: &Response) -> Option<String> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let value = response
        .headers()
        .get(header::LOCATION)
        .filter(|_| redirects)?;
    value.to_str().ok().map(str::to_owned)
}

/// The whole body, or an error once it is longer than `limit`.
pub(super) async fn body(mut response: Response, limit: u64) -> Result<Vec<u8>, RegistryError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        let broke = |error| RegistryError::of_request(host(response.url()), error);
        let Some(chunk) = chunk.map_err(broke)? else {
            return Ok(bytes);
        };
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > limit {
            return Err(RegistryError::TooLong(limit));
        }
    }
}

/// Why a registry said no to `what`: its own words, as far as it has any.
pub(super) async fn refusal(response: Response, what: String) -> RegistryError {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    let bytes = body(response, REASON_MAX).await.unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let words = answer["errors"][0]["message"].as_str();
    let said = Said(words.filter(|words| !words.is_empty()).map(str::to_owned));
    match status {
        StatusCode::NOT_FOUND => RegistryError::NotFound { what, said },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Denied { said },
        StatusCode::TOO_MANY_REQUESTS => RegistryError::TooManyRequests { retry_after, said },
        _ if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            RegistryError::Unwell {
                status,
                retry_after,
                said,
            }
        }
        _ => RegistryError::Status { status, said },
    }
}
