//! Asks the first server for what servers share: one GET over a connection to nobody else.

use std::{sync::Arc, time::Duration};

use coracle_apiserver::joining::{HOST, PATH, PROOF};
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, StatusCode, Uri,
    body::Bytes,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::{
    JoinError,
    pinned::{Mismatch, PinnedAuthority},
    seal::Keys,
};

/// For one try.
const DEADLINE: Duration = Duration::from_secs(10);
/// A first server that starts at the same time is waited for so long.
const PATIENCE: Duration = Duration::from_secs(15);
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(5));
/// What is shared takes some 10 KB.
const LIMIT: usize = 1 << 20;
const PORT: u16 = 6443;

/// The server that is asked.
#[derive(Debug)]
pub(super) struct First {
    /// As given.
    pub(super) url: String,
    host: String,
    port: u16,
}

impl First {
    /// `https://HOST[:PORT]`.
    ///
    /// # Errors
    /// [`JoinError::Url`].
    pub(super) fn parse(url: &str) -> Result<Self, JoinError> {
        let wrong = || JoinError::Url {
            url: url.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().map(|host| host.trim_matches(['[', ']']));
        match (uri.scheme_str(), host) {
            (Some("https"), Some(host))
                if !host.is_empty() && matches!(uri.path(), "" | "/") && uri.query().is_none() =>
            {
                Ok(Self {
                    url: url.to_owned(),
                    host: host.to_owned(),
                    port: uri.port_u16().unwrap_or(PORT),
                })
            }
            _ => Err(wrong()),
        }
    }
}

/// How one try ended.
enum Failed {
    /// Another one may do.
    Again(Box<dyn std::error::Error + Send + Sync>),
    /// No other one will.
    ForGood(JoinError),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Again(Box::new(error))
    }
}

/// What the server answered that it cannot give now.
#[derive(Debug, thiserror::Error)]
#[error("it says: {0}")]
struct NotNow(String);

/// What servers share, sealed.
///
/// # Errors
/// One sentence about the server.
pub(super) async fn ask(
    first: &First,
    ca_hash: &str,
    keys: &Keys,
    host_name: &str,
) -> Result<String, JoinError> {
    let proof = keys.proof().map_err(|_| JoinError::Died)?;
    let proof = hex::encode(proof);
    let end = Instant::now() + PATIENCE;
    let (mut told, mut retry) = (false, Backoff::of(RETRY));
    loop {
        let asked = tokio::time::timeout(DEADLINE, try_once(first, ca_hash, &proof, host_name));
        let source: Box<dyn std::error::Error + Send + Sync> = match asked.await {
            Ok(Ok(sealed)) => return Ok(sealed),
            Ok(Err(Failed::ForGood(error))) => return Err(error),
            Ok(Err(Failed::Again(source))) => source,
            Err(late) => Box::new(late),
        };
        if Instant::now() >= end {
            let url = first.url.clone();
            return Err(JoinError::Unreachable { url, source });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(url = first.url, error = %ErrorChain(&*source), "wait for the server to join");
        }
        tokio::time::sleep(retry.pause()).await;
    }
}

async fn try_once(
    first: &First,
    ca_hash: &str,
    proof: &str,
    host_name: &str,
) -> Result<String, Failed> {
    let name = ServerName::try_from(first.host.clone()).map_err(|_| {
        Failed::ForGood(JoinError::Url {
            url: first.url.clone(),
        })
    })?;
    let stream = TcpStream::connect((first.host.as_str(), first.port)).await?;
    let authority = PinnedAuthority::new(ca_hash);
    let connector = TlsConnector::from(Arc::new(authority.client()?));
    let stream = connector.connect(name, stream).await;
    let url = first.url.clone();
    let stream = match (stream, authority.mismatch()) {
        (Ok(stream), _) => stream,
        (Err(_), Some(Mismatch::Authority)) => {
            return Err(Failed::ForGood(JoinError::WrongAuthority { url }));
        }
        (Err(_), Some(Mismatch::Name)) => {
            let host = first.host.clone();
            return Err(Failed::ForGood(JoinError::WrongName { url, host }));
        }
        (Err(error), None) => return Err(error.into()),
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = request(first, proof, host_name)?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(Failed::Again)?.to_bytes();
        Ok::<_, Failed>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let mut exchange = std::pin::pin!(exchange);
    let (status, body) = tokio::select! {
        answered = &mut exchange => answered?,
        ended = connection => {
            ended?;
            exchange.await?
        }
    };
    judge(status, body, url)
}

fn request(
    first: &First,
    proof: &str,
    host_name: &str,
) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
    let mut proof = HeaderValue::from_str(proof)?;
    proof.set_sensitive(true);
    let mut request = Request::get(PATH)
        .header(header::HOST, format!("{}:{}", first.host, first.port))
        .header(PROOF, proof);
    if let Ok(host_name) = HeaderValue::from_str(host_name) {
        request = request.header(HOST, host_name);
    }
    request.body(Empty::new())
}

/// What an answer means.
fn judge(status: StatusCode, body: String, url: String) -> Result<String, Failed> {
    let message = || {
        let status: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or_default();
        message.to_owned()
    };
    Err(match status {
        StatusCode::OK => return Ok(body),
        StatusCode::UNAUTHORIZED => Failed::ForGood(JoinError::Refused { url }),
        StatusCode::BAD_REQUEST => {
            let why = message();
            Failed::ForGood(JoinError::Declined { url, why })
        }
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            let why = "it is of a release that knows of no joining".to_owned();
            Failed::ForGood(JoinError::Declined { url, why })
        }
        status => Failed::Again(Box::new(NotNow(format!("{status} {}", message())))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_others_have_asked_too_often_is_asked_again() {
        for (status, again) in [(429, true), (503, true), (400, false), (401, false)] {
            let status = StatusCode::from_u16(status).unwrap();
            let judged = judge(status, String::new(), String::new());
            assert_eq!(matches!(judged, Err(Failed::Again(_))), again, "{status}");
        }
    }

    #[test]
    fn the_first_server_is_a_url_of_a_host() {
        for (url, host, port) in [
            ("https://198.18.0.1", "198.18.0.1", 6443),
            ("https://198.18.0.1:7443/", "198.18.0.1", 7443),
            ("https://api.example", "api.example", 6443),
            ("https://[fd00::1]:6443", "fd00::1", 6443),
        ] {
            let first = First::parse(url).unwrap();
            assert_eq!((first.host.as_str(), first.port), (host, port), "{url}");
        }
        for url in [
            "",
            "198.18.0.1",
            "http://198.18.0.1",
            "https://a/b",
            "https://a?b",
            "https://",
        ] {
            let said = First::parse(url).unwrap_err().to_string();
            assert!(said.contains("expected https://ADDRESS"), "{url}: {said}");
        }
    }
}
