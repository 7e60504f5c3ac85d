//! Questions that others answer: from the cache, or from the servers beyond the cluster.
//!
//! ```text
//! resolve > cache: fresh --------------------------------------------------------------> reply
//!         > a place (150 an asker, 1,000 in all) > one flight a question > the servers > reply
//!                                                  nobody answers > cache: stale ------> reply
//! ```
//!
//! No task of its own: those who wait for a question drive it together, and when the last of them
//! goes away it ends. Not here: the cluster's own names, and messages with ids and sizes for
//! askers.

mod error;
mod exchange;
mod health;
mod places;
pub(crate) mod question;
mod routes;
mod upstream;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::{
    error::{Attempt, AttemptError, ForwardError},
    question::{Query, Reply},
    routes::Settings,
};
use self::{health::Health, places::Places, routes::Routes};
use crate::cache::{Cache, Found};

/// Answers questions by asking others. Cheap to clone: all clones are one.
#[derive(Debug, Clone)]
pub struct Forwarder {
    inner: Arc<Inner>,
}

/// What became of the questions so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub asked: u64,
    /// Answered from the cache, fresh.
    pub cached: u64,
    /// Answered from the cache, stale, for nobody has answered.
    pub stale: u64,
    /// Not answered: there is no server, or none has answered.
    pub failed: u64,
    /// Not answered for too many waited already.
    pub refused: u64,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    health: Mutex<Health>,
    places: Arc<Places>,
    counters: Counters,
}

/// Under one lock, so that a question is in the cache, under way or neither, and never both.
#[derive(Debug)]
struct State {
    routes: Routes,
    cache: Cache,
    /// The questions under way. At most one for each place.
    flights: HashMap<Arc<Query>, Flight>,
    next_flight: u64,
}

#[derive(Debug)]
struct Flight {
    number: u64,
    /// Weak: it belongs to those who wait.
    outcome: WeakShared<BoxFuture<'static, Outcome>>,
}

type Outcome = Result<Told, ForwardError>;

/// What all who wait for a question are told.
#[derive(Debug, Clone)]
struct Told {
    reply: Arc<Reply>,
    stale: bool,
}

#[derive(Debug, Default)]
struct Counters {
    asked: AtomicU64,
    cached: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

// === impl Forwarder ===

impl Forwarder {
    /// Asks nobody yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let state = State {
            routes: Routes::new(settings),
            cache: Cache::new(),
            flights: HashMap::new(),
            next_flight: 0,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                health: Mutex::default(),
                places: Arc::default(),
                counters: Counters::default(),
            }),
        }
    }

    /// Asks others from now on. Where they are others than before, what is remembered is forgotten;
    /// questions under way go on, and their answers are not remembered.
    pub fn set(&self, settings: Settings) {
        let routes = Routes::new(settings);
        let servers = routes.all().collect();
        {
            let mut state = self.inner.state.lock();
            if state.routes == routes {
                return;
            }
            state.routes = routes;
            state.cache.clear();
            state.flights.clear();
        }
        self.inner.health.lock().retain(&servers);
    }

    /// Answers `query`, from the cache or from a server. Takes 2 s at most. Cancel-safe: others who
    /// wait for the same go on.
    ///
    /// A server's failure to find out (SERVFAIL, REFUSED) is a reply like others where all servers
    /// that answered failed so and nothing is remembered.
    ///
    /// # Errors
    /// [`ForwardError::NoServers`]: there is nobody to ask. [`ForwardError::AskerBusy`] and
    /// [`ForwardError::Busy`], at once: too many wait. [`ForwardError::NoAnswer`]: nobody has
    /// answered.
    pub async fn resolve(&self, asker: IpAddr, query: &Query) -> Result<Reply, ForwardError> {
        let outcome = self.outcome(asker, query).await;
        let counters = &self.inner.counters;
        counters.asked.fetch_add(1, Ordering::Relaxed);
        let counter = match &outcome {
            Ok(Source::Cache(_)) => Some(&counters.cached),
            Ok(Source::Stale(_)) => Some(&counters.stale),
            Ok(Source::Servers(_)) => None,
            Err(ForwardError::NoServers | ForwardError::NoAnswer { .. }) => Some(&counters.failed),
            Err(ForwardError::AskerBusy { .. } | ForwardError::Busy { .. }) => {
                Some(&counters.refused)
            }
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let (Source::Cache(reply) | Source::Stale(reply) | Source::Servers(reply)) = outcome?;
        Ok(reply)
    }

    /// What became of the questions so far. Those under way are not in it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Counts {
            asked: of(&counters.asked),
            cached: of(&counters.cached),
            stale: of(&counters.stale),
            failed: of(&counters.failed),
            refused: of(&counters.refused),
        }
    }

    async fn outcome(&self, asker: IpAddr, query: &Query) -> Result<Source, ForwardError> {
        let query = Arc::new(query.normalized());
        // Held until the answer is there.
        let (_place, flight) = {
            let mut state = self.inner.state.lock();
            match state.cache.get(&query, Instant::now()) {
                Some(Found::Fresh(reply)) => return Ok(Source::Cache(reply)),
                Some(Found::Stale(reply)) => return Ok(Source::Stale(reply)),
                None => {}
            }
            let servers = Arc::clone(state.routes.servers(&query.name));
            if servers.is_empty() {
                return Err(ForwardError::NoServers);
            }
            let place = self.inner.places.take(asker)?;
            (place, self.inner.join(&mut state, asker, &query, servers))
        };
        let Told { reply, stale } = flight.await?;
        let reply = Arc::unwrap_or_clone(reply);
        Ok(if stale {
            Source::Stale(reply)
        } else {
            Source::Servers(reply)
        })
    }
}

/// Where a reply is from.
enum Source {
    Cache(Reply),
    Stale(Reply),
    Servers(Reply),
}

// === impl Inner ===

impl Inner {
    /// The flight of `query`: the one under way, or a new one. It moves when awaited.
    fn join(
        self: &Arc<Self>,
        state: &mut State,
        asker: IpAddr,
        query: &Arc<Query>,
        servers: Arc<[SocketAddr]>,
    ) -> Shared<BoxFuture<'static, Outcome>> {
        let under_way = state.flights.get(query);
        if let Some(outcome) = under_way.and_then(|flight| flight.outcome.upgrade()) {
            return outcome;
        }
        let number = state.next_flight;
        state.next_flight += 1;
        let landing = Landing {
            inner: Arc::clone(self),
            asker,
            query: Arc::clone(query),
            number,
        };
        let outcome = landing.fly(servers).boxed().shared();
        // Only one that has been awaited to its end has none.
        if let Some(outcome) = outcome.downgrade() {
            let flight = Flight { number, outcome };
            state.flights.insert(Arc::clone(query), flight);
        }
        outcome
    }
}

/// Takes a flight off the list when it ends, however it ends.
struct Landing {
    inner: Arc<Inner>,
    /// Who was the first to wait.
    asker: IpAddr,
    query: Arc<Query>,
    number: u64,
}

// === impl Landing ===

impl Landing {
    async fn fly(self, servers: Arc<[SocketAddr]>) -> Outcome {
        let answer = upstream::ask(&servers, &self.query, &self.inner.health).await;
        let now = Instant::now();
        let (asker, query) = (self.asker, &self.query);
        let mut locked = self.inner.state.lock();
        // One off the list already has asked servers that are others by now: what they say is not
        // to be remembered.
        let outdated = !locked.remove_flight(query, self.number);
        let mut forgotten = Cache::new();
        let cache = if outdated {
            &mut forgotten
        } else {
            &mut locked.cache
        };
        let (reply, stale) = match answer {
            Ok(reply) if reply.is_answer() => (cache.put(asker, query, reply, now), false),
            Ok(failure) => match cache.stale(query, now) {
                Some(old) => (old, true),
                None => (cache.put(asker, query, failure, now), false),
            },
            Err(tried) => match cache.stale(query, now) {
                Some(old) => (old, true),
                None => {
                    return Err(ForwardError::NoAnswer {
                        name: query.name.clone(),
                        record_type: query.record_type,
                        tried: tried.into(),
                    });
                }
            },
        };
        let reply = Arc::new(reply);
        Ok(Told { reply, stale })
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.remove_flight(&self.query, self.number);
    }
}

// === impl State ===

impl State {
    /// Whether it was there. One that has taken its place stays.
    fn remove_flight(&mut self, query: &Query, number: u64) -> bool {
        let flight = self.flights.get(query);
        let there = flight.is_some_and(|flight| flight.number == number);
        if there {
            self.flights.remove(query);
        }
        there
    }
}

#[cfg(test)]
mod tests;
