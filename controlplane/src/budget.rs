//! What a part may ask of the API server at once, and its patience when the server asks for it.
//!
//! A part that makes thousands of objects would otherwise fill the server with its own requests and be told, like
//! everybody else, to come back later: its calls wait here for each other instead. A request that the server has not
//! taken on (429 with `Retry-After`) is sent again after that time, as every client of Kubernetes does. Watches last and
//! do not count.
//!
//! Source: `k8s.io/client-go/rest/{request,with_retry}.go` at v1.37 (ten attempts; the server says how long to wait).

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header, request::Parts};
use kube::{Client, client::Body};
use tokio::sync::Semaphore;

/// How often a request is sent that the server does not take on.
const ATTEMPTS: u32 = 10;
/// Longest wait between two of them, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The calls of one part that may be under way at once.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    calls: Arc<Semaphore>,
}

impl Budget {
    /// At most `calls` at once, over all clients of this budget.
    pub(crate) fn new(calls: usize) -> Self {
        Self { calls: Arc::new(Semaphore::new(calls)) }
    }

    /// `client` within this budget.
    pub(crate) fn client(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        Client::new(Budgeted { client, calls: Arc::clone(&self.calls) }, namespace)
    }
}

#[derive(Clone)]
struct Budgeted {
    client: Client,
    calls: Arc<Semaphore>,
}

impl tower::Service<Request<Body>> for Budgeted {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.send(request).await })
    }
}

impl Budgeted {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        if is_watch(&parts) {
            return self.client.send(Request::from_parts(parts, body)).await;
        }
        let mut body = body;
        for _ in 1..ATTEMPTS {
            // A body that comes as a stream is gone once it is sent.
            let Some(again) = body.try_clone() else { break };
            let answer = self.send_once(&parts, body).await?;
            let Some(wait) = asked_to_wait(&answer) else { return Ok(answer) };
            tracing::debug!(path = parts.uri.path(), ?wait, "the API server is busy, trying again");
            tokio::time::sleep(wait).await;
            body = again;
        }
        self.send_once(&parts, body).await
    }

    /// The permit goes back before any wait: others may go on.
    async fn send_once(&self, parts: &Parts, body: Body) -> kube::Result<Response<Body>> {
        let _permit = self.calls.acquire().await.expect("the semaphore is never closed");
        self.client.send(Request::from_parts(parts.clone(), body)).await
    }
}

fn is_watch(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// How long to wait before the same request, if the server has not taken it on.
fn asked_to_wait(answer: &Response<Body>) -> Option<Duration> {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use futures::future::join_all;

    use super::*;

    /// A server that counts, holds each request for a moment and refuses the first `busy`.
    struct Fake {
        busy: usize,
        retry_after: Option<&'static str>,
        seen: AtomicUsize,
        inside: AtomicUsize,
        most: AtomicUsize,
        bodies: std::sync::Mutex<Vec<String>>,
    }

    fn fake(busy: usize, retry_after: Option<&'static str>) -> (Arc<Fake>, Client) {
        let counts = Default::default;
        let fake = Arc::new(Fake {
            busy,
            retry_after,
            seen: counts(),
            inside: counts(),
            most: counts(),
            bodies: Default::default(),
        });
        let server = Arc::clone(&fake);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        (fake, Client::new(service, "default"))
    }

    impl Fake {
        async fn answer(&self, request: Request<Body>) -> Response<Body> {
            let inside = self.inside.fetch_add(1, SeqCst) + 1;
            self.most.fetch_max(inside, SeqCst);
            let body = request.into_body().collect_bytes().await.unwrap();
            self.bodies.lock().unwrap().push(String::from_utf8(body.to_vec()).unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.inside.fetch_sub(1, SeqCst);
            let mut answer = Response::builder();
            if self.seen.fetch_add(1, SeqCst) < self.busy {
                answer = answer.status(StatusCode::TOO_MANY_REQUESTS);
                if let Some(wait) = self.retry_after {
                    answer = answer.header(header::RETRY_AFTER, wait);
                }
            }
            answer.body(Body::empty()).unwrap()
        }
    }

    async fn status(client: &Client, path: &str) -> u16 {
        let request = Request::post(path).body(Body::from(b"content".to_vec())).unwrap();
        client.send(request).await.unwrap().status().as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_calls_are_under_way_than_the_budget_allows() {
        let (server, client) = fake(0, None);
        let budget = Budget::new(3);
        let clients = [budget.client(client.clone()), budget.client(client)];
        join_all((0..20).map(|k| status(&clients[k % 2], "/api/v1/pods"))).await;
        assert_eq!((server.seen.load(SeqCst), server.most.load(SeqCst)), (20, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn watches_do_not_count() {
        let (server, client) = fake(0, None);
        let client = Budget::new(1).client(client);
        join_all((0..5).map(|_| status(&client, "/api/v1/pods?resourceVersion=0&watch=true"))).await;
        assert_eq!(server.most.load(SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_busy_server_did_not_take_on_is_sent_again_when_it_says() {
        let (server, client) = fake(2, Some("3"));
        let client = Budget::new(1).client(client);
        let start = tokio::time::Instant::now();
        assert_eq!(status(&client, "/api/v1/pods").await, 200);
        assert_eq!(start.elapsed().as_secs(), 6);
        assert_eq!(*server.bodies.lock().unwrap(), ["content"; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        for (retry_after, sent) in [(Some("1"), 10), (None, 1)] {
            let (server, client) = fake(usize::MAX, retry_after);
            assert_eq!(status(&Budget::new(1).client(client), "/api/v1/pods").await, 429);
            assert_eq!(server.seen.load(SeqCst), sent, "{retry_after:?}");
        }
    }
}
