//! Pods and namespaces, cut down to what policies look at.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use coracle_netfilter::service::Protocol;
use k8s_openapi::api::core::v1::{Container, Pod};

/// Labels, sorted by key. The strings are shared by all who have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(Arc<str>, Arc<str>)>);

impl Labels {
    /// From keys and values; of one key, the first counts.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let pair = |(k, v): (K, V)| (Arc::from(k.as_ref()), Arc::from(v.as_ref()));
        let mut labels: Vec<(Arc<str>, Arc<str>)> = labels.into_iter().map(pair).collect();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        labels.dedup_by(|a, b| a.0 == b.0);
        Self(labels)
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }
}

/// Which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl PodKey {
    /// Of a namespace and a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// A port that a container has given a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedPort {
    /// The name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
}

/// A pod that policies can speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Which pod.
    pub key: PodKey,
    /// Its labels.
    pub labels: Labels,
    /// Its addresses; one at least.
    pub addresses: Vec<IpAddr>,
    /// The node it runs on.
    pub node: Arc<str>,
    /// Its named ports.
    pub ports: Vec<NamedPort>,
}

impl PodView {
    /// `None` for a pod of which policies do not speak: on the node's network, finished, or
    /// without an address.
    #[must_use]
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref()?;
        let is_finished = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if spec.host_network == Some(true) || is_finished {
            return None;
        }
        let listed = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
        let addresses: BTreeSet<IpAddr> = listed
            .chain(status.pod_ip.as_deref())
            .filter_map(|ip| ip.parse().ok())
            .collect();
        if addresses.is_empty() {
            return None;
        }
        // Init containers that go on running serve ports too.
        let sidecars = spec.init_containers.iter().flatten();
        let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
        let meta = &pod.metadata;
        Some(Self {
            key: PodKey::new(meta.namespace.as_deref()?, meta.name.as_deref()?),
            labels: Labels::new(meta.labels.iter().flatten()),
            addresses: addresses.into_iter().collect(),
            node: spec.node_name.as_deref().unwrap_or_default().into(),
            ports: spec
                .containers
                .iter()
                .chain(sidecars)
                .flat_map(named_ports)
                .collect(),
        })
    }

    /// Gives equal strings of all pods one place, kept in `strings`.
    pub(crate) fn share(&mut self, strings: &mut BTreeSet<Arc<str>>) {
        let mut share = |text: &mut Arc<str>| {
            if let Some(known) = strings.get(&**text) {
                *text = known.clone();
            } else {
                strings.insert(text.clone());
            }
        };
        share(&mut self.key.namespace);
        share(&mut self.node);
        for (key, value) in &mut self.labels.0 {
            share(key);
            share(value);
        }
        for port in &mut self.ports {
            share(&mut port.name);
        }
    }
}

fn named_ports(container: &Container) -> impl Iterator<Item = NamedPort> {
    let ports = container.ports.iter().flatten();
    ports.filter_map(|port| {
        Some(NamedPort {
            name: port.name.as_deref()?.into(),
            protocol: Protocol::parse(port.protocol.as_deref())?,
            port: u16::try_from(port.container_port).ok()?,
        })
    })
}
