//! The cluster's zone. Pure but for what it looks up.
//!
//! ```text
//! SERVICE.NAMESPACE.svc.ZONE                    its addresses; its endpoints' if it has none; another name
//! ENDPOINT.SERVICE.NAMESPACE.svc.ZONE           one of its endpoints
//! _PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE    where that port is (SRV)
//! A-B-C-D.NAMESPACE.pod.ZONE                    the address in it
//! D.C.B.A.in-addr.arpa                          whose address that is
//! dns-version.ZONE, ns.dns.ZONE, ZONE           of the zone itself
//! ```
//!
//! Nothing follows another name here ([`Found::Alias`]); who asks the zone does.
//!
//! Source: `plugin/kubernetes/{parse,kubernetes,reverse,handler}.go` of CoreDNS, specification
//! 1.1.0.

mod answers;
mod parts;

use std::net::IpAddr;

use hickory_proto::rr::{
    Name, RData, Record, RecordType,
    rdata::{NS, SOA, TXT},
};

use self::{
    answers::{Target, address_record, addresses, alias, below, one, pointers, records},
    parts::{Asked, Part, dashed, reversed},
};
use crate::directory::{Directory, Endpoint, Port, Service, ServiceName};

/// Seconds that an answer may be kept for.
pub const TTL: u32 = 5;
/// What the zone keeps to.
const VERSION: &str = "1.1.0";
/// Of the start of authority, which nobody copies zones by.
const REFRESH: i32 = 7200;
const RETRY: i32 = 1800;
const EXPIRE: i32 = 86_400;

/// The zone of a cluster's domain.
#[derive(Debug, Clone)]
pub struct Zone {
    origin: Name,
    /// Labels of the origin.
    depth: usize,
    /// The server's own address.
    address: Option<IpAddr>,
}

/// What the zone has for a name and a type.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// Records, and what else their reader will ask for.
    Records {
        /// In an order that differs from answer to answer.
        answers: Vec<Record>,
        /// Addresses of the answers.
        additionals: Vec<Record>,
    },
    /// It is another name.
    Alias {
        /// CNAME.
        record: Box<Record>,
        /// Where it leads.
        target: Name,
    },
    /// The name is there, and has nothing of that type.
    NoData,
    /// There is no such name.
    NoName,
    /// The zone has no say about it.
    Foreign,
    /// Not everything has been seen yet.
    Unknown,
}

impl Zone {
    /// `domain` is such as `cluster.local`; the server has `address`.
    ///
    /// # Errors
    /// What is no name.
    pub fn new(domain: &str, address: Option<IpAddr>) -> Result<Self, InvalidDomain> {
        let mut origin = Name::from_ascii(domain)
            .map_err(|source| InvalidDomain {
                domain: domain.to_owned(),
                source,
            })?
            .to_lowercase();
        origin.set_fqdn(true);
        Ok(Self {
            depth: usize::from(origin.num_labels()),
            origin,
            address,
        })
    }

    /// Whether the name is the zone's or below it.
    pub fn contains(&self, name: &Name) -> bool {
        self.origin.zone_of(name)
    }

    /// The name of the cluster's domain.
    pub fn origin(&self) -> &Name {
        &self.origin
    }

    /// Who says that there is nothing.
    pub fn start_of_authority(&self) -> Record {
        let at = |label: &[&str]| below(label, &self.origin);
        let minimum = TTL;
        let soa = SOA::new(
            at(&["ns", "dns"]),
            at(&["hostmaster"]),
            1,
            REFRESH,
            RETRY,
            EXPIRE,
            minimum,
        );
        Record::from_rdata(self.origin.clone(), TTL, RData::SOA(soa))
    }

    /// Looks a name up.
    pub fn find(&self, names: &dyn Directory, name: &Name, of: RecordType) -> Found {
        if !self.contains(name) {
            return self.reverse(names, name, of);
        }
        if !names.is_complete() {
            return Found::Unknown;
        }
        match parts::parse(name, self.depth) {
            Asked::Nothing => Found::NoName,
            Asked::Apex => self.apex(name, of),
            Asked::Version if of == RecordType::TXT => {
                let text = TXT::new(vec![VERSION.to_owned()]);
                one(name, RData::TXT(text))
            }
            Asked::Version => Found::NoData,
            Asked::Server => addresses(name, self.address.into_iter(), of),
            Asked::Namespace(namespace) if names.has_namespace(&namespace) => Found::NoData,
            Asked::Namespace(_) => Found::NoName,
            Asked::Pod { address, namespace } => {
                match dashed(&address).filter(|_| names.has_namespace(&namespace)) {
                    Some(address) => addresses(name, std::iter::once(address), of),
                    None => Found::NoName,
                }
            }
            Asked::Service { of: service, part } => self.service(names, name, &service, &part, of),
        }
    }

    fn apex(&self, name: &Name, of: RecordType) -> Found {
        match of {
            RecordType::SOA if *name == self.origin => Found::Records {
                answers: vec![self.start_of_authority()],
                additionals: Vec::new(),
            },
            RecordType::NS if *name == self.origin => {
                let server = below(&["ns", "dns"], &self.origin);
                let address = self.address.into_iter();
                Found::Records {
                    answers: vec![Record::from_rdata(
                        name.clone(),
                        TTL,
                        RData::NS(NS(server.clone())),
                    )],
                    additionals: address.map(|one| address_record(&server, one)).collect(),
                }
            }
            _ => Found::NoData,
        }
    }

    fn service(
        &self,
        names: &dyn Directory,
        name: &Name,
        of: &ServiceName,
        part: &Part,
        wanted: RecordType,
    ) -> Found {
        let Some(service) = names.service(&of.namespace, &of.name) else {
            return Found::NoName;
        };
        let own = self.name_of(of);
        let targets = match (service, part) {
            (Service::External(_), Part::Endpoint(_) | Part::Port { .. }) => Vec::new(),
            (Service::External(other), Part::Whole) => return alias(name, &other, wanted),
            (Service::Addresses { addresses, ports }, Part::Whole | Part::Port { .. }) => {
                let ports = ports.iter().filter(|port| part.takes(port));
                let at = |port: &Port| {
                    let (port, own) = (port.number, own.clone());
                    let target = move |address: &IpAddr| Target {
                        name: own.clone(),
                        address: *address,
                        port,
                    };
                    addresses.iter().map(target).collect::<Vec<_>>()
                };
                ports.flat_map(at).collect()
            }
            (Service::Headless | Service::Addresses { .. }, _) => names
                .endpoints(&of.namespace, &of.name)
                .iter()
                .flat_map(|endpoint| endpoint_targets(endpoint, part, &own))
                .collect(),
        };
        match targets[..] {
            [] => Found::NoName,
            _ => records(name, targets, wanted),
        }
    }

    /// Whose address it is. What is nobody's here may be somebody's elsewhere.
    fn reverse(&self, names: &dyn Directory, name: &Name, of: RecordType) -> Found {
        let Some(address) = reversed(name) else {
            return Found::Foreign;
        };
        let targets = match names.service_at(address) {
            Some(service) => vec![self.name_of(&service)],
            None => self.names_of_endpoints(names, address),
        };
        match targets[..] {
            // Others would deny it, and it may be the cluster's all the same.
            [] if !names.is_complete() => Found::Unknown,
            [] => Found::Foreign,
            _ if of != RecordType::PTR => Found::NoData,
            _ => pointers(name, targets),
        }
    }

    /// The names under which an address is found, those that pods have chosen first: most clients
    /// read one.
    fn names_of_endpoints(&self, names: &dyn Directory, address: IpAddr) -> Vec<Name> {
        let mut found = names.endpoints_at(address);
        // Anybody may write a slice of what is no Service, or is another name.
        found.retain(|(of, _)| {
            let service = names.service(&of.namespace, &of.name);
            matches!(service, Some(Service::Headless | Service::Addresses { .. }))
        });
        found.sort_by_cached_key(|(of, endpoint)| {
            (endpoint.hostname.is_none(), of.clone(), endpoint.label())
        });
        let name_of = |(of, endpoint): &(ServiceName, Endpoint)| {
            below(&[&endpoint.label()], &self.name_of(of))
        };
        let mut targets: Vec<Name> = found.iter().map(name_of).collect();
        // One that has several ports may be in several slices.
        targets.dedup();
        targets
    }

    fn name_of(&self, service: &ServiceName) -> Name {
        below(&[&service.name, &service.namespace, "svc"], &self.origin)
    }
}

fn endpoint_targets(endpoint: &Endpoint, part: &Part, own: &Name) -> Vec<Target> {
    let label = endpoint.label();
    if matches!(part, Part::Endpoint(asked) if *asked != label) {
        return Vec::new();
    }
    let name = below(&[&label], own);
    let target = |port: u16| Target {
        name: name.clone(),
        address: endpoint.address,
        port,
    };
    // One that names no port is there all the same, but nowhere for SRV.
    if endpoint.ports.is_empty() && !matches!(part, Part::Port { .. }) {
        return vec![target(0)];
    }
    let ports = endpoint.ports.iter().filter(|port| part.takes(port));
    ports.map(|port| target(port.number)).collect()
}

/// A cluster domain that is none.
#[derive(Debug, thiserror::Error)]
#[error("{domain:?} is no domain name")]
pub struct InvalidDomain {
    domain: String,
    #[source]
    source: hickory_proto::ProtoError,
}

#[cfg(test)]
mod tests;
