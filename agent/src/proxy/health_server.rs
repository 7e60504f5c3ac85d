//! The sockets at which load balancers ask ([`super::health_checks`]): one a Service, and one for
//! the proxy. Opened and closed by difference; a port that somebody else has is told of once and
//! tried again.
//!
//! Anybody reaches them, so a connection is one question, with a time for it, and there are only so
//! many at once.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use coracle_netfilter::engine::Refusal;
use coracle_relay::{Connections, Slot};
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    News, Sources,
    health_checks::{Answer, HealthChecks, Subject, plan},
    node_ports::NodePortRanges,
    proxy_health::ProxyHealth,
};

/// For ports that somebody else has.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Connections at all ports together: balancers ask every few seconds and leave.
const MOST_CONNECTIONS: usize = 256;
/// For a question and its answer.
const LIMIT: Duration = Duration::from_secs(10);
/// For the head of a question.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// The head of a question: hyper's least.
const BUFFER: usize = 8 * 1024;
/// After a failed accept, such as for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Clone)]
pub(super) struct Facts {
    pub(super) checks: watch::Receiver<HealthChecks>,
    pub(super) health: ProxyHealth,
    pub(super) sources: Sources,
    pub(super) node_port_ranges: NodePortRanges,
}

impl Facts {
    /// Whether it is said at an address: Services' ports are where their node ports are. One socket
    /// for all addresses needs no care as they come and go.
    fn are_told_at(&self, subject: &Subject, address: IpAddr) -> bool {
        *subject == Subject::Proxy || self.node_port_ranges.choose(address)
    }

    fn answer(&self, subject: &Subject, path: &str) -> Response<Full<Bytes>> {
        let answer = match subject {
            Subject::Proxy => Answer::of_proxy(path, &self.health, self.sources.is_node_eligible()),
            Subject::Service(key) => {
                // One that is no more has no endpoints, until its socket is closed.
                let known = self.checks.borrow().get(key).map(|one| one.local_endpoints);
                let count = known.unwrap_or_default();
                Some(Answer::of_service(key, count, self.health.is_healthy()))
            }
        };
        let Some(answer) = answer else {
            let mut response = Response::new(Full::new(Bytes::from("404 page not found\n")));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let mut response = Response::new(Full::new(Bytes::from(answer.body.to_string())));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        response
    }
}

/// See the module.
pub(super) struct HealthServer {
    facts: Facts,
    /// The proxy's own port.
    healthz: Option<u16>,
    news: Option<mpsc::Sender<News>>,
    connections: Arc<Connections>,
    sockets: BTreeMap<Subject, Socket>,
    /// Ports that somebody else has, as was told.
    told: BTreeMap<Subject, u16>,
}

/// An open port.
struct Socket {
    port: u16,
    /// Ends with it.
    tasks: JoinSet<()>,
}

impl HealthServer {
    pub(super) fn new(
        facts: Facts,
        healthz: Option<u16>,
        news: Option<mpsc::Sender<News>>,
    ) -> Self {
        Self {
            facts,
            healthz,
            news,
            connections: Connections::new(MOST_CONNECTIONS),
            sockets: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Runs until nobody says any more what to check.
    pub(super) async fn run(mut self) {
        let mut retry = Backoff::of(RETRY);
        loop {
            let checks = self.facts.checks.borrow_and_update().clone();
            let pause = if self.sync(&checks).await {
                retry.reset();
                None
            } else {
                Some(retry.pause())
            };
            tokio::select! {
                changed = self.facts.checks.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Opens and closes what differs; whether all is as it should be.
    async fn sync(&mut self, checks: &HealthChecks) -> bool {
        let sockets = self.sockets.iter();
        let open = sockets.map(|(subject, socket)| (subject.clone(), socket.port));
        let plan = plan(&open.collect(), self.healthz, checks);
        for subject in plan.close {
            if let Some(mut socket) = self.sockets.remove(&subject) {
                // Another Service may have this port now.
                socket.tasks.shutdown().await;
            }
        }
        self.told
            .retain(|subject, port| plan.open.iter().any(|(s, p)| (s, p) == (subject, &*port)));
        let mut all = true;
        for (subject, port) in plan.open {
            match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
                Ok(listener) => {
                    self.told.remove(&subject);
                    let tasks = self.serve(listener, subject.clone());
                    self.sockets.insert(subject, Socket { port, tasks });
                }
                Err(error) => {
                    all = false;
                    self.tell(subject, port, checks, &error);
                }
            }
        }
        all
    }

    fn serve(&self, listener: TcpListener, subject: Subject) -> JoinSet<()> {
        let (facts, connections) = (self.facts.clone(), Arc::clone(&self.connections));
        let (asked, known) = (subject.clone(), facts.clone());
        let is_open_at = move |address| known.are_told_at(&asked, address);
        let answer = move |path: &str| facts.answer(&subject, path);
        let mut tasks = JoinSet::new();
        coracle_telemetry::spawn_in(
            &mut tasks,
            "answer load balancers",
            accept(listener, connections, is_open_at, answer),
        );
        tasks
    }

    /// Of a port that cannot be opened, once.
    fn tell(&mut self, subject: Subject, port: u16, checks: &HealthChecks, error: &io::Error) {
        if self.told.insert(subject.clone(), port) == Some(port) {
            return;
        }
        tracing::warn!(?subject, port, error = %ErrorChain(error), "cannot listen for load balancers' health checks; trying again");
        let Subject::Service(service) = subject else {
            return;
        };
        let refusal = Refusal {
            uid: checks.get(&service).and_then(|check| check.uid.clone()),
            service,
            why: error.to_string(),
        };
        if let Some(news) = &self.news {
            // What finds no room is in the log.
            let _ = news.try_send(News::HealthCheckFailed { refusal, port });
        }
    }
}

/// Answers all who come to an address where it is open, until it is dropped with them.
async fn accept<A>(
    listener: TcpListener,
    connections: Arc<Connections>,
    is_open_at: impl Fn(IpAddr) -> bool,
    answer: A,
) where
    A: Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = open.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if !stream.local_addr().is_ok_and(|at| is_open_at(at.ip())) {
                    continue;
                }
                let Some(slot) = connections.admit(peer.ip()) else {
                    continue;
                };
                coracle_telemetry::spawn_in(
                    &mut open,
                    "answer a load balancer",
                    speak(stream, slot, answer.clone()),
                );
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot accept a load balancer's connection");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

/// One question of one who has a place until then.
async fn speak<A>(stream: TcpStream, slot: Slot, answer: A)
where
    A: Fn(&str) -> Response<Full<Bytes>> + Send + Sync + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(BUFFER)
        .keep_alive(false);
    let speaking = timeout(
        LIMIT,
        builder.serve_connection(TokioIo::new(stream), service),
    );
    // Whoever hangs up early has no answer.
    let _ = slot.leave().run_until_cancelled(speaking).await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn ask(address: SocketAddr, question: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(question).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is reset is closed as well.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_one_question_and_has_a_time_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = |path: &str| Response::new(Full::new(Bytes::from(format!("path {path}"))));
        let mut tasks = JoinSet::new();
        coracle_telemetry::spawn_in(
            &mut tasks,
            "task of a test",
            accept(listener, Connections::new(4), |_| true, answer),
        );
        let answered = ask(address, b"GET /a HTTP/1.1\r\nHost: node\r\n\r\n").await;
        assert!(answered.ends_with("path /a"), "{answered}");
        // The next one on the same connection is not heard.
        let two = b"GET /a HTTP/1.1\r\nHost: n\r\n\r\nGET /b HTTP/1.1\r\nHost: n\r\n\r\n";
        let answered = ask(address, two).await;
        assert!(answered.ends_with("path /a"), "{answered}");
        // Who does not come to the end of a question is sent away.
        for question in [&b""[..], b"GET", b"GET / HTTP/1.1\r\n"] {
            let answered = ask(address, question).await;
            assert!(!answered.contains("path"), "{answered}");
        }
        tasks.shutdown().await;
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn nobody_is_heard_where_it_is_not_open() {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let chosen = IpAddr::from([127, 0, 0, 2]);
        let answer = |_: &str| Response::new(Full::new(Bytes::from("here")));
        let accepting = accept(
            listener,
            Connections::new(4),
            move |at| at == chosen,
            answer,
        );
        let mut tasks = JoinSet::new();
        coracle_telemetry::spawn_in(&mut tasks, "task of a test", accepting);
        let question = b"GET / HTTP/1.1\r\nHost: node\r\n\r\n";
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        // It may be closed by now.
        let _ = stream.write_all(question).await;
        let mut answered = Vec::new();
        let _ = stream.read_to_end(&mut answered).await;
        assert!(answered.is_empty(), "{answered:?}");
        let answered = ask((chosen, port).into(), question).await;
        assert!(answered.ends_with("here"), "{answered}");
    }
}
