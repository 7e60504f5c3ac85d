//! Cluster addresses and node ports of Services: reserved before a Service is written, free again when it is gone.
//!
//! The truth is the Services themselves, read from the watch cache; nothing else is stored. Reservations of writes
//! under way are held here until they show there. Addresses are drawn at random from the upper part of the range
//! first: the lower part is for those who choose theirs.
//!
//! Source: `pkg/registry/core/service/{ipallocator,portallocator}`, `storage/alloc.go` at v1.37.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use coracle_api::{
    meta,
    status::{FieldErrors, Status},
};
use ipnet::{IpNet, Ipv4Net};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resource::Resource;
use crate::watch_cache::{EventKind, Scope, Selection, WatchCache, Watcher};

/// Random draws before the range is searched in order.
const DRAWS: usize = 32;

/// The allocators of one cluster.
pub(crate) struct ServiceAddresses {
    range: Ipv4Net,
    ports: RangeInclusive<u16>,
    services: Arc<Resource>,
    cache: Arc<WatchCache>,
    state: Mutex<State>,
}

struct State {
    taken: Taken,
    watcher: Watcher,
}

/// Who has what: keys of Services.
#[derive(Default)]
struct Taken {
    addresses: HashMap<Ipv4Addr, String>,
    ports: HashMap<u16, String>,
}

/// What one Service uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Uses {
    addresses: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

/// What a write has taken; given back when dropped, unless it was kept.
pub(crate) struct Reservation<'a> {
    of: &'a ServiceAddresses,
    uses: Uses,
}

impl Reservation<'_> {
    /// The write succeeded: the Service has it now.
    pub(crate) fn keep(mut self) {
        self.uses = Uses::default();
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        for address in &self.uses.addresses {
            state.taken.addresses.remove(address);
        }
        for port in &self.uses.ports {
            state.taken.ports.remove(port);
        }
    }
}

impl ServiceAddresses {
    /// Reads who has what. `None` for a range that is not IPv4, or without Services.
    pub(crate) fn new(
        range: IpNet,
        ports: RangeInclusive<u16>,
        services: Arc<Resource>,
        cache: Arc<WatchCache>,
    ) -> Option<Self> {
        let IpNet::V4(range) = range else { return None };
        let state = Mutex::new(State::load(&services));
        Some(Self { range: range.trunc(), ports, services, cache, state })
    }

    /// Learns what was written since the last time.
    pub(crate) async fn catch_up(&self) -> Result<(), Status> {
        self.cache.catch_up().await.map_err(super::store::cache_status)?;
        let mut state = self.state.lock();
        loop {
            match state.watcher.ready() {
                Ok(deliveries) if deliveries.is_empty() => return Ok(()),
                Ok(deliveries) => {
                    for delivery in deliveries {
                        let key = delivery.entry.key();
                        if let Some(prev) = &delivery.event.prev {
                            state.taken.release(key, &parse(prev.unmanaged()));
                        }
                        if delivery.kind != EventKind::Deleted {
                            state.taken.take(key, &parse(delivery.entry.unmanaged()));
                        }
                    }
                }
                // Too far behind: read all anew.
                Err(_) => *state = State::load(&self.services),
            }
        }
    }

    /// Gives a new or changed Service the addresses and ports it needs and has not.
    ///
    /// # Errors
    /// 422 for a chosen one that is taken or out of range, 500 if nothing is left.
    pub(crate) fn fill(&self, key: &str, new: &mut Value) -> Result<Reservation<'_>, Status> {
        let mut reservation = Reservation { of: self, uses: Uses::default() };
        let mut state = self.state.lock();
        let result = self
            .fill_address(key, new, &mut state.taken, &mut reservation.uses)
            .and_then(|()| self.fill_ports(key, new, &mut state.taken, &mut reservation.uses));
        // Dropping the reservation takes the lock.
        drop(state);
        result.map(|()| reservation)
    }

    fn fill_address(&self, key: &str, new: &mut Value, taken: &mut Taken, uses: &mut Uses) -> Result<(), Status> {
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
            uses.addresses.push(address);
            taken.addresses.insert(address, key.to_owned());
            address
        } else {
            self.take_address(key, asked, taken, uses).map_err(|why| {
                let mut errors = FieldErrors::default();
                errors.invalid("spec.clusterIPs", &json!([asked]), format!("failed to allocate IP {asked}: {why}"));
                Status::invalid(&self.services.gvk, meta::name(new), errors)
            })?
        };
        fill_family(&mut new["spec"], &address.to_string());
        Ok(())
    }

    fn take_address(&self, key: &str, asked: &str, taken: &mut Taken, uses: &mut Uses) -> Result<Ipv4Addr, String> {
        let in_range = |address: &Ipv4Addr| {
            self.range.contains(address) && *address != self.range.network() && *address != self.range.broadcast()
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
            Some(owner) if owner == key => {}
            Some(_) => return Err("provided IP is already allocated".to_owned()),
            None => {
                uses.addresses.push(address);
                taken.addresses.insert(address, key.to_owned());
            }
        }
        Ok(address)
    }

    fn draw_address(&self, taken: &Taken) -> Option<Ipv4Addr> {
        let base = u32::from(self.range.network());
        // Without network and broadcast address; the first is the `kubernetes` Service's.
        let last = u32::from(self.range.broadcast()).checked_sub(1)?;
        let first = base + 2;
        let size = last.checked_sub(first)? + 1;
        let lower = (size / 16).clamp(16, 256).min(size.saturating_sub(1));
        let is_free = |address: &Ipv4Addr| !taken.addresses.contains_key(address);
        let draw = || Ipv4Addr::from(first + lower + rand::random::<u32>() % (size - lower));
        (0..DRAWS)
            .map(|_| draw())
            .find(is_free)
            .or_else(|| (first + lower..=last).chain(first..first + lower).map(Ipv4Addr::from).find(is_free))
    }

    fn fill_ports(&self, key: &str, new: &mut Value, taken: &mut Taken, uses: &mut Uses) -> Result<(), Status> {
        let spec = &mut new["spec"];
        let needs = match spec["type"].as_str() {
            Some("NodePort") => true,
            Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let mut errors = FieldErrors::default();
        for (index, port) in spec["ports"].as_array_mut().into_iter().flatten().enumerate() {
            let asked = port["nodePort"].as_i64().unwrap_or(0);
            if asked == 0 && needs {
                let Some(drawn) = self.draw_port(taken) else {
                    return Err(Status::internal("failed to allocate a nodePort: range is full"));
                };
                taken.ports.insert(drawn, key.to_owned());
                uses.ports.push(drawn);
                port["nodePort"] = drawn.into();
            } else if asked != 0
                && let Err(why) = self.take_port(key, asked, taken, uses)
            {
                errors.invalid(format!("spec.ports[{index}].nodePort"), &json!(asked), why);
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&self.services.gvk, meta::name(new), errors))
    }

    fn take_port(&self, key: &str, asked: i64, taken: &mut Taken, uses: &mut Uses) -> Result<(), String> {
        let Some(port) = u16::try_from(asked).ok().filter(|port| self.ports.contains(port)) else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                self.ports.start(),
                self.ports.end()
            ));
        };
        match taken.ports.get(&port) {
            // Also its own TCP and UDP port of the same number.
            Some(owner) if owner == key => Ok(()),
            Some(_) => Err("provided port is already allocated".to_owned()),
            None => {
                uses.ports.push(port);
                taken.ports.insert(port, key.to_owned());
                Ok(())
            }
        }
    }

    fn draw_port(&self, taken: &Taken) -> Option<u16> {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let size = u32::from(last.checked_sub(first)?) + 1;
        let draw = || first.saturating_add(u16::try_from(rand::random::<u32>() % size).unwrap_or(0));
        let is_free = |port: &u16| !taken.ports.contains_key(port);
        (0..DRAWS).map(|_| draw()).find(is_free).or_else(|| self.ports.clone().find(is_free))
    }
}

impl State {
    fn load(services: &Arc<Resource>) -> Self {
        let selection = Selection::of(Scope::Resource);
        let (snapshot, watcher) = services.cache.snapshot_and_watch(selection.clone());
        let mut taken = Taken::default();
        for entry in snapshot.select(&selection, &services.prefix) {
            taken.take(entry.key(), &parse(entry.unmanaged()));
        }
        Self { taken, watcher }
    }
}

impl Taken {
    fn take(&mut self, key: &str, uses: &Uses) {
        for address in &uses.addresses {
            self.addresses.insert(*address, key.to_owned());
        }
        for port in &uses.ports {
            self.ports.insert(*port, key.to_owned());
        }
    }

    fn release(&mut self, key: &str, uses: &Uses) {
        for address in &uses.addresses {
            if self.addresses.get(address).is_some_and(|owner| owner == key) {
                self.addresses.remove(address);
            }
        }
        for port in &uses.ports {
            if self.ports.get(port).is_some_and(|owner| owner == key) {
                self.ports.remove(port);
            }
        }
    }
}

fn parse(json: &[u8]) -> Uses {
    let service: Value = serde_json::from_slice(json).unwrap_or_default();
    let spec = &service["spec"];
    let mut uses = Uses::default();
    uses.addresses.extend(spec["clusterIP"].as_str().and_then(|address| address.parse::<Ipv4Addr>().ok()));
    let ports = spec["ports"].as_array().into_iter().flatten();
    uses.ports.extend(ports.filter_map(|port| u16::try_from(port["nodePort"].as_i64()?).ok()).filter(|port| *port > 0));
    uses
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
