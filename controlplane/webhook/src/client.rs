//! The connections to one webhook.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Full;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_rustls::TlsConnector;

use crate::{
    answer::{self, Unread},
    config::{ClientConfig, Target},
    connection::{Connection, Sent},
    dial::{Dialer, Io},
    error::{CallError, ExchangeError, SetupError},
    lookup::Lookup,
};

/// Calls to one webhook at the same time; the others wait, and their deadlines do not. Half of what
/// a server has of places for writes.
const MOST_CALLS: usize = 100;
/// Connections that are kept for the next call.
const MOST_IDLE: usize = 32;
/// How long they are kept, as in Go's client.
const IDLE: Duration = Duration::from_secs(90);
/// How long a connection has to be ready for the next call. One that answers before it has read all
/// that it was sent may never be, and its answer is one all the same.
const READY: Duration = Duration::from_millis(50);
const USER_AGENT: &str = "kube-apiserver-admission";
const HTTPS: u16 = 443;

/// One webhook: where it is, how to speak there, and what is open.
pub(crate) struct Client {
    target: Target,
    /// As the URL has it, with its port if that was written.
    host: String,
    address: (String, u16),
    lookup: Lookup,
    server_name: ServerName<'static>,
    path: String,
    authorization: Option<HeaderValue>,
    tls: TlsConnector,
    places: Semaphore,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Client {
    /// Blocks where it reads the machine's authorities.
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, SetupError> {
        let (host, address, path) = match &config.target {
            Target::Service(service) => {
                let name = format!("{}.{}.svc", service.name, service.namespace);
                let host = format!("{name}:{}", service.port);
                (host, (name, service.port), service.path.clone())
            }
            Target::Url(url) => of_url(url).ok_or_else(|| SetupError::Url { url: url.clone() })?,
        };
        let name = address.0.trim_matches(['[', ']']).to_owned();
        let server_name = ServerName::try_from(name.clone());
        let server_name = server_name.map_err(|_| SetupError::Url { url: name })?;
        let tls = crate::tls::config(&config.ca_bundle, &config.credentials)?;
        Ok(Self {
            target: config.target.clone(),
            host,
            address,
            lookup: Lookup::new(),
            server_name,
            path: joined(&path),
            authorization: authorization(&config.credentials.authorization)?,
            tls: TlsConnector::from(Arc::new(tls)),
            places: Semaphore::new(MOST_CALLS),
            idle: Mutex::default(),
        })
    }

    /// Posts `body` and takes the answer, all of it within `timeout`, which the webhook is told.
    pub(crate) async fn post(
        &self,
        dialer: &dyn Dialer,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let asked = format!(
            "{}?timeout={}s",
            self.path,
            timeout.as_millis().div_ceil(1000)
        );
        let exchange = |why| CallError::Exchange {
            url: format!("https://{}{asked}", self.host),
            why,
        };
        let answered = tokio::time::timeout(timeout, self.exchange(dialer, &asked, body)).await;
        let answered = answered.map_err(|_| exchange(ExchangeError::Deadline))?;
        answered.map_err(|unread| match unread {
            Unread::Exchange(why) => exchange(why),
            Unread::Answered(error) => error,
        })
    }

    /// Forgets what has been idle for long.
    pub(crate) fn sweep(&self, now: Instant) {
        let kept = |(connection, since): &(Connection, Instant)| {
            connection.is_open() && now.saturating_duration_since(*since) < IDLE
        };
        self.idle.lock().retain(kept);
    }

    async fn exchange(
        &self,
        dialer: &dyn Dialer,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, Unread> {
        // Never closed.
        let _place = self.places.acquire().await;
        let mut request = self.request(path, body);
        loop {
            let idle = self.take();
            let is_new = idle.is_none();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect(dialer).await.map_err(Unread::Exchange)?,
            };
            let response = match connection.send(request).await {
                Sent::Answered(response) => response,
                Sent::Unsent(again) if !is_new => {
                    request = again;
                    continue;
                }
                Sent::Unsent(_) => return Err(Unread::Exchange(ExchangeError::Gone)),
                Sent::Failed(why) => return Err(Unread::Exchange(why)),
            };
            let answer = answer::read(response).await;
            let is_whole = !matches!(answer, Err(Unread::Exchange(_)));
            if is_whole {
                let is_ready = tokio::time::timeout(READY, connection.is_ready()).await;
                if is_ready.unwrap_or(false) {
                    self.keep(connection);
                }
            }
            return answer;
        }
    }

    fn request(&self, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        // What makes no path is sent as the root, and answered from there.
        *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        let headers = request.headers_mut();
        if let Ok(host) = self.host.parse() {
            headers.insert(header::HOST, host);
        }
        for (name, value) in [
            (header::ACCEPT, "application/json, */*"),
            (header::CONTENT_TYPE, "application/json"),
            (header::USER_AGENT, USER_AGENT),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        request
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        loop {
            // The last that came is the most likely to be there.
            let (connection, since) = idle.pop()?;
            if connection.is_open() && since.elapsed() < IDLE {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    async fn connect(&self, dialer: &dyn Dialer) -> Result<Connection, ExchangeError> {
        let stream: Box<dyn Io> = match &self.target {
            Target::Service(service) => dialer.dial(service).await.map_err(ExchangeError::Dial)?,
            Target::Url(_) => {
                let (host, port) = &self.address;
                let failed = |source| ExchangeError::Connect {
                    address: format!("{host}:{port}"),
                    source,
                };
                let host = host.trim_matches(['[', ']']);
                let found = self.lookup.addresses(host, *port).await.map_err(failed)?;
                let stream = TcpStream::connect(&*found).await.map_err(failed)?;
                let _ = stream.set_nodelay(true);
                Box::new(stream)
            }
        };
        let encrypted = self.tls.connect(self.server_name.clone(), stream).await;
        Connection::begin(Box::new(encrypted.map_err(ExchangeError::Tls)?)).await
    }
}

/// The header that is not to be in anybody's log.
fn authorization(value: &str) -> Result<Option<HeaderValue>, SetupError> {
    if value.is_empty() {
        return Ok(None);
    }
    let what = "authorization";
    let value = HeaderValue::from_str(value).map_err(|_| SetupError::Credentials { what });
    value.map(|mut value| {
        value.set_sensitive(true);
        Some(value)
    })
}

/// Host as it is written, host and port, path.
fn of_url(url: &str) -> Option<(String, (String, u16), String)> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri
        .authority()
        .filter(|_| uri.scheme_str() == Some("https"))?;
    let host = authority
        .as_str()
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, host)| host);
    // A port that is none is not the usual one: somebody else may listen there.
    let port = match host.strip_prefix(authority.host())? {
        "" | ":" => HTTPS,
        port => port.strip_prefix(':')?.parse().ok()?,
    };
    let address = (authority.host().to_owned(), port);
    Some((host.to_owned(), address, uri.path().to_owned()))
}

/// A path with one slash between its steps and none at its end, as Go joins it.
fn joined(path: &str) -> String {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    format!("/{}", steps.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let of = |url: &str| of_url(url).map(|(host, (name, port), path)| (host, name, port, path));
        let all = |host: &str, name: &str, port, path: &str| {
            Some((host.to_owned(), name.to_owned(), port, path.to_owned()))
        };
        assert_eq!(of("https://a.b/c"), all("a.b", "a.b", 443, "/c"));
        assert_eq!(of("https://a:8443"), all("a:8443", "a", 8443, "/"));
        assert_eq!(of("https://[::1]:1/x"), all("[::1]:1", "[::1]", 1, "/x"));
        assert_eq!(of("https://a:/x"), all("a:", "a", 443, "/x"));
        assert_eq!(of("https://a:99999/x"), None);
        assert_eq!(of("http://a"), None);
        assert_eq!(of("a b"), None);
    }

    #[test]
    fn paths_are_joined_as_in_go() {
        for (path, expect) in [("", "/"), ("/", "/"), ("/a/", "/a"), ("a//b", "/a/b")] {
            assert_eq!(joined(path), expect);
        }
    }
}
