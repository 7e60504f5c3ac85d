//! What a Service gets: the address and the ports that it asks for if they are free, else drawn
//! ones.
//!
//! Nothing is held here. What is taken is in the store, as entries (`allocation`) that the cache
//! shows; what two take at the same moment, the transaction gives to one of them. The other draws
//! again, without what it has just lost; an address that a client chose is refused.
//!
//! | module | does |
//! |---|---|
//! | `ranges` | which ranges there are: the ServiceCIDRs |
//! | `ip_allocator`, `port_allocator` | which address and which port, of their `range`s |
//! | `claims` | what one Service has, and may take |
//! | `allocation`, `node_ports` | the entries in the store that say whose something is |
//! | [`repair`] | sets right what is out of step |
//!
//! Source: `pkg/registry/core/service/{ipallocator,portallocator}`, `storage/alloc.go` at v1.37.

pub(crate) mod allocation;
mod claims;
mod ip_allocator;
pub(crate) mod node_ports;
mod port_allocator;
mod range;
mod ranges;
pub mod repair;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    ops::RangeInclusive,
    sync::Arc,
};

use coracle_api::{
    meta,
    resource::Gvk,
    status::{FieldErrors, Status},
};
use ipnet::IpNet;
use serde_json::{Value, json};

pub use self::ranges::of_services;
use self::{
    allocation::MOST_AT_ONCE,
    claims::Claims,
    ip_allocator::{Asked, IpAllocator},
    port_allocator::PortAllocator,
    ranges::Ranges,
};
use crate::{
    kinds::core::service::{needs_health_check, needs_node_ports},
    resource::Registry,
    store::cache_status,
    watch_cache::{ResourceCache, WatchCache},
};

/// The ServiceCIDR that the server makes of its own range.
pub const DEFAULT_SERVICE_CIDR: &str = "kubernetes";

/// The allocators of one cluster, and what is taken of their ranges.
pub struct Allocators {
    /// The range that the server was started with. What counts is what the ServiceCIDRs say.
    own: IpAllocator,
    ranges: Arc<ResourceCache>,
    ports: PortAllocator,
    services: Gvk,
    cache: Arc<WatchCache>,
    taken_addresses: Arc<ResourceCache>,
    taken_ports: Arc<ResourceCache>,
}

/// One try to give a Service what it needs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Try<'a> {
    /// The keys that earlier tries were refused.
    pub lost: &'a [Arc<str>],
    /// Nothing will be written.
    pub dry_run: bool,
}

impl Allocators {
    /// `None` for a range that is not IPv4, or without Services.
    pub fn new(
        range: IpNet,
        ports: RangeInclusive<u16>,
        registry: &Registry,
        cache: Arc<WatchCache>,
    ) -> Option<Self> {
        let IpNet::V4(range) = range else { return None };
        let cache_of = |plural| {
            let kind = registry.get("networking.k8s.io", "v1", plural);
            kind.map(|kind| Arc::clone(&kind.cache))
        };
        Some(Self {
            own: IpAllocator::new(range),
            ranges: cache_of("servicecidrs")?,
            ports: PortAllocator::new(ports),
            services: registry.core("services")?.gvk.clone(),
            taken_addresses: cache_of("ipaddresses")?,
            taken_ports: cache.resource(node_ports::PREFIX)?,
            cache,
        })
    }

    /// What the ServiceCIDRs say, as far as the cache has come.
    fn ranges(&self) -> Ranges {
        Ranges::read(&self.ranges, self.own.first())
    }

    /// Gives `new` the address and the ports that it needs and has not: as `old` it may have some.
    ///
    /// # Errors
    /// 422 for a chosen one that is taken or out of range; 500 if nothing is left, and for a port
    /// for health checks.
    pub async fn allocate(
        &self,
        old: Option<&Value>,
        new: &mut Value,
        attempt: Try<'_>,
    ) -> Result<(), Status> {
        self.cache.catch_up().await.map_err(cache_status)?;
        let before = old.map(allocation::of).unwrap_or_default();
        let claims = Claims {
            own: before.clone(),
            lost: attempt.lost,
            taken_addresses: &self.taken_addresses,
            taken_ports: &self.taken_ports,
        };
        let mut allocating = Allocating { by: self, claims };
        allocating.cluster_ip(new, attempt.dry_run)?;
        allocating.node_ports(old, new)?;
        allocating.health_check_node_port(old, new)?;
        let more = allocation::of(new).difference(&before).count();
        if more <= MOST_AT_ONCE {
            return Ok(());
        }
        let why = format!("more than {MOST_AT_ONCE} cannot be allocated at once");
        Err(allocating.invalid(new, "spec.ports", &json!(more), &why))
    }
}

/// One Service that is given what it needs.
struct Allocating<'a> {
    by: &'a Allocators,
    claims: Claims<'a>,
}

impl Allocating<'_> {
    fn invalid(&self, service: &Value, field: &str, value: &Value, why: &str) -> Status {
        let mut errors = FieldErrors::default();
        errors.invalid(field, value, why);
        Status::invalid(&self.by.services, meta::name(service), errors)
    }

    fn cluster_ip(&mut self, new: &mut Value, dry_run: bool) -> Result<(), Status> {
        let spec = &new["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        let address = match meta::get_str(spec, &["clusterIP"]) {
            "None" => "None".to_owned(),
            "" => self.drawn_ip()?.to_string(),
            asked => self.chosen_ip(new, asked, dry_run)?.to_string(),
        };
        fill_family(&mut new["spec"], &address);
        Ok(())
    }

    fn drawn_ip(&mut self) -> Result<Ipv4Addr, Status> {
        let drawn = self.by.ranges().allocate_next(&mut self.claims);
        drawn.map_err(|error| Status::internal(format!("failed to allocate a serviceIP: {error}")))
    }

    fn chosen_ip(&mut self, new: &Value, text: &str, dry_run: bool) -> Result<Ipv4Addr, Status> {
        let ip = text
            .parse()
            .map_err(|_| Status::internal(format!("failed to parse service IP {text:?}")))?;
        let asked = Asked {
            ip,
            for_kubernetes: is_kubernetes(meta::namespace(new), meta::name(new)),
            dry_run,
        };
        let given = self.by.ranges().allocate(asked, &mut self.claims);
        given.map_err(|error| {
            let why = format!("failed to allocate IP {text}: {error}");
            self.invalid(new, "spec.clusterIPs", &json!([text]), &why)
        })
    }

    /// Entries of one port, such as DNS's for TCP and UDP, have one port of the nodes together.
    ///
    /// Upstream gives entries that an update adds one each; here they have it together as well.
    fn node_ports(&mut self, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
        if !matches!(
            new["spec"]["type"].as_str(),
            Some("NodePort" | "LoadBalancer")
        ) {
            return Ok(());
        }
        let draws = needs_node_ports(&new["spec"]);
        let entries = entries(&new["spec"]);
        let chosen = chosen(new);
        let kept = old.map(|old| chosen_of(&self::entries(&old["spec"])));
        let (mut by_port, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for (index, entry) in entries.iter().enumerate() {
            if entry.node_port == 0 && !draws {
                continue;
            }
            let shared = by_port.get(&entry.port).copied();
            let wanted = entry.wanted(shared, &entries);
            let is_kept = || kept.as_ref().is_some_and(|kept| kept.contains(&wanted));
            let given = match wanted {
                0 => self.drawn_port(&chosen)?,
                _ if shared == Some(wanted) || is_kept() => wanted,
                // What an update names twice is given once.
                _ if kept.is_some() && taken.contains(&wanted) => wanted,
                _ => {
                    let allocated = self.by.ports.allocate(wanted, &mut self.claims);
                    allocated.map_err(|error| {
                        let field = format!("spec.ports[{index}].nodePort");
                        self.invalid(new, &field, &json!(wanted), &error.to_string())
                    })?;
                    wanted
                }
            };
            by_port.entry(entry.port).or_insert(given);
            taken.insert(given);
            new["spec"]["ports"][index]["nodePort"] = given.into();
        }
        Ok(())
    }

    fn drawn_port(&mut self, chosen: &BTreeSet<i64>) -> Result<i64, Status> {
        let drawn = self.by.ports.allocate_next(chosen, &mut self.claims);
        let drawn = drawn
            .map_err(|error| Status::internal(format!("failed to allocate a nodePort: {error}")))?;
        Ok(drawn.into())
    }

    /// The port at which load balancers ask each node. One that has none although it needs one is
    /// of an older release, and gets it with its next change.
    fn health_check_node_port(
        &mut self,
        old: Option<&Value>,
        new: &mut Value,
    ) -> Result<(), Status> {
        let had = old.is_some_and(|old| needs_health_check(&old["spec"]));
        let asked = new["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0);
        if !needs_health_check(&new["spec"]) || had && asked != 0 {
            return Ok(());
        }
        if asked != 0 {
            let allocated = self.by.ports.allocate(asked, &mut self.claims);
            return allocated.map_err(|error| {
                let what = "failed to allocate requested HealthCheck NodePort";
                Status::internal(format!("{what} {asked}: {error}"))
            });
        }
        let drawn = self
            .by
            .ports
            .allocate_next(&chosen(new), &mut self.claims)
            .map_err(|error| {
                // Upstream's number, which it has not got.
                Status::internal(format!(
                    "failed to allocate a HealthCheck NodePort 0: {error}"
                ))
            })?;
        new["spec"]["healthCheckNodePort"] = drawn.into();
        Ok(())
    }
}

/// What an entry of `spec.ports` says of ports.
struct PortEntry {
    port: i64,
    protocol: String,
    /// 0 for none.
    node_port: i64,
}

impl PortEntry {
    /// The port of the nodes that it is to have; 0 for any.
    fn wanted(&self, shared: Option<i64>, all: &[Self]) -> i64 {
        if self.node_port != 0 {
            return self.node_port;
        }
        let beside = all
            .iter()
            .find(|other| other.port == self.port && other.node_port != 0);
        let wanted = shared.or_else(|| beside.map(|other| other.node_port));
        // For its protocol another entry may have that.
        let is_another =
            |other: &&Self| other.protocol == self.protocol && Some(other.node_port) == wanted;
        match all.iter().find(is_another) {
            Some(_) => 0,
            None => wanted.unwrap_or(0),
        }
    }
}

fn entries(spec: &Value) -> Vec<PortEntry> {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let ports = meta::get_array(spec, &["ports"]).iter();
    ports
        .map(|port| PortEntry {
            port: number(&port["port"]),
            protocol: meta::get_str(port, &["protocol"]).to_owned(),
            node_port: number(&port["nodePort"]),
        })
        .collect()
}

/// What is chosen is not drawn for another entry before it is its turn.
fn chosen(service: &Value) -> BTreeSet<i64> {
    let mut chosen = chosen_of(&entries(&service["spec"]));
    chosen.extend(service["spec"]["healthCheckNodePort"].as_i64());
    chosen
}

fn chosen_of(entries: &[PortEntry]) -> BTreeSet<i64> {
    let ports = entries.iter().map(|entry| entry.node_port);
    ports.filter(|port| *port != 0).collect()
}

/// Whether it is the Service by which pods reach the API, which has the first address.
pub(crate) fn is_kubernetes(namespace: &str, name: &str) -> bool {
    (namespace, name) == ("default", "kubernetes")
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
