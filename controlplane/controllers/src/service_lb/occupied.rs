//! Ports of nodes that somebody has who asks for no balancer: node ports of other Services, and
//! host ports of pods. Pure.
//!
//! Of pods nothing is kept here: an index has those with host ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use coracle_api::scheduling::HostPort;
use coracle_client::cache::Index;
use k8s_openapi::api::core::v1::Service;

use super::claims::{Holder, Port};
use crate::{cache::Key, pod::Pod, pod_state};

/// The one key of [`with_host_ports`].
pub(super) const ANY: &str = "any";

/// The pods that take ports of nodes.
pub(super) fn with_host_ports() -> Index<Pod> {
    Index::new("host ports", |pod: &Pod, put| {
        if pod_state::host_ports(pod).next().is_some() {
            put(ANY);
        }
    })
}

/// What a pod takes of which node, if it does.
pub(super) fn taken_by(pod: &Pod) -> Option<(&str, Vec<&HostPort>)> {
    let (node, ports) = (pod_state::node_name(pod), pod_state::host_ports(pod));
    let ports: Vec<&HostPort> = ports.collect();
    let takes = !ports.is_empty() && !node.is_empty() && !pod_state::is_finished(pod);
    takes.then_some((node, ports))
}

/// The node ports of a Service.
pub(super) fn node_ports(service: &Service) -> BTreeSet<Port> {
    let ports = service.spec.iter().flat_map(|spec| &spec.ports).flatten();
    let ports = ports.filter_map(|port| {
        let number = port.node_port.filter(|number| *number != 0)?;
        Some(Port::new(number, port.protocol.as_deref()))
    });
    ports.collect()
}

/// Who has what.
#[derive(Debug, Default)]
pub(super) struct Occupied {
    node_ports: BTreeMap<Port, BTreeSet<Key>>,
    /// By node.
    host_ports: BTreeMap<String, Vec<(HostPort, Key)>>,
}

impl Occupied {
    pub(super) fn by<'a>(
        services: impl Iterator<Item = &'a Service>,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let mut occupied = Self::default();
        for service in services {
            for port in node_ports(service) {
                let owners = occupied.node_ports.entry(port).or_default();
                owners.insert(Key::of(service));
            }
        }
        for pod in pods {
            let Some((node, ports)) = taken_by(pod) else {
                continue;
            };
            let of_node = occupied.host_ports.entry(node.to_owned()).or_default();
            of_node.extend(ports.into_iter().map(|port| (port.clone(), Key::of(pod))));
        }
        occupied
    }

    /// Who has `port` of `address`, which `nodes` have, beside the Service `key`.
    pub(super) fn holder<'a>(
        &self,
        key: &Key,
        (address, port): (IpAddr, &Port),
        nodes: impl Iterator<Item = &'a String>,
    ) -> Option<Holder> {
        let mut owners = self.node_ports.get(port).into_iter().flatten();
        if let Some(owner) = owners.find(|owner| *owner != key) {
            return Some(Holder::NodePort(owner.clone()));
        }
        let wanted = HostPort {
            ip: address.to_string(),
            protocol: port.protocol.clone(),
            port: port.number,
        };
        let mut taken = nodes.filter_map(|node| self.host_ports.get(node)).flatten();
        let (_, pod) = taken.find(|(port, _)| port.conflicts(&wanted))?;
        Some(Holder::HostPort(pod.clone()))
    }
}
