//! Asks the first server for what servers share: one GET over a connection to nobody else.

use std::{sync::Arc, time::Duration};

use coracle_apiserver::joining::{HOST, PATH, PROOF};
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use coracle_trust::{CaHash, Mismatch, PinnedAuthority};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{
    Request, StatusCode, Uri,
    body::Bytes,
    header::{self, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::{JoinError, seal::Keys, token::ServerToken};

/// For one try.
const DEADLINE: Duration = Duration::from_secs(10);
/// A first server that starts at the same time is waited for so long.
const PATIENCE: Duration = Duration::from_secs(15);
/// One that answers and says when to come again is waited for so long: more than the minute for
/// which it looks at no proof after too many wrong ones.
const PATIENCE_IF_PUT_OFF: Duration = Duration::from_secs(150);
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

    fn mismatch(&self, mismatch: Mismatch) -> JoinError {
        let (url, host) = (self.url.clone(), self.host.clone());
        match mismatch {
            Mismatch::Authority => JoinError::WrongAuthority { url },
            Mismatch::Name => JoinError::WrongName { url, host },
            Mismatch::NotApiServer => JoinError::NotApiServer { url },
        }
    }
}

/// How one try failed.
enum Failed {
    /// Another one may do; at the earliest after that time, if the server has named one.
    Again(Source, Option<Duration>),
    /// No other one will.
    ForGood(JoinError),
}

type Source = Box<dyn std::error::Error + Send + Sync>;

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Again(Box::new(error), None)
    }
}

/// What the server answered that it cannot give now.
#[derive(Debug, thiserror::Error)]
#[error("it says: {0}")]
struct NotNow(String);

/// How long tries go on.
struct Patience {
    begun: Instant,
    /// When the server, which may have named the time, was to answer last.
    awaited: Instant,
    retry: Backoff,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self {
            begun: now,
            awaited: now,
            retry: Backoff::of(RETRY),
        }
    }

    /// The pause before the next try; `None` for no more.
    fn pause(&mut self, now: Instant, named: Option<Duration>) -> Option<Duration> {
        let Some(named) = named else {
            return (now < self.awaited + PATIENCE).then(|| self.retry.pause());
        };
        let until = now.checked_add(named)?;
        (until <= self.begun + PATIENCE_IF_PUT_OFF).then(|| {
            self.awaited = until;
            named
        })
    }
}

/// What servers share, sealed. A server that does not answer, or asks for patience, is asked again.
///
/// # Errors
/// One sentence about the server.
pub(super) async fn fetch(
    first: &First,
    token: &ServerToken,
    keys: &Keys,
    host_name: &str,
) -> Result<String, JoinError> {
    let proof = hex::encode(keys.proof()?);
    let hash = token.ca_hash.parse();
    let hash: CaHash = hash.map_err(|_| JoinError::TokenForm)?;
    let (mut told, mut patience) = (false, Patience::new(Instant::now()));
    loop {
        let fetching = tokio::time::timeout(DEADLINE, fetch_once(first, hash, &proof, host_name));
        let (source, named) = match fetching.await {
            Ok(Ok(sealed)) => return Ok(sealed),
            Ok(Err(Failed::ForGood(error))) => return Err(error),
            Ok(Err(Failed::Again(source, named))) => (source, named),
            Err(late) => (Source::from(late), None),
        };
        let Some(pause) = patience.pause(Instant::now(), named) else {
            let url = first.url.clone();
            return Err(match named {
                Some(_) => JoinError::PutOff { url, source },
                None => JoinError::Unreachable { url, source },
            });
        };
        if named.is_some() || !told {
            let (url, secs) = (&first.url, named.map(|named| named.as_secs()));
            tracing::warn!(url, secs, error = %ErrorChain(&*source), "wait for the server to join");
            told = true;
        }
        tokio::time::sleep(pause).await;
    }
}

async fn fetch_once(
    first: &First,
    ca_hash: CaHash,
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
    let mut tls = authority.client()?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connecting = TlsConnector::from(Arc::new(tls)).connect(name, stream);
    let stream = connecting
        .await
        .map_err(|error| match authority.mismatch() {
            Some(mismatch) => Failed::ForGood(first.mismatch(mismatch)),
            None => error.into(),
        })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = request(first, proof, host_name)?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let (status, named) = (response.status(), retry_after(response.headers()));
        let body = Limited::new(response.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| Failed::Again(error, None))?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok::<_, Failed>((status, named, body))
    };
    let mut exchange = std::pin::pin!(exchange);
    let (status, named, body) = tokio::select! {
        answered = &mut exchange => answered?,
        ended = connection => {
            ended?;
            exchange.await?
        }
    };
    judge(status, named, body, first.url.clone())
}

/// The time that an answer names, in seconds: the other form, a date, no API server has.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
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
fn judge(
    status: StatusCode,
    named: Option<Duration>,
    body: String,
    url: String,
) -> Result<String, Failed> {
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
        status => {
            let source = NotNow(format!("{status} {}", message()));
            Failed::Again(Box::new(source), named)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_others_have_asked_too_often_is_asked_again() {
        for (status, again) in [(429, true), (503, true), (400, false), (401, false)] {
            let status = StatusCode::from_u16(status).unwrap();
            let judged = judge(status, None, String::new(), String::new());
            assert_eq!(
                matches!(judged, Err(Failed::Again(_, None))),
                again,
                "{status}"
            );
        }
        let named = Some(Duration::from_secs(60));
        let judged = judge(
            StatusCode::TOO_MANY_REQUESTS,
            named,
            String::new(),
            String::new(),
        );
        assert!(matches!(judged, Err(Failed::Again(_, after)) if after == named));
    }

    #[test]
    fn a_server_is_waited_for_as_long_as_it_says_within_a_bound() {
        let secs = Duration::from_secs;
        let (begun, minute) = (Instant::now(), Some(secs(60)));
        let mut patience = Patience::new(begun);
        assert!(patience.pause(begun + secs(14), None).is_some());
        // Past the time for one that is silent.
        assert_eq!(patience.pause(begun + secs(20), minute), minute);
        // It is silent then: its time begins with the end of the one that it has named.
        assert!(patience.pause(begun + secs(94), None).is_some());
        assert_eq!(patience.pause(begun + secs(96), None), None);
        let mut patience = Patience::new(begun);
        assert_eq!(patience.pause(begun + secs(60), minute), minute);
        assert_eq!(patience.pause(begun + secs(120), minute), None);
        assert_eq!(patience.pause(begun, Some(secs(3600))), None);
        assert_eq!(patience.pause(begun, Some(Duration::MAX)), None);
        let mut patience = Patience::new(begun);
        assert_eq!(patience.pause(begun + secs(15), None), None);
    }

    #[test]
    fn the_time_that_a_server_names_is_read() {
        let of = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, value)]))
        };
        assert_eq!(of("60"), Some(Duration::from_secs(60)));
        assert_eq!(of("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
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
