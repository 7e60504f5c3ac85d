//! Which ports of the node its pods publish, whoever makes the network.
//!
//! Packets to them are translated: nobody listens there, so that no table of sockets shows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use async_trait::async_trait;
use coracle_netfilter::service::Protocol;
use tokio::sync::watch;

use super::{NetworkError, PodNetwork, PodNetworkRequest};
use crate::runtime::types::SandboxId;

/// A port of the node; without an address: of all of them.
pub(crate) type PublishedPort = (Option<IpAddr>, Protocol, u16);

/// Those of each sandbox. Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct PublishedPorts(watch::Sender<BTreeMap<SandboxId, BTreeSet<PublishedPort>>>);

impl Default for PublishedPorts {
    fn default() -> Self {
        Self(watch::channel(BTreeMap::new()).0)
    }
}

impl PublishedPorts {
    /// Takes in what a sandbox publishes.
    pub(crate) fn add(&self, request: &PodNetworkRequest) {
        let ports = request.port_mappings.iter().filter_map(|mapping| {
            let address = mapping.host_ip.parse().ok();
            let protocol = mapping.protocol.to_ascii_uppercase();
            Some((
                address.filter(|ip: &IpAddr| !ip.is_unspecified()),
                Protocol::parse(Some(&protocol))?,
                mapping.host_port,
            ))
        });
        let ports: BTreeSet<PublishedPort> = ports.collect();
        if !ports.is_empty() {
            let id = request.sandbox_id.clone();
            self.0
                .send_if_modified(|all| all.insert(id, ports.clone()) != Some(ports));
        }
    }

    fn remove(&self, request: &PodNetworkRequest) {
        let id = request.sandbox_id.clone();
        self.0.send_if_modified(|all| all.remove(&id).is_some());
    }

    /// All of them.
    pub(crate) fn all(&self) -> BTreeSet<PublishedPort> {
        self.0.borrow().values().flatten().copied().collect()
    }

    /// Tells of each change.
    pub(crate) fn watch(&self) -> watch::Receiver<BTreeMap<SandboxId, BTreeSet<PublishedPort>>> {
        self.0.subscribe()
    }
}

/// A network that says what its pods publish.
#[derive(Debug, Clone)]
pub(crate) struct TellingNetwork<N> {
    network: N,
    published: PublishedPorts,
}

impl<N> TellingNetwork<N> {
    pub(crate) fn new(network: N, published: PublishedPorts) -> Self {
        Self { network, published }
    }
}

#[async_trait]
impl<N: PodNetwork> PodNetwork for TellingNetwork<N> {
    async fn setup(&self, request: &PodNetworkRequest) -> Result<Vec<IpAddr>, NetworkError> {
        let result = self.network.setup(request).await;
        if result.is_ok() {
            self.published.add(request);
        }
        result
    }

    async fn teardown(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.teardown(request).await?;
        self.published.remove(request);
        Ok(())
    }

    async fn check(&self, request: &PodNetworkRequest) -> Result<(), NetworkError> {
        self.network.check(request).await
    }

    fn ready(&self) -> Result<(), NetworkError> {
        self.network.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::types::{PodDns, PodRef, PodUid, PortMapping};

    fn request(id: &str, ports: &[(&str, u16, &str)]) -> PodNetworkRequest {
        let mapping = |(protocol, host_port, host_ip): &(&str, u16, &str)| PortMapping {
            host_port: *host_port,
            container_port: 80,
            protocol: (*protocol).to_owned(),
            host_ip: (*host_ip).to_owned(),
        };
        PodNetworkRequest {
            sandbox_id: SandboxId(id.to_owned()),
            pod: PodRef {
                namespace: "ns".to_owned(),
                name: "p".to_owned(),
                uid: PodUid("u".to_owned()),
            },
            netns: "/run/netns/p".into(),
            port_mappings: ports.iter().map(mapping).collect(),
            dns: PodDns::default(),
            cgroup_parent: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_published_is_told_until_it_goes() {
        let published = PublishedPorts::default();
        let mut watch = published.watch();
        published.add(&request("a", &[]));
        assert!(!watch.has_changed().unwrap(), "nothing is no news");
        let web = request("a", &[("TCP", 443, ""), ("udp", 53, "192.0.2.1")]);
        published.add(&web);
        published.add(&request("b", &[("TCP", 443, "0.0.0.0")]));
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        published.add(&web);
        assert!(!watch.has_changed().unwrap(), "known");
        let node = IpAddr::from([192, 0, 2, 1]);
        let https = (None, Protocol::Tcp, 443);
        let all = BTreeSet::from([https, (Some(node), Protocol::Udp, 53)]);
        assert_eq!(published.all(), all);
        published.remove(&web);
        assert!(watch.has_changed().unwrap());
        assert_eq!(published.all(), [https].into());
    }
}
