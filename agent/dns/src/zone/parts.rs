//! Names below the zone, and below those of addresses, taken apart. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::Name;

use crate::directory::{Port, ServiceName};

/// Labels of an address in `ip6.arpa`.
const NIBBLES: usize = 32;

/// A name below the zone, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The zone, or a name that only has others below it.
    Apex,
    Version,
    Server,
    /// `NAMESPACE.svc`, `NAMESPACE.pod`.
    Namespace(String),
    Service {
        of: ServiceName,
        part: Part,
    },
    Pod {
        address: String,
        namespace: String,
    },
    Nothing,
}

/// What of a Service.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Endpoint(String),
    Port { name: String, protocol: String },
}

impl Part {
    /// Whether a port is meant.
    pub(super) fn takes(&self, port: &Port) -> bool {
        match self {
            Self::Whole | Self::Endpoint(_) => true,
            Self::Port { name, protocol } => {
                port.name.eq_ignore_ascii_case(name) && port.protocol == protocol
            }
        }
    }
}

/// From the right, as far as it is a name of a zone of so many labels.
pub(super) fn parse(name: &Name, depth: usize) -> Asked {
    let count = usize::from(name.num_labels()).saturating_sub(depth);
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
        [] | ["svc" | "pod" | "dns"] => Asked::Apex,
        ["dns-version"] => Asked::Version,
        ["ns", "dns"] => Asked::Server,
        [namespace, "svc" | "pod"] => Asked::Namespace(namespace.to_owned()),
        [address, namespace, "pod"] => Asked::Pod {
            address: address.to_owned(),
            namespace: namespace.to_owned(),
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

/// In lower case; `None` for what no object is called.
fn label(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.contains('.')).then(|| text.to_ascii_lowercase())
}

/// `10-0-0-1`, `2001-db8--1`.
pub(super) fn dashed(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    v4.or_else(|_| label.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6))
        .ok()
}

/// The address of a name below `in-addr.arpa` or `ip6.arpa`, whole.
pub(super) fn reversed(name: &Name) -> Option<IpAddr> {
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
