//! The way from a node to the API servers, of which there may be several: one is used, and when it
//! fails, the next.
//!
//! ```text
//!  clients of the agent --Connector--.                       .--> server in use
//!                                     >-- Balancer::connect -+
//!  others on the node --127.0.0.1:6444'        |             '--> (the next, if that fails)
//!                                              v
//!        --server, servers.json, Endpoints --> Servers (pure) <-- keeper: questions and answers
//! ```
//! Below TLS: certificates stay those of the servers, under the name [`SERVER_NAME`] that each of
//! them has. The agent's own clients are given their connection without a way through the port, so
//! that they pay nothing for it and nobody else on the node can take their places.
//!
//! Not here: a choice for each request. What one server has answered the next may not know yet, so
//! all that a node asks goes to one.
//!
//! Source: `pkg/agent/loadbalancer` and `pkg/agent/tunnel` of k3s.

mod address;
mod connection;
mod endpoints;
mod keeper;
mod known;
mod port;
mod probe;
mod servers;

pub(crate) use self::{
    address::ServerAddress, connection::ToServer, endpoints::Endpoints, keeper::Keeper,
    known::load as load_known, port::Port,
};

use std::{collections::BTreeMap, fmt, pin::Pin, sync::Arc, task, time::Duration};

/// Whatever address a server is reached at.
pub(crate) use coracle_trust::API_SERVER_NAME as SERVER_NAME;
use http::Uri;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    connection::Dialer,
    servers::{Answer, Servers},
};

/// For all servers together.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// No server could be connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("no API server can be reached: {}", Tried(.0))]
    Refused(BTreeMap<ServerAddress, String>),
    #[error("no API server can be reached within {} s", CONNECT_LIMIT.as_secs())]
    Timeout,
}

/// Servers, and why each cannot be reached.
struct Tried<'a>(&'a BTreeMap<ServerAddress, String>);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (server, why)) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { "; " };
            write!(f, "{between}{server}: {why}")?;
        }
        Ok(())
    }
}

/// Connects to the API servers. Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Balancer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    dialer: Dialer,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    servers: Servers,
    /// Cancelled when a server is left: closes the connections to it.
    left: BTreeMap<ServerAddress, CancellationToken>,
}

impl Balancer {
    /// Between the servers that are `given`, and those that are known from before. `None` if none
    /// is given.
    pub(crate) fn new(
        node_name: &str,
        given: &[ServerAddress],
        known: Vec<ServerAddress>,
    ) -> Option<Self> {
        let state = State {
            servers: Servers::new(node_name, given, known, Instant::now())?,
            left: BTreeMap::new(),
        };
        Some(Self(Arc::new(Shared {
            state: Mutex::new(state),
            dialer: Dialer::new(),
            changed: Notify::new(),
        })))
    }

    /// A connection to the server in use, or to the first of the others that can be reached.
    pub(crate) async fn connect(&self) -> Result<ToServer, ConnectError> {
        let tried = tokio::time::timeout(CONNECT_LIMIT, self.try_each());
        tried.await.unwrap_or(Err(ConnectError::Timeout))
    }

    async fn try_each(&self) -> Result<ToServer, ConnectError> {
        let mut tried = BTreeMap::new();
        while let Some(server) = self.next(|one| tried.contains_key(one)) {
            match self.0.dialer.dial(&server).await {
                Ok(stream) => return Ok(ToServer::new(stream, self.reached(&server))),
                Err(why) => {
                    self.unreachable(&server, &why);
                    tried.insert(server, why);
                }
            }
        }
        Err(ConnectError::Refused(tried))
    }

    /// Which server to try after those that are `tried`.
    pub(crate) fn next(&self, tried: impl Fn(&ServerAddress) -> bool) -> Option<ServerAddress> {
        self.0.state.lock().servers.next(tried, Instant::now())
    }

    /// There is a connection to this server; returns what tells when it has to be closed.
    pub(crate) fn reached(&self, server: &ServerAddress) -> CancellationToken {
        self.update("it can be reached", |state, now| {
            state.servers.reached(server, now);
            state.left.entry(server.clone()).or_default().clone()
        })
    }

    /// There is none to be had.
    pub(crate) fn unreachable(&self, server: &ServerAddress, why: &str) {
        self.update(why, |state, now| state.servers.unreachable(server, now));
    }

    fn answered(&self, server: &ServerAddress, answer: Answer) {
        let why = match answer {
            Answer::Ready => "another one is ready",
            Answer::NotReady => "it is not ready",
            Answer::Silence => "it does not answer",
            Answer::Refusal => "no TLS connection to it can be made",
        };
        self.update(why, |state, now| {
            state.servers.answered(server, answer, now)
        });
    }

    fn set_listed(&self, listed: &[ServerAddress]) {
        self.update("it has left the Endpoints", |state, now| {
            state.servers.set_listed(listed, now)
        });
    }

    /// As time goes on.
    fn tick(&self) {
        self.update("it has left the Endpoints", |state, now| {
            state.servers.tick(now)
        });
    }

    /// Those that are to be asked how they are, and whether they are in use.
    fn take_due(&self) -> Vec<(ServerAddress, bool)> {
        self.0.state.lock().servers.take_due(Instant::now())
    }

    /// When there is something to do again.
    fn next_due(&self) -> Option<Instant> {
        self.0.state.lock().servers.next_due(Instant::now())
    }

    /// All servers.
    fn known(&self) -> Vec<ServerAddress> {
        let state = self.0.state.lock();
        state.servers.addresses().cloned().collect()
    }

    /// Returns once something has changed. Cancel-safe.
    async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Changes what is known, closes connections to the servers that are left, and tells where the
    /// node goes on.
    fn update<T>(&self, why: &str, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        let before = state.servers.current().clone();
        let result = change(&mut state, now);
        let State { servers, left } = &mut *state;
        left.retain(|server, left| {
            let is_unwanted = servers.is_unwanted(server, now);
            if is_unwanted {
                left.cancel();
            }
            !is_unwanted
        });
        if *servers.current() != before {
            tracing::info!(from = %before, to = %servers.current(), why, "goes on with another API server");
        }
        drop(state);
        self.0.changed.notify_one();
        result
    }
}

/// [`Balancer::connect`] for hyper's client: whatever URL is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Connector(pub(crate) Balancer);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<ToServer>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Self::Error>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let balancer = self.0.clone();
        Box::pin(async move { balancer.connect().await.map(TokioIo::new) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
