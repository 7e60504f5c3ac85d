//! Pods of a node: namespaces that are attached through its network.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use coracle_agent::{
    network::{NetworkError, PodNetwork as _, PodNetworkRequest, cni::CniNetwork},
    runtime::types::{PodDns, PodRef, PodUid, PortMapping, SandboxId},
};
use coracle_netns::NetNs;

use super::{Node, Server, serve};

impl Node {
    /// A pod attached through `network`.
    pub(crate) fn pod(&self, network: &CniNetwork, name: &str, ports: Vec<PortMapping>) -> Pod {
        let asked = |request: &mut PodNetworkRequest| request.port_mappings = ports;
        self.try_pod(network, name, asked).unwrap()
    }

    /// The same, if it can be attached as `ask` wants it.
    pub(crate) fn try_pod(
        &self,
        network: &CniNetwork,
        name: &str,
        ask: impl FnOnce(&mut PodNetworkRequest),
    ) -> Result<Pod, NetworkError> {
        let (ns, mut request) = self.request(name);
        ask(&mut request);
        let addresses = self.block_on(network.setup(&request))?;
        let [IpAddr::V4(address)] = addresses[..] else {
            panic!("{addresses:?}")
        };
        Ok(Pod {
            ns,
            request,
            address,
        })
    }

    /// A namespace, and what its pod asks for: nothing but an address.
    pub(crate) fn request(&self, name: &str) -> (NetNs, PodNetworkRequest) {
        let netns = self.dir.join("ns").join(format!("{}-{name}", self.name));
        let ns = NetNs::create(&netns).unwrap();
        let request = PodNetworkRequest {
            sandbox_id: SandboxId(format!("{name:0>64}")),
            pod: PodRef {
                namespace: "default".into(),
                name: name.into(),
                uid: PodUid(format!("uid-{name}")),
            },
            netns,
            port_mappings: Vec::new(),
            dns: PodDns::default(),
            cgroup_parent: String::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        (ns, request)
    }
}

/// One pod.
pub(crate) struct Pod {
    pub(crate) ns: NetNs,
    pub(crate) request: PodNetworkRequest,
    pub(crate) address: Ipv4Addr,
}

impl Pod {
    /// Answers every TCP connection and UDP packet on 8080 with `<name> <client>` until dropped.
    pub(crate) fn serve(&self, name: &str) -> Server {
        serve(&self.ns, name)
    }
}
