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

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::{
    Name, RData, Record, RecordType,
    rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT},
};
use rand::seq::SliceRandom as _;

use crate::directory::{Directory, Endpoint, Port, Service, ServiceName};

/// Seconds that an answer may be kept for.
pub const TTL: u32 = 5;
/// What the zone keeps to.
const VERSION: &str = "1.1.0";
/// Of the start of authority, which nobody copies zones by.
const REFRESH: i32 = 7200;
const RETRY: i32 = 1800;
const EXPIRE: i32 = 86_400;
/// Labels of an address in `in-addr.arpa` and `ip6.arpa`.
const NIBBLES: usize = 32;

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

/// A name below the zone, taken apart.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// The zone, or a name that only has others below it.
    Apex,
    Version,
    Server,
    /// `NAMESPACE.svc`.
    Namespace(String),
    Service {
        of: ServiceName,
        part: Part,
    },
    Pod {
        address: String,
    },
    Nothing,
}

/// What of a Service.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Endpoint(String),
    Port { name: String, protocol: String },
}

/// One place where a Service is, as a record of type SRV needs it.
struct Target {
    name: Name,
    address: IpAddr,
    port: u16,
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
        match self.parse(name) {
            Asked::Nothing => Found::NoName,
            Asked::Apex => self.apex(name, of),
            Asked::Version if of == RecordType::TXT => {
                let text = TXT::new(vec![VERSION.to_owned()]);
                one(name, RData::TXT(text))
            }
            Asked::Version => Found::NoData,
            Asked::Server => addresses(name, self.address.into_iter(), of),
            Asked::Namespace(namespace) if names.has_services(&namespace) => Found::NoData,
            Asked::Namespace(_) => Found::NoName,
            Asked::Pod { address } => match dashed(&address) {
                Some(address) => addresses(name, std::iter::once(address), of),
                None => Found::NoName,
            },
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

    /// From the right, as far as it is a name of this zone.
    fn parse(&self, name: &Name) -> Asked {
        let count = usize::from(name.num_labels()).saturating_sub(self.depth);
        let labels: Option<Vec<String>> = name.iter().take(count).map(label).collect();
        let labels = labels.unwrap_or_else(|| vec![String::new()]);
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let service = |namespace: &str, name: &str, part| Asked::Service {
            of: ServiceName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            part,
        };
        match labels[..] {
            [] | ["svc" | "pod" | "dns"] | [_, "pod"] => Asked::Apex,
            ["dns-version"] => Asked::Version,
            ["ns", "dns"] => Asked::Server,
            [namespace, "svc"] => Asked::Namespace(namespace.to_owned()),
            [address, _, "pod"] => Asked::Pod {
                address: address.to_owned(),
            },
            [name, namespace, "svc"] => service(namespace, name, Part::Whole),
            [endpoint, name, namespace, "svc"] => {
                service(namespace, name, Part::Endpoint(endpoint.to_owned()))
            }
            [port, protocol, name, namespace, "svc"] => {
                match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                    (Some(port), Some(protocol)) => {
                        let part = Part::Port {
                            name: port.to_owned(),
                            protocol: protocol.to_owned(),
                        };
                        service(namespace, name, part)
                    }
                    _ => Asked::Nothing,
                }
            }
            _ => Asked::Nothing,
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
        let own = below(&[&of.name, &of.namespace, "svc"], &self.origin);
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
        let service = names.service_at(address);
        let found = service.map(|service| (service, None)).or_else(|| {
            let (service, label) = names.endpoint_at(address)?;
            Some((service, Some(label)))
        });
        let Some((service, endpoint)) = found else {
            return Found::Foreign;
        };
        if of != RecordType::PTR {
            return Found::NoData;
        }
        let own = below(&[&service.name, &service.namespace, "svc"], &self.origin);
        let target = match endpoint {
            Some(label) => below(&[&label], &own),
            None => own,
        };
        one(name, RData::PTR(PTR(target)))
    }
}

impl Part {
    /// Whether a port is meant.
    fn takes(&self, port: &Port) -> bool {
        match self {
            Self::Whole | Self::Endpoint(_) => true,
            Self::Port { name, protocol } => {
                port.name.eq_ignore_ascii_case(name) && port.protocol == protocol
            }
        }
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

fn records(name: &Name, targets: Vec<Target>, of: RecordType) -> Found {
    if of != RecordType::SRV {
        return addresses(name, targets.into_iter().map(|target| target.address), of);
    }
    let mut places: Vec<(Name, u16)> = targets
        .iter()
        .filter(|target| target.port != 0)
        .map(|target| (target.name.clone(), target.port))
        .collect();
    places.sort();
    places.dedup();
    if places.is_empty() {
        return Found::NoData;
    }
    places.shuffle(&mut rand::rng());
    let weight = u16::try_from(100 / places.len()).unwrap_or(0).max(1);
    let answers = places.into_iter().map(|(target, port)| {
        let data = RData::SRV(SRV::new(0, weight, port, target));
        Record::from_rdata(name.clone(), TTL, data)
    });
    let mut additionals: Vec<Record> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for target in &targets {
        if target.port != 0 && seen.insert((target.name.clone(), target.address)) {
            additionals.push(address_record(&target.name, target.address));
        }
    }
    Found::Records {
        answers: answers.collect(),
        additionals,
    }
}

fn addresses(name: &Name, all: impl Iterator<Item = IpAddr>, of: RecordType) -> Found {
    let mut all: Vec<IpAddr> = all
        .filter(|address| match of {
            RecordType::A => address.is_ipv4(),
            RecordType::AAAA => address.is_ipv6(),
            _ => false,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Found::NoData;
    }
    all.shuffle(&mut rand::rng());
    Found::Records {
        answers: all
            .into_iter()
            .map(|one| address_record(name, one))
            .collect(),
        additionals: Vec::new(),
    }
}

fn alias(name: &Name, other: &str, wanted: RecordType) -> Found {
    // An address in a field for names is no name.
    let target = Name::from_ascii(other.trim_end_matches('.')).ok();
    let target = target.filter(|_| other.parse::<IpAddr>().is_err());
    match (target, wanted) {
        (Some(mut target), RecordType::A | RecordType::AAAA | RecordType::CNAME) => {
            target.set_fqdn(true);
            let data = RData::CNAME(CNAME(target.clone()));
            Found::Alias {
                record: Box::new(Record::from_rdata(name.clone(), TTL, data)),
                target,
            }
        }
        (Some(_), _) => Found::NoData,
        (None, _) => Found::NoName,
    }
}

fn one(name: &Name, data: RData) -> Found {
    Found::Records {
        answers: vec![Record::from_rdata(name.clone(), TTL, data)],
        additionals: Vec::new(),
    }
}

fn address_record(name: &Name, address: IpAddr) -> Record {
    let data = match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(name.clone(), TTL, data)
}

/// A name below another one. What is too long for a name is cut at its left: nobody can ask for it.
fn below(labels: &[&str], origin: &Name) -> Name {
    labels.iter().rev().fold(origin.clone(), |name, label| {
        name.prepend_label(label.as_bytes()).unwrap_or(name)
    })
}

/// In lower case; `None` for what no object is called.
fn label(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.contains('.')).then(|| text.to_ascii_lowercase())
}

/// `10-0-0-1`, `2001-db8--1`.
fn dashed(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    v4.or_else(|_| label.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6))
        .ok()
}

/// The address of a name below `in-addr.arpa` or `ip6.arpa`, whole.
fn reversed(name: &Name) -> Option<IpAddr> {
    let labels: Option<Vec<String>> = name.iter().map(label).collect();
    let labels = labels?;
    match labels.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [d, c, b, a, "in-addr", "arpa"] => format!("{a}.{b}.{c}.{d}").parse().ok(),
        [ref nibbles @ .., "ip6", "arpa"] if nibbles.len() == NIBBLES => {
            let mut digits = String::new();
            for (index, nibble) in nibbles.iter().rev().enumerate() {
                if index > 0 && index % 4 == 0 {
                    digits.push(':');
                }
                digits.push_str(nibble);
            }
            digits.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
        _ => None,
    }
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
