//! Whose node ports there are. Pure.
//!
//! Nobody listens at them, so that no table of sockets shows them.

use std::collections::{BTreeMap, BTreeSet};

use coracle_netfilter::service::{Protocol, ServiceKey, ServiceView};

type NodePort = (Protocol, u16);

/// Those of all Services.
#[derive(Debug, Default)]
pub(super) struct NodePorts {
    of_service: BTreeMap<ServiceKey, BTreeSet<NodePort>>,
    /// More than one may have one: transport and owner of a port change one after the other.
    owners: BTreeMap<NodePort, BTreeSet<ServiceKey>>,
}

impl NodePorts {
    /// Takes in what a Service is now. Returns whether that changes anything.
    pub(super) fn set(&mut self, key: &ServiceKey, view: Option<&ServiceView>) -> bool {
        let ports = view.into_iter().flat_map(|view| &view.ports);
        let ports = ports.filter_map(|one| Some((one.port.protocol, one.port.node_port?)));
        let ports: BTreeSet<NodePort> = ports.collect();
        let before = self.of_service.remove(key).unwrap_or_default();
        let is_changed = before != ports;
        for port in before.difference(&ports) {
            let Some(owners) = self.owners.get_mut(port) else {
                continue;
            };
            owners.remove(key);
            if owners.is_empty() {
                self.owners.remove(port);
            }
        }
        for port in &ports {
            self.owners.entry(*port).or_default().insert(key.clone());
        }
        if !ports.is_empty() {
            self.of_service.insert(key.clone(), ports);
        }
        is_changed
    }

    /// Whether `port` is that of another than `key`.
    pub(super) fn is_of_another(&self, key: &ServiceKey, port: NodePort) -> bool {
        let owners = self.owners.get(&port).into_iter().flatten();
        owners.into_iter().any(|owner| owner != key)
    }
}
