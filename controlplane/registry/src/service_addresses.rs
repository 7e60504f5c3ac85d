//! Cluster addresses and node ports of Services: reserved before a Service is written, free again
//! when it is gone.
//!
//! The truth is the Services themselves, read from the watch cache, and for addresses the IPAddress
//! objects that are written with them ([`super::service_ips`]). Reservations of writes under way
//! are held here until they show there. Addresses are drawn at random from the upper part of the
//! range first: the lower part is for those who choose theirs.
//!
//! ```text
//! fill > Reserved ----- the Service shows in the cache -----> Stored ----- its change or end shows -----> free
//!            |--------- freed, or dropped before it was sent: nothing is written ---------------------------^
//!            '--------- dropped: nobody knows yet; freed when it has not shown for SETTLE ------------------'
//! ```
//!
//! Source: `pkg/registry/core/service/{ipallocator,portallocator}`, `storage/alloc.go` at v1.37.

mod draw;
mod taken;

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_api::status::Status;
use ipnet::{IpNet, Ipv4Net};
use parking_lot::Mutex;
use serde_json::Value;

use super::resource::{Registry, Resource};
use crate::watch_cache::{EventKind, KeyScope, Selection, WatchCache, Watcher};
use taken::{Asker, Holder, Taken, Uses, parse};

/// A write whose end nobody waited for is through by then, or never will be: twice the time that a
/// request may take.
const SETTLE: Duration = Duration::from_secs(120);

/// The allocators of one cluster.
pub struct ServiceAddresses {
    range: Ipv4Net,
    ports: RangeInclusive<u16>,
    services: Arc<Resource>,
    /// The IPAddress objects, which others may make, too.
    objects: Option<Arc<Resource>>,
    cache: Arc<WatchCache>,
    state: Mutex<State>,
}

struct State {
    taken: Taken,
    watcher: Watcher,
    /// Reservations whose Service may or may not show yet, the oldest first.
    unsettled: VecDeque<(Instant, u64, Uses)>,
    reservations: u64,
}

/// What a write has taken. Dropped before the write was sent, it is free again. Dropped after that,
/// it stays taken until the Service shows in the cache: the write may be through although nobody
/// waited for its answer.
pub struct Reservation<'a> {
    of: &'a ServiceAddresses,
    id: u64,
    uses: Uses,
    is_sent: bool,
}

impl Reservation<'_> {
    /// The write goes to the store now.
    pub fn sent(&mut self) {
        self.is_sent = true;
    }

    /// Nothing was written: all of it is free again.
    pub fn free(mut self) {
        self.is_sent = false;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let uses = std::mem::take(&mut self.uses);
        if uses == Uses::default() {
            return;
        }
        let mut state = self.of.state.lock();
        if self.is_sent {
            state.unsettled.push_back((Instant::now(), self.id, uses));
        } else {
            state.taken.release(&Holder::Reserved(self.id), &uses);
        }
    }
}

impl ServiceAddresses {
    /// Reads who has what. `None` for a range that is not IPv4, or without Services.
    pub fn new(
        range: IpNet,
        ports: RangeInclusive<u16>,
        registry: &Registry,
        cache: Arc<WatchCache>,
    ) -> Option<Self> {
        let IpNet::V4(range) = range else { return None };
        let services = Arc::clone(registry.core("services")?);
        let objects = registry
            .get("networking.k8s.io", "v1", "ipaddresses")
            .cloned();
        let (taken, watcher) = load(&services);
        let state = Mutex::new(State {
            taken,
            watcher,
            unsettled: VecDeque::new(),
            reservations: 0,
        });
        Some(Self {
            range: range.trunc(),
            ports,
            services,
            objects,
            cache,
            state,
        })
    }

    /// Learns what was written since the last time.
    pub async fn catch_up(&self) -> Result<(), Status> {
        self.cache
            .catch_up()
            .await
            .map_err(super::store::cache_status)?;
        let mut state = self.state.lock();
        loop {
            match state.watcher.ready() {
                Ok(deliveries) if deliveries.is_empty() => break,
                Ok(deliveries) => {
                    for delivery in deliveries {
                        let holder = Holder::Stored(delivery.entry.key().to_owned());
                        if let Some(prev) = &delivery.event.prev {
                            state.taken.release(&holder, &parse(prev.unmanaged()));
                        }
                        if delivery.kind != EventKind::Deleted {
                            state
                                .taken
                                .take(&holder, &parse(delivery.entry.unmanaged()));
                        }
                    }
                }
                // Too far behind: read all anew.
                Err(_) => state.reload(&self.services),
            }
        }
        state.settle(Instant::now());
        Ok(())
    }

    /// Gives a new Service, or the changed one of this key, the addresses and ports it needs and
    /// has not.
    ///
    /// # Errors
    /// 422 for a chosen one that is taken or out of range, 500 if nothing is left.
    pub fn fill(&self, key: Option<&str>, new: &mut Value) -> Result<Reservation<'_>, Status> {
        let mut uses = Uses::default();
        let mut state = self.state.lock();
        state.reservations += 1;
        let asker = Asker {
            key,
            reservation: state.reservations,
        };
        let result = self
            .fill_address(asker, new, &mut state.taken, &mut uses)
            .and_then(|()| self.fill_ports(asker, new, &mut state.taken, &mut uses));
        if let Err(status) = result {
            state
                .taken
                .release(&Holder::Reserved(asker.reservation), &uses);
            return Err(status);
        }
        Ok(Reservation {
            of: self,
            id: asker.reservation,
            uses,
            is_sent: false,
        })
    }
}

/// What the stored Services have now, and what comes after.
fn load(services: &Arc<Resource>) -> (Taken, Watcher) {
    let selection = Selection::of(KeyScope::Resource);
    let (snapshot, watcher) = services.cache.snapshot_and_watch(selection.clone());
    let mut taken = Taken::default();
    for entry in snapshot.select(&selection, &services.prefix) {
        taken.take(
            &Holder::Stored(entry.key().to_owned()),
            &parse(entry.unmanaged()),
        );
    }
    (taken, watcher)
}

impl State {
    /// Reads all anew; what writes under way have taken stays theirs.
    fn reload(&mut self, services: &Arc<Resource>) {
        let (taken, watcher) = load(services);
        let before = std::mem::replace(&mut self.taken, taken);
        self.watcher = watcher;
        let is_reserved = |holder: &Holder| matches!(holder, Holder::Reserved(_));
        for (address, holder) in before
            .addresses
            .into_iter()
            .filter(|(_, holder)| is_reserved(holder))
        {
            self.taken.addresses.entry(address).or_insert(holder);
        }
        for (port, holder) in before
            .ports
            .into_iter()
            .filter(|(_, holder)| is_reserved(holder))
        {
            self.taken.ports.entry(port).or_insert(holder);
        }
    }

    /// Forgets reservations whose Services show, and frees those whose Services never will.
    fn settle(&mut self, now: Instant) {
        let taken = &mut self.taken;
        self.unsettled
            .retain(|(_, id, uses)| taken.has_any(&Holder::Reserved(*id), uses));
        while let Some((since, id, uses)) = self.unsettled.front()
            && now.saturating_duration_since(*since) > SETTLE
        {
            taken.release(&Holder::Reserved(*id), uses);
            self.unsettled.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
