//! Names of others: asked where the node asks, and kept for a while.
//!
//! Several who ask the same at once are answered by one question. Servers are asked one after the
//! other, those first that have answered last time; who asks has an answer within [`DEADLINE`], a
//! stale one if there is no other. An answer counts that is to the question: whatever else comes to
//! its socket is left unread.
//!
//! Source: `plugin/forward` of CoreDNS; RFC 5452 (answers that somebody else has sent).

mod exchange;
mod health;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use hickory_proto::{
    op::ResponseCode,
    rr::{Name, Record, RecordType},
};
use parking_lot::{Mutex, RwLock};
use tokio::time::timeout;

use self::{exchange::ExchangeError, health::Health};
use crate::cache::{Cache, Key};

/// For one question, however many servers are asked.
const DEADLINE: Duration = Duration::from_secs(2);
/// For one server.
const ATTEMPT: Duration = Duration::from_millis(500);
/// Questions at once, of all and of one asker.
const MOST: usize = 1000;
const MOST_EACH: usize = 150;

/// What is asked of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Whole.
    pub name: Name,
    /// Of what.
    pub record_type: RecordType,
    /// Whether signatures are wanted.
    pub dnssec_ok: bool,
}

/// What they have answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// As they say.
    pub code: ResponseCode,
    /// Records that answer.
    pub answers: Vec<Record>,
    /// Records of who says so.
    pub authorities: Vec<Record>,
    /// Records that will be asked for next.
    pub additionals: Vec<Record>,
}

/// Who is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// About every name, in this order.
    pub servers: Vec<SocketAddr>,
    /// About the names below some: the longest counts.
    pub stubs: Vec<(Name, Vec<SocketAddr>)>,
    /// Addresses that lead back here, and are not asked.
    pub own: Vec<IpAddr>,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ForwardError {
    /// The node has nobody to ask.
    #[error(
        "no server is known that could be asked (is there a nameserver in the node's resolv.conf?)"
    )]
    NoServers,
    /// Too much is asked at once.
    #[error("{asker} asks for more than {MOST_EACH} names at once, or all together for {MOST}")]
    TooMany {
        /// Whose question it was.
        asker: IpAddr,
    },
    /// Nobody has answered.
    #[error("none of {servers:?} has answered within {} s", DEADLINE.as_secs())]
    Silent {
        /// Who was asked.
        servers: Vec<SocketAddr>,
        /// The last failure.
        #[source]
        last: Option<Arc<ExchangeError>>,
    },
}

/// Asks others. Clones are one.
#[derive(Clone)]
pub struct Forwarder(Arc<Inner>);

struct Inner {
    settings: RwLock<Settings>,
    cache: Mutex<Cache>,
    health: Mutex<Health>,
    flights: Mutex<Flights>,
}

/// Questions under way.
#[derive(Default)]
struct Flights {
    by_key: HashMap<Key, (Flight, usize)>,
    by_asker: HashMap<IpAddr, usize>,
    waiting: usize,
}

type Flight = Shared<BoxFuture<'static, Result<Arc<Reply>, ForwardError>>>;

/// A place among those who wait for a flight.
struct Place<'a> {
    inner: &'a Inner,
    asker: IpAddr,
    key: &'a Key,
}

impl Settings {
    /// Those that are asked about a name.
    fn servers_for(&self, name: &Name) -> Vec<SocketAddr> {
        let stub = self.stubs.iter().filter(|(end, _)| end.zone_of(name));
        let stub = stub.max_by_key(|(end, _)| end.num_labels());
        let servers = stub.map_or(&self.servers, |(_, servers)| servers);
        let is_other = |server: &&SocketAddr| !self.own.contains(&server.ip());
        servers.iter().filter(is_other).copied().collect()
    }
}

impl Forwarder {
    /// Asks these.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            settings: RwLock::new(settings),
            cache: Mutex::default(),
            health: Mutex::default(),
            flights: Mutex::default(),
        }))
    }

    /// Asks these from now on.
    pub fn set(&self, settings: Settings) {
        *self.0.settings.write() = settings;
    }

    /// An answer, of which `asker` is one of those who want it.
    ///
    /// # Errors
    /// Nobody can be asked, nobody answers, or too much is asked.
    pub async fn resolve(&self, asker: IpAddr, query: &Query) -> Result<Reply, ForwardError> {
        let inner = &*self.0;
        let key = Key::of(query);
        if let Some(reply) = inner.cache.lock().fresh(&key, Instant::now()) {
            return Ok(reply);
        }
        let servers = inner.settings.read().servers_for(&query.name);
        if servers.is_empty() {
            return Err(ForwardError::NoServers);
        }
        let (flight, _place) = self.board(asker, &key, query, servers)?;
        let flown = flight.await;
        let nobody_knows = match &flown {
            Ok(reply) => reply.code == ResponseCode::ServFail,
            Err(_) => true,
        };
        if nobody_knows && let Some(stale) = inner.cache.lock().stale(&key, Instant::now()) {
            return Ok(stale);
        }
        flown.map(|reply| (*reply).clone())
    }

    /// The flight for a question: one that is under way, or a new one.
    fn board<'a>(
        &'a self,
        asker: IpAddr,
        key: &'a Key,
        query: &Query,
        servers: Vec<SocketAddr>,
    ) -> Result<(Flight, Place<'a>), ForwardError> {
        let mut flights = self.0.flights.lock();
        let Flights {
            by_key,
            by_asker,
            waiting,
        } = &mut *flights;
        let own = by_asker.entry(asker).or_default();
        if *waiting >= MOST || *own >= MOST_EACH {
            return Err(ForwardError::TooMany { asker });
        }
        *own += 1;
        *waiting += 1;
        let begin = || {
            let fly = fly(Arc::clone(&self.0), key.clone(), query.clone(), servers);
            (fly.boxed().shared(), 0)
        };
        let (flight, seats) = by_key.entry(key.clone()).or_insert_with(begin);
        *seats += 1;
        let place = Place {
            inner: &self.0,
            asker,
            key,
        };
        Ok((flight.clone(), place))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut flights = self.inner.flights.lock();
        flights.waiting -= 1;
        if let Some(own) = flights.by_asker.get_mut(&self.asker) {
            *own -= 1;
            if *own == 0 {
                flights.by_asker.remove(&self.asker);
            }
        }
        if let Some((_, seats)) = flights.by_key.get_mut(self.key) {
            *seats -= 1;
            if *seats == 0 {
                flights.by_key.remove(self.key);
            }
        }
    }
}

/// Asks one after the other, again and again, until the time is over.
async fn fly(
    inner: Arc<Inner>,
    key: Key,
    query: Query,
    servers: Vec<SocketAddr>,
) -> Result<Arc<Reply>, ForwardError> {
    let (mut last, mut unwilling) = (None, None);
    let ask = async {
        loop {
            let order = inner.health.lock().order(&servers, Instant::now());
            let mut has_waited = false;
            for server in order {
                let exchange = timeout(ATTEMPT, exchange::exchange(server, &query)).await;
                let answered = exchange.unwrap_or(Err(ExchangeError::Silent { server }));
                match answered {
                    Ok((reply, bytes)) => {
                        inner.health.lock().well(server);
                        if !matches!(reply.code, ResponseCode::ServFail | ResponseCode::Refused) {
                            return (reply, bytes);
                        }
                        unwilling = Some(reply);
                    }
                    Err(error) => {
                        has_waited |= matches!(error, ExchangeError::Silent { .. });
                        inner.health.lock().failed(server, Instant::now());
                        last = Some(Arc::new(error));
                    }
                }
            }
            if unwilling.is_some() {
                std::future::pending::<()>().await;
            }
            if !has_waited {
                tokio::time::sleep(ATTEMPT).await;
            }
        }
    };
    let answered = timeout(DEADLINE, ask).await;
    match answered {
        Ok((reply, bytes)) => {
            let reply = Arc::new(reply);
            inner.cache.lock().put(key, &reply, bytes, Instant::now());
            Ok(reply)
        }
        Err(_) => match unwilling {
            Some(reply) => Ok(Arc::new(reply)),
            None => Err(ForwardError::Silent { servers, last }),
        },
    }
}

#[cfg(test)]
mod tests;
