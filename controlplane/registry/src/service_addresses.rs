//! What a Service gets: the address and the ports that it asks for if they are free, else drawn
//! ones.
//!
//! Nothing is held here. What is taken is in the store, as entries ([`super::service_allocations`])
//! that the cache shows; what two take at the same moment, the transaction gives to one of them.
//! The other draws again, without what it has just lost; an address that a client chose is refused.
//! Addresses are drawn at random from the upper part of the range first: the lower part is for
//! those who choose theirs.
//!
//! Source: `pkg/registry/core/service/{ipallocator,portallocator}`, `storage/alloc.go` at v1.37.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Status},
};
use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value, json};

use crate::{
    resource::Registry,
    service_allocations::{self, Allocation, MOST_AT_ONCE, ports},
    store::cache_status,
    watch_cache::{ResourceCache, WatchCache},
};

/// Random draws before the range is searched.
const DRAWS: usize = 32;
const ALLOCATED: &str = "is already allocated";

/// The ranges of one cluster, and what is taken of them.
pub struct ServiceAddresses {
    range: Ipv4Net,
    ports: RangeInclusive<u16>,
    services: Gvk,
    cache: Arc<WatchCache>,
    taken_addresses: Arc<ResourceCache>,
    taken_ports: Arc<ResourceCache>,
}

/// One Service that is given what it needs.
struct Filling<'a> {
    of: &'a ServiceAddresses,
    /// What it has already, and may have again.
    own: BTreeSet<Allocation>,
    /// Keys of what it cannot have, whatever the cache says.
    lost: &'a [Arc<str>],
}

impl ServiceAddresses {
    /// `None` for a range that is not IPv4, or without Services.
    pub fn new(
        range: IpNet,
        ports: RangeInclusive<u16>,
        registry: &Registry,
        cache: Arc<WatchCache>,
    ) -> Option<Self> {
        let IpNet::V4(range) = range else { return None };
        let objects = registry.get("networking.k8s.io", "v1", "ipaddresses")?;
        Some(Self {
            range: range.trunc(),
            ports,
            services: registry.core("services")?.gvk.clone(),
            taken_addresses: Arc::clone(&objects.cache),
            taken_ports: cache.resource(ports::PREFIX)?,
            cache,
        })
    }

    /// Gives `new` the address and the ports that it needs and has not: as `old` it may have some.
    /// `lost` are the keys that an earlier try was refused.
    ///
    /// # Errors
    /// 422 for a chosen one that is taken or out of range, 500 if nothing is left.
    pub async fn fill(
        &self,
        old: Option<&Value>,
        new: &mut Value,
        lost: &[Arc<str>],
    ) -> Result<(), Status> {
        self.cache.catch_up().await.map_err(cache_status)?;
        let before = old.map(service_allocations::of).unwrap_or_default();
        let mut filling = Filling {
            of: self,
            own: before.clone(),
            lost,
        };
        filling.address(new)?;
        filling.ports(new)?;
        let more = service_allocations::of(new).difference(&before).count();
        if more <= MOST_AT_ONCE {
            return Ok(());
        }
        let mut errors = FieldErrors::default();
        let why = format!("more than {MOST_AT_ONCE} cannot be allocated at once");
        errors.invalid("spec.ports", &json!(more), why);
        Err(filling.invalid(new, errors))
    }
}

impl Filling<'_> {
    fn is_free(&self, allocation: Allocation) -> bool {
        let key = allocation.key();
        let cache = match allocation {
            Allocation::Address(_) => &self.of.taken_addresses,
            Allocation::Port(_) => &self.of.taken_ports,
        };
        !self.own.contains(&allocation) && !self.lost.contains(&key) && cache.get(&key).is_none()
    }

    /// Takes one that is its own or free. Whether it is.
    fn take(&mut self, allocation: Allocation) -> bool {
        let may = self.own.contains(&allocation) || self.is_free(allocation);
        if may {
            self.own.insert(allocation);
        }
        may
    }

    fn invalid(&self, service: &Value, errors: FieldErrors) -> Status {
        Status::invalid(&self.of.services, meta::name(service), errors)
    }

    fn address(&mut self, new: &mut Value) -> Result<(), Status> {
        let spec = &new["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        let asked = meta::get_str(spec, &["clusterIP"]);
        let address = match asked {
            "None" => "None".to_owned(),
            "" => self
                .draw_address()
                .ok_or_else(|| Status::internal("failed to allocate a serviceIP: range is full"))?
                .to_string(),
            asked => match self.chosen_address(asked, is_kubernetes(new)) {
                Ok(address) => address.to_string(),
                Err(why) => {
                    let mut errors = FieldErrors::default();
                    let why = format!("failed to allocate IP {asked}: {why}");
                    errors.invalid("spec.clusterIPs", &json!([asked]), why);
                    return Err(self.invalid(new, errors));
                }
            },
        };
        fill_family(&mut new["spec"], &address);
        Ok(())
    }

    fn chosen_address(&mut self, asked: &str, is_kubernetes: bool) -> Result<Ipv4Addr, String> {
        let range = self.of.range;
        let in_range = |address: &Ipv4Addr| {
            range.contains(address) && *address != range.network() && *address != range.broadcast()
        };
        let is_own = |address| self.own.contains(&Allocation::Address(address));
        let address = match asked.parse() {
            Ok(IpAddr::V4(address)) if is_own(address) || in_range(&address) => address,
            _ => {
                return Err(format!(
                    "the provided IP ({asked}) is not in the valid range. The range of valid IPs is {range}"
                ));
            }
        };
        // Also while there is no such Service: without its address no server could start.
        let is_kept = u32::from(address) == u32::from(range.network()) + 1;
        let may = !is_kept || is_kubernetes || is_own(address);
        if may && self.take(Allocation::Address(address)) {
            Ok(address)
        } else {
            Err(format!("provided IP {ALLOCATED}"))
        }
    }

    fn draw_address(&mut self) -> Option<Ipv4Addr> {
        let base = u32::from(self.of.range.network());
        // Without network and broadcast address; the first is the `kubernetes` Service's.
        let last = u32::from(self.of.range.broadcast()).checked_sub(1)?;
        let first = base + 2;
        let size = last.checked_sub(first)? + 1;
        let lower = (size / 16).clamp(16, 256).min(size.saturating_sub(1));
        let allocation = |address: u32| Allocation::Address(Ipv4Addr::from(address));
        let is_free = |address: &u32| self.is_free(allocation(*address));
        let drawn = draw(first + lower, size - lower, is_free)
            .or_else(|| draw(first, lower, is_free))
            .map(Ipv4Addr::from)?;
        self.own.insert(Allocation::Address(drawn));
        Some(drawn)
    }

    fn ports(&mut self, new: &mut Value) -> Result<(), Status> {
        let mut errors = FieldErrors::default();
        // Those that are chosen first: none of them is to be drawn before.
        for (index, port) in meta::get_array(new, &["spec", "ports"]).iter().enumerate() {
            let field = || format!("spec.ports[{index}].nodePort");
            self.chosen_port(&port["nodePort"], field, &mut errors);
        }
        let health = &new["spec"]["healthCheckNodePort"];
        self.chosen_port(
            health,
            || "spec.healthCheckNodePort".to_owned(),
            &mut errors,
        );
        if !errors.is_empty() {
            return Err(self.invalid(new, errors));
        }
        let spec = &mut new["spec"];
        let needs = match spec["type"].as_str() {
            Some("NodePort") => true,
            Some("LoadBalancer") => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let ports = spec["ports"].as_array_mut().filter(|_| needs);
        for port in ports.into_iter().flatten() {
            if port["nodePort"].as_i64().unwrap_or(0) == 0 {
                let drawn = self.draw_port().ok_or_else(|| {
                    Status::internal("failed to allocate a nodePort: range is full")
                })?;
                port["nodePort"] = drawn.into();
            }
        }
        Ok(())
    }

    fn chosen_port(
        &mut self,
        asked: &Value,
        field: impl FnOnce() -> String,
        errors: &mut FieldErrors,
    ) {
        let number = asked.as_i64().unwrap_or(0);
        if number == 0 {
            return;
        }
        let range = &self.of.ports;
        let port = u16::try_from(number).map(Allocation::Port);
        let why = match port {
            // Also its own TCP and UDP port of the same number.
            Ok(port) if self.own.contains(&port) => return,
            Ok(port @ Allocation::Port(number)) if range.contains(&number) => {
                if self.take(port) {
                    return;
                }
                format!("provided port {ALLOCATED}")
            }
            _ => format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                range.start(),
                range.end()
            ),
        };
        errors.invalid(field(), asked, why);
    }

    fn draw_port(&mut self) -> Option<u16> {
        let (first, last) = (*self.of.ports.start(), *self.of.ports.end());
        let size = u32::from(last.checked_sub(first)?) + 1;
        let port = |number: u32| u16::try_from(number).map(Allocation::Port);
        let is_free = |number: &u32| port(*number).is_ok_and(|port| self.is_free(port));
        let drawn = u16::try_from(draw(first.into(), size, is_free)?).ok()?;
        self.own.insert(Allocation::Port(drawn));
        Some(drawn)
    }
}

/// One of `size` numbers from `first` on that is free: by chance, or found from a place on that is
/// by chance, so that many who draw the last ones at the same time do not all draw the same.
fn draw(first: u32, size: u32, is_free: impl Fn(&u32) -> bool) -> Option<u32> {
    let offset = || rand::random::<u32>().checked_rem(size);
    let start = offset()?;
    let by_chance = (0..DRAWS).filter_map(|_| Some(first + offset()?));
    let in_order = (0..size).map(|step| first + (start + step) % size);
    by_chance.chain(in_order).find(is_free)
}

/// Whether it is the Service by which pods reach the API, which has the first address.
fn is_kubernetes(service: &Value) -> bool {
    meta::namespace(service) == "default" && meta::name(service) == "kubernetes"
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
