//! Puts together what an answer follows from: plans of those who write rules, what the API shows,
//! and the kernel's facts.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use coracle_client::cache::{Cache, Key};
use coracle_netfilter::{host_port::HostPort, node::Overlay, service::Protocol};
use coracle_telemetry::ErrorChain;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Api;
use tokio::time::timeout;

use super::{
    answer::Answer,
    kernel::Kernel,
    question::{Name, Place, Question, Subject},
    world::{KnownNode, KnownPod, OwnNetwork, World},
};
use crate::{
    AgentConfig,
    blocking::blocking,
    informers::{Informers, SeenNode, SeenPeer},
    network::cni::CniNetwork,
    policy::{self, PolicyPlan},
    proxy::{self, ServicePlan},
};

/// A task that writes rules may be in the middle of a long transaction.
const OWNERS_LIMIT: Duration = Duration::from_secs(10);
/// For the API to tell of a pod of another node.
const API_LIMIT: Duration = Duration::from_secs(3);

/// Asks all who know something.
pub(crate) struct Gatherer {
    node: String,
    node_ip: IpAddr,
    /// Of the own network.
    bridge: Option<String>,
    cluster_cidr: Option<IpNet>,
    services: proxy::Sources,
    policies: Option<policy::Sources>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<SeenNode>>,
    client: kube::Client,
    /// The own one; without it nobody is kept from an overlay.
    network: Option<CniNetwork>,
}

impl Gatherer {
    /// Before the informers run.
    pub(crate) fn new(
        config: &AgentConfig,
        client: kube::Client,
        informers: &Informers,
        services: proxy::Sources,
        policies: Option<policy::Sources>,
    ) -> Self {
        let is_own = config.cni_conf_dir.is_none();
        Self {
            node: config.node_name.clone(),
            node_ip: config.node_ip,
            bridge: is_own.then(|| config.bridge.clone()),
            cluster_cidr: config.cluster_cidr,
            services,
            policies,
            pods: informers.pods.cache(),
            nodes: informers.nodes.cache(),
            client,
            network: None,
        }
    }

    /// Asks the node's network what it keeps pods from.
    pub(crate) fn with_network(mut self, network: Option<CniNetwork>) -> Self {
        self.network = network;
        self
    }

    /// The answer.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub(super) async fn answer(&self, question: Question) -> Result<Answer, String> {
        let mut world = self.world().await?;
        for name in pods_of(&question) {
            if world.pod(&name.to_string()).is_none()
                && let Some(pod) = self.pod_of_another_node(name).await
            {
                world.pods.push(pod);
            }
        }
        blocking(move || world.answer(&question)).await
    }

    async fn world(&self) -> Result<World, String> {
        let services = timeout(OWNERS_LIMIT, self.services.plan());
        let policies = async {
            match &self.policies {
                Some(sources) => timeout(OWNERS_LIMIT, sources.inquiries().ask()).await,
                None => Ok(None),
            }
        };
        let (services, policies, kernel) = tokio::join!(services, policies, blocking(Kernel::read));
        let busy = |what: &str| {
            format!(
                "what writes {what} does not answer within {} s: see the agent's log",
                OWNERS_LIMIT.as_secs()
            )
        };
        let services = services.ok().flatten();
        let services = services.ok_or_else(|| busy("Service rules"))?;
        let policies = policies.map_err(|_| busy("NetworkPolicies"))?;
        let kernel = kernel.map_err(|error| ErrorChain(&error).to_string())?;
        Ok(self.put_together(services, policies, kernel))
    }

    fn put_together(
        &self,
        services: ServicePlan,
        policies: Option<PolicyPlan>,
        kernel: Kernel,
    ) -> World {
        let nodes: BTreeMap<String, KnownNode> = self
            .nodes
            .all()
            .iter()
            .map(|node| (Key::of(node.as_ref()).name, known_node(node)))
            .collect();
        let mut pods: Vec<KnownPod> = self
            .pods
            .all()
            .iter()
            .filter_map(|pod| known_pod(pod, &self.node))
            .collect();
        if let Some(policies) = &policies {
            add_peers(&mut pods, policies);
        }
        let trouble = services
            .is_failing
            .then(|| "the last transaction failed, and is tried again".to_owned());
        let own = nodes.get(&self.node);
        let subnet = own.and_then(|own| own.pod_cidrs.first().copied());
        World {
            node: self.node.clone(),
            engine: services.engine.to_owned(),
            network: services.network,
            services: services.services,
            unwritten: services.unwritten,
            without_rules: services.without_rules,
            trouble,
            policies,
            pods,
            own_network: self.bridge.as_ref().map(|bridge| OwnNetwork {
                bridge: bridge.clone(),
                subnet: subnet.map(IpNet::V4),
                no_masquerade: self.no_masquerade(&nodes),
            }),
            nodes,
            overlay: match &self.network {
                Some(network) => network.overlay(),
                None => Overlay::Unknown,
            },
            kernel,
        }
    }

    /// As the network of pods is told.
    fn no_masquerade(&self, nodes: &BTreeMap<String, KnownNode>) -> Vec<IpNet> {
        let others = nodes.values().filter_map(|node| node.address);
        let others = others.map(|address| IpNet::from(IpAddr::V4(address)));
        let own = [IpNet::from(self.node_ip)];
        self.cluster_cidr
            .into_iter()
            .chain(others)
            .chain(own)
            .collect()
    }

    /// Pods of others are followed only where there are policies.
    async fn pod_of_another_node(&self, name: &Name) -> Option<KnownPod> {
        let peers: Api<SeenPeer> = Api::namespaced(self.client.clone(), &name.namespace);
        let peer = timeout(API_LIMIT, peers.get(&name.name)).await;
        let view = peer.ok()?.ok()?.part.view?;
        Some(KnownPod {
            name: name.to_string(),
            addresses: view.addresses,
            node: view.node.to_string(),
            host_network: false,
            host_ports: Vec::new(),
        })
    }
}

fn pods_of<'a>(question: &'a Question) -> Vec<&'a Name> {
    let of_place = |place: &'a Place| match place {
        Place::Pod(name) => Some(name),
        _ => None,
    };
    match question {
        Question::Show(Subject::Pod(name)) => vec![name],
        Question::Show(_) => Vec::new(),
        Question::Path { from, to } => [from, &to.place].into_iter().filter_map(of_place).collect(),
    }
}

fn known_node(node: &SeenNode) -> KnownNode {
    KnownNode {
        address: node.part.network.address,
        pod_cidrs: node.part.network.pod_cidrs.clone(),
    }
}

/// `None` of one that has finished: its address may be another's.
fn known_pod(pod: &Pod, node: &str) -> Option<KnownPod> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let key = Key::of(pod);
    let host_network = spec.host_network == Some(true);
    let addresses = status.pod_ips.iter().flatten();
    let containers = spec.containers.iter().filter(|_| !host_network);
    Some(KnownPod {
        name: key.to_string(),
        addresses: addresses.filter_map(|ip| ip.ip.parse().ok()).collect(),
        node: node.to_owned(),
        host_network,
        host_ports: containers.flat_map(host_ports).collect(),
    })
}

fn host_ports(container: &Container) -> Vec<HostPort> {
    let ports = container.ports.iter().flatten();
    let published = ports.filter_map(|port| {
        let host_ip = port.host_ip.as_deref().and_then(|ip| ip.parse().ok());
        Some(HostPort {
            protocol: Protocol::parse(port.protocol.as_deref())?,
            host_ip: host_ip.filter(|ip: &IpAddr| !ip.is_unspecified()),
            host_port: port.host_port.and_then(|port| u16::try_from(port).ok())?,
            container_port: u16::try_from(port.container_port).ok()?,
        })
    });
    published.collect()
}

/// Those that policies know: of other nodes, and of this one before the API shows their address.
fn add_peers(pods: &mut Vec<KnownPod>, policies: &PolicyPlan) {
    let places = pods.iter().enumerate();
    let places: BTreeMap<String, usize> = places.map(|(at, pod)| (pod.name.clone(), at)).collect();
    // What the node serves itself counts as a pod of no node.
    let peers = policies.tracker.pods().filter(|peer| !peer.node.is_empty());
    for peer in peers {
        let name = format!("{}/{}", peer.key.namespace, peer.key.name);
        match places.get(&name) {
            Some(at) => {
                let known = &mut pods[*at].addresses;
                let new = peer.addresses.iter().filter(|ip| !known.contains(ip));
                let new: Vec<IpAddr> = new.copied().collect();
                known.extend(new);
            }
            None => pods.push(KnownPod {
                name,
                addresses: peer.addresses.clone(),
                node: peer.node.to_string(),
                host_network: false,
                host_ports: Vec::new(),
            }),
        }
    }
}
