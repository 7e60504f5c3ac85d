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

mod taken;

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use ipnet::{IpNet, Ipv4Net};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    resource::{Registry, Resource},
    service_ips,
};
use crate::watch_cache::{EventKind, KeyScope, Selection, WatchCache, Watcher};
use taken::{Holder, Taken, Uses, parse};

/// Random draws before the range is searched in order.
const DRAWS: usize = 32;
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

/// Who asks: the stored Service that is changed, if it is none that is made, and the write.
#[derive(Debug, Clone, Copy)]
struct Asker<'a> {
    key: Option<&'a str>,
    reservation: u64,
}

impl Asker<'_> {
    fn is(self, holder: &Holder) -> bool {
        match holder {
            Holder::Stored(key) => self.key == Some(key),
            Holder::Reserved(reservation) => self.reservation == *reservation,
        }
    }
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

    fn fill_address(
        &self,
        asker: Asker<'_>,
        new: &mut Value,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), Status> {
        let spec = &new["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        let asked = meta::get_str(spec, &["clusterIP"]);
        if asked == "None" {
            fill_family(&mut new["spec"], "None");
            return Ok(());
        }
        let address = if asked.is_empty() {
            let address = self
                .draw_address(taken)
                .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?;
            // Taken before it is written: whoever asks next must not get it, too.
            uses.addresses.push(address);
            taken
                .addresses
                .insert(address, Holder::Reserved(asker.reservation));
            address
        } else {
            self.take_address(asker, asked, taken, uses)
                .map_err(|why| {
                    let mut errors = FieldErrors::default();
                    errors.invalid(
                        "spec.clusterIPs",
                        &json!([asked]),
                        format!("failed to allocate IP {asked}: {why}"),
                    );
                    Status::invalid(&self.services.gvk, meta::name(new), errors)
                })?
        };
        fill_family(&mut new["spec"], &address.to_string());
        Ok(())
    }

    fn take_address(
        &self,
        asker: Asker<'_>,
        asked: &str,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<Ipv4Addr, String> {
        let in_range = |address: &Ipv4Addr| {
            self.range.contains(address)
                && *address != self.range.network()
                && *address != self.range.broadcast()
        };
        let address = match asked.parse() {
            Ok(IpAddr::V4(address)) if in_range(&address) => address,
            _ => {
                return Err(format!(
                    "the provided IP ({asked}) is not in the valid range. The range of valid IPs is {}",
                    self.range
                ));
            }
        };
        match taken.addresses.get(&address) {
            Some(holder) if asker.is(holder) => {}
            Some(_) => return Err("provided IP is already allocated".to_owned()),
            None if self.has_object(address) => {
                return Err("provided IP is already allocated".to_owned());
            }
            None => {
                uses.addresses.push(address);
                taken
                    .addresses
                    .insert(address, Holder::Reserved(asker.reservation));
            }
        }
        Ok(address)
    }

    /// Whether somebody has made an IPAddress object for it that no Service has.
    fn has_object(&self, address: Ipv4Addr) -> bool {
        self.objects
            .as_ref()
            .is_some_and(|objects| objects.cache.get(&service_ips::key(address)).is_some())
    }

    fn draw_address(&self, taken: &Taken) -> Option<Ipv4Addr> {
        let base = u32::from(self.range.network());
        // Without network and broadcast address; the first is the `kubernetes` Service's.
        let last = u32::from(self.range.broadcast()).checked_sub(1)?;
        let first = base + 2;
        let size = last.checked_sub(first)? + 1;
        let lower = (size / 16).clamp(16, 256).min(size.saturating_sub(1));
        let is_free = |address: &Ipv4Addr| {
            !taken.addresses.contains_key(address) && !self.has_object(*address)
        };
        let draw = || Ipv4Addr::from(first + lower + rand::random::<u32>() % (size - lower));
        (0..DRAWS).map(|_| draw()).find(is_free).or_else(|| {
            (first + lower..=last)
                .chain(first..first + lower)
                .map(Ipv4Addr::from)
                .find(is_free)
        })
    }

    fn fill_ports(
        &self,
        asker: Asker<'_>,
        new: &mut Value,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), Status> {
        let spec = &mut new["spec"];
        let needs = match spec["type"].as_str() {
            Some("NodePort") => true,
            Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let mut errors = FieldErrors::default();
        for (index, port) in spec["ports"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let asked = port["nodePort"].as_i64().unwrap_or(0);
            if asked == 0 && needs {
                let Some(drawn) = self.draw_port(taken) else {
                    return Err(Status::internal(
                        "failed to allocate a nodePort: range is full",
                    ));
                };
                taken
                    .ports
                    .insert(drawn, Holder::Reserved(asker.reservation));
                uses.ports.push(drawn);
                port["nodePort"] = drawn.into();
            } else if asked != 0
                && let Err(why) = self.take_port(asker, asked, taken, uses)
            {
                errors.invalid(format!("spec.ports[{index}].nodePort"), &json!(asked), why);
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&self.services.gvk, meta::name(new), errors))
    }

    fn take_port(
        &self,
        asker: Asker<'_>,
        asked: i64,
        taken: &mut Taken,
        uses: &mut Uses,
    ) -> Result<(), String> {
        let Some(port) = u16::try_from(asked)
            .ok()
            .filter(|port| self.ports.contains(port))
        else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        };
        match taken.ports.get(&port) {
            // Also its own TCP and UDP port of the same number.
            Some(holder) if asker.is(holder) => Ok(()),
            Some(_) => Err("provided port is already allocated".to_owned()),
            None => {
                uses.ports.push(port);
                taken
                    .ports
                    .insert(port, Holder::Reserved(asker.reservation));
                Ok(())
            }
        }
    }

    fn draw_port(&self, taken: &Taken) -> Option<u16> {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let size = u32::from(last.checked_sub(first)?) + 1;
        let draw =
            || first.saturating_add(u16::try_from(rand::random::<u32>() % size).unwrap_or(0));
        let is_free = |port: &u16| !taken.ports.contains_key(port);
        (0..DRAWS)
            .map(|_| draw())
            .find(is_free)
            .or_else(|| self.ports.clone().find(is_free))
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

/// The fields that go with `clusterIP`.
fn fill_family(spec: &mut Value, address: &str) {
    spec["clusterIP"] = address.into();
    if spec["clusterIPs"][0] != *address {
        spec["clusterIPs"] = json!([address]);
    }
    if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if !spec["ipFamilyPolicy"].is_string() {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

#[cfg(test)]
mod tests;
