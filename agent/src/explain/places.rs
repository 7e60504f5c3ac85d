//! Names as addresses: who sends, and what is asked for. Pure.

use std::net::{IpAddr, SocketAddr};

use coracle_api::cluster_dns;
use coracle_netfilter::service::{PortView, Protocol, ServiceKey, ServiceView, way::Sender};

use super::{
    answer::Party,
    question::{Name, Place, PortRef, Target, protocol},
    world::{KnownPod, World},
};

/// Who sends.
#[derive(Debug)]
pub(super) struct From {
    pub(super) party: Party,
    pub(super) sender: Sender,
    /// The node that its packets begin on, if it is one of the cluster's.
    pub(super) node: Option<String>,
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct To {
    pub(super) party: Party,
    pub(super) at: SocketAddr,
    pub(super) protocol: Protocol,
}

impl World {
    /// Who sends to `to`.
    pub(super) fn from(&self, place: &Place, to: IpAddr) -> Result<From, String> {
        match place {
            Place::Service(name) => Err(format!(
                "Service {name} sends nothing: name one of its pods instead"
            )),
            Place::Pod(name) => {
                let pod = self.known_pod(name)?;
                let address = address_of(pod, to.is_ipv4())?;
                let from = self.sender_at(address);
                Ok(match pod.host_network {
                    true => From {
                        party: Party {
                            name: Some(format!("pod {name}, on its node's network")),
                            ..from.party
                        },
                        ..from
                    },
                    false => from,
                })
            }
            Place::Node(name) => Ok(self.sender_at(self.known_node(name.as_deref())?)),
            Place::Address(address) if address.is_ipv4() != to.is_ipv4() => Err(format!(
                "{address} and {to} are of different families: no packet goes from one to the other"
            )),
            Place::Address(address) => Ok(self.sender_at(*address)),
        }
    }

    fn sender_at(&self, address: IpAddr) -> From {
        let node_of_pod = self.node_of_pod_address(address);
        let (sender, node) = if self.kernel.own.contains(&address) {
            (Sender::Node, Some(self.node.clone()))
        } else if node_of_pod.is_some_and(|node| self.is_here(node)) {
            (Sender::Pod, Some(self.node.clone()))
        } else {
            let node = node_of_pod.or_else(|| self.node_at(address));
            (Sender::Elsewhere, node.map(str::to_owned))
        };
        From {
            party: self.party(address),
            sender,
            node,
        }
    }

    /// Who is at an address.
    pub(super) fn party(&self, address: IpAddr) -> Party {
        let node = self.node_of_pod_address(address);
        Party {
            address,
            name: self.owner(address),
            node: node.or_else(|| self.node_at(address)).map(str::to_owned),
        }
    }

    /// What is asked for.
    pub(super) fn to(&self, target: &Target) -> Result<To, String> {
        let said = target.protocol.as_deref().and_then(protocol);
        let (address, owner) = match &target.place {
            Place::Service(name) => return self.to_service(name, target, said),
            Place::Pod(name) => (address_of(self.known_pod(name)?, true)?, None),
            Place::Node(name) => (self.known_node(name.as_deref())?, None),
            Place::Address(address) => (*address, self.owner_of_vip(*address)),
        };
        let port = match &target.port {
            Some(PortRef::Number(port)) => *port,
            Some(PortRef::Name(name)) => {
                return Err(format!(
                    "port {name:?}: only ports of Services are known by name: give its number"
                ));
            }
            None => return Err("which port? Add it as :PORT, and /udp or /sctp".to_owned()),
        };
        let mut party = self.party(address);
        party.name = party.name.or(owner);
        Ok(To {
            party,
            at: SocketAddr::new(address, port),
            protocol: said.unwrap_or(Protocol::Tcp),
        })
    }

    fn to_service(
        &self,
        name: &Name,
        target: &Target,
        said: Option<Protocol>,
    ) -> Result<To, String> {
        let key = service_key(name);
        let view = self.services.get(&key);
        let is_dns =
            (&*name.namespace, &*name.name) == (cluster_dns::NAMESPACE, cluster_dns::SERVICE);
        let answered_here = self.network.own_service_ip.filter(|_| is_dns);
        let address = match (view, answered_here) {
            (Some(view), _) => view.cluster_ips.first().copied(),
            (None, Some(address)) => Some(address),
            (None, None) => return Err(self.unknown_service(&key)),
        };
        let address = address.ok_or_else(|| format!("Service {name} has no address"))?;
        let (port, protocol) = match view {
            Some(view) => port_of(name, view, target.port.as_ref(), said)?,
            None => match &target.port {
                Some(PortRef::Number(port)) => (*port, said.unwrap_or(Protocol::Udp)),
                _ => (cluster_dns::PORT, said.unwrap_or(Protocol::Udp)),
            },
        };
        Ok(To {
            party: Party {
                address,
                name: Some(format!("Service {name}")),
                node: None,
            },
            at: SocketAddr::new(address, port),
            protocol,
        })
    }

    /// Why there is nothing to say about it.
    pub(super) fn unknown_service(&self, key: &ServiceKey) -> String {
        match self.without_rules.get(key) {
            Some(why) => format!("Service {key} has no rules: {why}"),
            None => format!(
                "node {} knows no Service {key}: see `kubectl get services -A`",
                self.node
            ),
        }
    }

    fn owner_of_vip(&self, address: IpAddr) -> Option<String> {
        let has = |view: &ServiceView| {
            let lists = [&view.cluster_ips, &view.external_ips, &view.balancer_ips];
            lists.iter().any(|list| list.contains(&address))
        };
        let mut services = self.services.iter();
        let owner = services.find(|(_, view)| has(view));
        owner.map(|(key, _)| format!("Service {key}"))
    }

    pub(super) fn known_pod(&self, name: &Name) -> Result<&KnownPod, String> {
        let text = name.to_string();
        self.pod(&text).ok_or_else(|| {
            format!(
                "node {} knows no running pod {name}: see `kubectl get pod -n {} {}`; a pod of another node may be named by its address",
                self.node, name.namespace, name.name
            )
        })
    }

    fn known_node(&self, name: Option<&str>) -> Result<IpAddr, String> {
        let name = name.unwrap_or(&self.node);
        self.address_of_node(name).ok_or_else(|| {
            format!(
                "node {} knows no address of node {name}: see `kubectl get nodes -o wide`, or give the address",
                self.node
            )
        })
    }
}

pub(super) fn service_key(name: &Name) -> ServiceKey {
    ServiceKey {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    }
}

fn address_of(pod: &KnownPod, is_ipv4: bool) -> Result<IpAddr, String> {
    let mut addresses = pod.addresses.iter();
    let of_family = addresses.find(|address| address.is_ipv4() == is_ipv4);
    of_family.copied().ok_or_else(|| {
        let family = if is_ipv4 { "IPv4" } else { "IPv6" };
        format!("pod {} has no {family} address yet", pod.name)
    })
}

fn port_of(
    name: &Name,
    view: &ServiceView,
    port: Option<&PortRef>,
    said: Option<Protocol>,
) -> Result<(u16, Protocol), String> {
    let is_meant = |one: &&PortView| {
        let is_port = match port {
            Some(PortRef::Number(number)) => one.port.port == *number,
            Some(PortRef::Name(name)) => one.port.name == *name,
            None => true,
        };
        is_port && said.is_none_or(|protocol| protocol == one.port.protocol)
    };
    let found: Vec<&PortView> = view.ports.iter().filter(is_meant).collect();
    let ports = || {
        let ports = view.ports.iter().map(|one| &one.port);
        let ports = ports.map(|port| format!("{}/{}", port.port, port.protocol.as_str()));
        ports.collect::<Vec<_>>().join(", ")
    };
    match (&found[..], port) {
        ([one, ..], Some(_)) | ([one], None) => Ok((one.port.port, one.port.protocol)),
        // That the Service does not have it is the answer.
        ([], Some(PortRef::Number(number))) => Ok((*number, said.unwrap_or(Protocol::Tcp))),
        ([], _) => Err(format!(
            "Service {name} has no such port: it has {}",
            ports()
        )),
        (_, None) => Err(format!(
            "which port of Service {name}? It has {}: add one as :PORT",
            ports()
        )),
    }
}
