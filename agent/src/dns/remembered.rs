//! The Services that were known last, on the disk: a node whose agent starts while no API server
//! answers goes on answering their names, as one does that has lost its server.
//!
//! Shape: `<agent>/names.json`, mode 0600: for each Service what its names lead to, and nothing
//! that a pod could not ask for. One writer, [`Names::remember`](super::names::Names::remember).
//! What is not as it should be is told and left out: then names wait for a server.

use std::{
    collections::BTreeMap,
    fs::File,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use coracle_dns::directory::{Endpoint, Port, Service, ServiceName};
use coracle_telemetry::ErrorChain;
use coracle_trust::private_file;
use serde::{Deserialize, Serialize};

/// More than it can be: of a Service with an endpoint it takes 200 bytes.
const BYTES_MOST: u64 = 128 * 1024 * 1024;
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Services as they were.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Remembered {
    services: BTreeMap<ServiceName, (Service, Vec<Endpoint>)>,
}

/// Where they are kept, and what is there.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// Of the bytes: most Services change nothing of their names.
    hash: u64,
}

// === impl Remembered ===

impl Remembered {
    pub(super) fn new(
        services: impl Iterator<Item = (ServiceName, Service, Vec<Endpoint>)>,
    ) -> Self {
        let services = services.map(|(name, service, endpoints)| (name, (service, endpoints)));
        Self {
            services: services.collect(),
        }
    }

    pub(super) fn service(&self, namespace: &str, name: &str) -> Option<Service> {
        Some(self.get(namespace, name)?.0.clone())
    }

    pub(super) fn endpoints(&self, namespace: &str, name: &str) -> Vec<Endpoint> {
        let found = self.get(namespace, name);
        found.map(|(_, all)| all.clone()).unwrap_or_default()
    }

    pub(super) fn service_at(&self, address: IpAddr) -> Option<ServiceName> {
        let has = |service: &Service| match service {
            Service::Addresses { addresses, .. } => addresses.contains(&address),
            Service::Headless | Service::External(_) => false,
        };
        let mut services = self.services.iter();
        let (name, _) = services.find(|(_, (service, _))| has(service))?;
        Some(name.clone())
    }

    pub(super) fn endpoints_at(&self, address: IpAddr) -> Vec<(ServiceName, Endpoint)> {
        let of_service = |(name, (_, all)): (&ServiceName, &(Service, Vec<Endpoint>))| {
            let found = all.iter().filter(|one| one.address == address);
            let found = found.map(|one| (name.clone(), one.clone()));
            found.collect::<Vec<_>>()
        };
        self.services.iter().flat_map(of_service).collect()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<&(Service, Vec<Endpoint>)> {
        self.services.get(&ServiceName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

// === impl Kept ===

impl Kept {
    /// With what is there. Blocks.
    pub(super) fn load(path: PathBuf) -> (Self, Option<Remembered>) {
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(BYTES_MOST).read_to_end(&mut text));
        let known = match read {
            Ok(_) => serde_json::from_slice::<Shape>(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return (Self { path, hash: 0 }, None);
            }
            Err(error) => Err(ErrorChain(&error).to_string()),
        };
        let known = known
            .inspect_err(|why| {
                tracing::warn!(path = %path.display(), why, "cannot read which Services there were");
            })
            .ok();
        let hash = hash(&text);
        (Self { path, hash }, known.map(Remembered::from))
    }

    /// Puts others there, if they differ. Blocks.
    pub(super) fn save(&mut self, remembered: &Remembered) {
        if let Err(error) = write(&self.path, remembered, &mut self.hash) {
            let error = ErrorChain(&error);
            tracing::warn!(path = %self.path.display(), %error, "cannot keep which Services there are");
        }
    }
}

fn write(path: &Path, remembered: &Remembered, before: &mut u64) -> io::Result<()> {
    let text = serde_json::to_vec(&Shape::from(remembered))?;
    let now = hash(&text);
    if now != *before {
        private_file::write(path, &text)?;
        *before = now;
    }
    Ok(())
}

fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

// === The file ===

#[derive(Serialize, Deserialize)]
struct Shape {
    services: Vec<ServiceShape>,
}

#[derive(Serialize, Deserialize)]
struct ServiceShape {
    namespace: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external: Option<String>,
    /// Without any it is headless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<PortShape>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    endpoints: Vec<EndpointShape>,
}

#[derive(Serialize, Deserialize)]
struct EndpointShape {
    address: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<PortShape>,
}

/// Name, transport, number.
#[derive(Serialize, Deserialize)]
struct PortShape(String, String, u16);

impl From<&Remembered> for Shape {
    fn from(remembered: &Remembered) -> Self {
        let services = remembered.services.iter();
        Self {
            services: services
                .map(|(of, (service, endpoints))| ServiceShape::of(of, service, endpoints))
                .collect(),
        }
    }
}

impl From<Shape> for Remembered {
    fn from(shape: Shape) -> Self {
        Self::new(shape.services.into_iter().map(ServiceShape::into_parts))
    }
}

impl ServiceShape {
    fn of(of: &ServiceName, service: &Service, endpoints: &[Endpoint]) -> Self {
        let (external, addresses, ports) = match service {
            Service::External(other) => (Some(other.clone()), Vec::new(), Vec::new()),
            Service::Headless => (None, Vec::new(), Vec::new()),
            Service::Addresses { addresses, ports } => (
                None,
                addresses.clone(),
                ports.iter().map(PortShape::of).collect(),
            ),
        };
        let endpoints = endpoints.iter().map(|one| EndpointShape {
            address: one.address,
            hostname: one.hostname.clone(),
            ports: one.ports.iter().map(PortShape::of).collect(),
        });
        Self {
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            external,
            addresses,
            ports,
            endpoints: endpoints.collect(),
        }
    }

    fn into_parts(self) -> (ServiceName, Service, Vec<Endpoint>) {
        let service = match (self.external, self.addresses) {
            (Some(other), _) => Service::External(other),
            (None, addresses) if addresses.is_empty() => Service::Headless,
            (None, addresses) => Service::Addresses {
                addresses,
                ports: ports(self.ports),
            },
        };
        let endpoints = self.endpoints.into_iter().map(|one| Endpoint {
            address: one.address,
            hostname: one.hostname,
            ports: Arc::from(ports(one.ports)),
        });
        let of = ServiceName {
            namespace: self.namespace,
            name: self.name,
        };
        (of, service, endpoints.collect())
    }
}

impl PortShape {
    fn of(port: &Port) -> Self {
        Self(port.name.clone(), port.protocol.to_owned(), port.number)
    }
}

fn ports(shapes: Vec<PortShape>) -> Vec<Port> {
    let port = |PortShape(name, protocol, number): PortShape| {
        let protocol = PROTOCOLS.into_iter().find(|one| *one == protocol)?;
        Some(Port {
            name,
            protocol,
            number,
        })
    };
    shapes.into_iter().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn some() -> Remembered {
        let port = |name: &str| Port {
            name: name.to_owned(),
            protocol: "udp",
            number: 53,
        };
        let endpoint = |last: u8, hostname: Option<&str>| Endpoint {
            address: [10, 244, 0, last].into(),
            hostname: hostname.map(str::to_owned),
            ports: [port("dns"), port("")].into(),
        };
        let addressed = Service::Addresses {
            addresses: vec![[10, 96, 0, 7].into(), "fd00::7".parse().unwrap()],
            ports: vec![port("dns")],
        };
        let all = [
            ("a", addressed, vec![endpoint(1, None)]),
            (
                "h",
                Service::Headless,
                vec![endpoint(1, Some("Peer-0")), endpoint(2, None)],
            ),
            ("n", Service::Headless, vec![]),
            ("x", Service::External("www.example.org".to_owned()), vec![]),
        ];
        Remembered::new(all.into_iter().map(|(name, service, endpoints)| {
            let name = ServiceName {
                namespace: "ns".to_owned(),
                name: name.to_owned(),
            };
            (name, service, endpoints)
        }))
    }

    #[test]
    fn what_is_kept_is_there_again_and_roots_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.json");
        let (mut kept, none) = Kept::load(path.clone());
        assert_eq!(none, None);
        kept.save(&some());
        let (mut again, found) = Kept::load(path.clone());
        assert_eq!(found, Some(some()));
        let file = || std::fs::metadata(&path).unwrap();
        assert_eq!(file().permissions().mode() & 0o777, 0o600);
        let inode = file().ino();
        again.save(&some());
        assert_eq!(file().ino(), inode, "nothing is written anew");
        again.save(&Remembered::default());
        assert_eq!(Kept::load(path).1, Some(Remembered::default()));
    }

    #[test]
    fn what_is_kept_is_found_as_it_was() {
        let known = some();
        let at = |last: u8| IpAddr::from([10, 96, 0, last]);
        assert_eq!(known.service_at(at(7)).unwrap().name, "a");
        assert_eq!(known.service_at(at(8)), None);
        let names = |address: IpAddr| {
            let found = known.endpoints_at(address).into_iter();
            let labels = found.map(|(of, one)| format!("{}.{}", one.label(), of.name));
            labels.collect::<Vec<_>>()
        };
        assert_eq!(names([10, 244, 0, 1].into()), ["10-244-0-1.a", "peer-0.h"]);
        assert_eq!(known.endpoints("ns", "h").len(), 2);
        assert_eq!(known.endpoints("ns", "absent").len(), 0);
        assert_eq!(known.service("ns", "n"), Some(Service::Headless));
        assert_eq!(known.service("other", "n"), None);
    }

    #[test]
    fn garbage_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.json");
        for text in [
            "",
            "\0\0",
            "[]",
            "{}",
            r#"{"services":[{"namespace":"a"}]}"#,
            r#"{"services":["#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Kept::load(path.clone()).1, None, "{text}");
        }
        let odd = r#"{"services":[{"namespace":"a","name":"b","addresses":["10.96.0.1"],"ports":[["p","icmp",1]]}]}"#;
        std::fs::write(&path, odd).unwrap();
        let found = Kept::load(path).1.unwrap().service("a", "b");
        let expected = Service::Addresses {
            addresses: vec![[10, 96, 0, 1].into()],
            ports: Vec::new(),
        };
        assert_eq!(found, Some(expected));
    }
}
