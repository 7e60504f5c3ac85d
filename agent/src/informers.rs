//! What the node follows in the API: each kind once, for all who read it.
//!
//! What breaks off is tried again within seconds, and at once when the Lease tells ([`Pulse`]) that
//! the API is back: after a partition the node knows what it has to run and whereto to send. Of
//! what only the network reads, no more is kept than it reads ([`Part`]).
//!
//! Not [`coracle_client::informers::Informers`], which makes an informer of whatever is asked for:
//! there, a reader that forgot this node's selection would follow every pod of the cluster, and
//! nothing would tell; here, a kind has its one selection or is not there at all. Label selectors,
//! a selection for each kind and a [`Pulse`] for all would cost that registry as many lines as are
//! below.

mod parts;
mod policies;
mod service_cidrs;
mod source_ranges;

use std::time::Duration;

use coracle_api::volume::local_path;
use coracle_client::{
    cache::{By, Index, Key},
    informer::{Informer, Selection},
    part::Part,
    pulse::Pulse,
};
use coracle_telemetry::{ExponentialBackoff, Tasks};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, PersistentVolume, Pod, Service},
    discovery::v1::EndpointSlice,
    networking::v1::{NetworkPolicy, ServiceCIDR},
};
use kube::{Api, Client};
use tokio::sync::watch;

pub(crate) use self::parts::{NodeNetwork, NodePart, ServicePart, SliceEndpoint, SlicePart};
use self::{
    policies::{NamespacePart, PeerPart, PodPeer, PolicyPart},
    service_cidrs::ServiceCidrPart,
};

/// Between attempts to watch.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(500), Duration::from_secs(5));

pub(crate) type SeenService = Part<Service, ServicePart>;
pub(crate) type SeenSlice = Part<EndpointSlice, SlicePart>;
pub(crate) type SeenNode = Part<Node, NodePart>;
pub(crate) type SeenServiceCidr = Part<ServiceCIDR, ServiceCidrPart>;
pub(crate) type SeenPolicy = Part<NetworkPolicy, PolicyPart>;
pub(crate) type SeenNamespace = Part<Namespace, NamespacePart>;
pub(crate) type SeenPeer = Part<PodPeer, PeerPart>;

/// Which Nodes somebody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// All: the node routes to the others' pods.
    All,
    /// The own one.
    Own,
}

/// One informer a kind: who reads them has them fill a [`coracle_client::feed::Feed`] before they
/// are spawned.
#[derive(Debug)]
pub struct Informers {
    /// The pods bound to this node.
    pub(crate) pods: Informer<Pod>,
    pub(crate) services: Informer<SeenService>,
    pub(crate) slices: Informer<SeenSlice>,
    pub(crate) nodes: Informer<SeenNode>,
    pub(crate) service_cidrs: Informer<SeenServiceCidr>,
    /// Those that the cluster has made for this node.
    pub(crate) volumes: Informer<PersistentVolume>,
    pub(crate) policies: Informer<SeenPolicy>,
    pub(crate) namespaces: Informer<SeenNamespace>,
    /// The pods of all nodes.
    pub(crate) peers: Informer<SeenPeer>,
    /// Whether somebody needs peers: they are not followed before.
    pub(crate) peers_wanted: watch::Sender<bool>,
}

impl Informers {
    /// For the node of this name.
    #[must_use]
    pub fn new(client: &Client, node_name: &str, nodes: Nodes, pulse: &Pulse) -> Self {
        let bound = Selection::fields(format!("spec.nodeName={node_name}"));
        let nodes = match nodes {
            Nodes::All => Selection::all(),
            Nodes::Own => Selection::fields(format!("metadata.name={node_name}")),
        };
        let (here, own) = (node_name.to_owned(), node_name.to_owned());
        let slices = Informer::new(
            Api::all(client.clone()),
            // All, headless ones as well: they have names.
            Selection::all(),
            move |slice: &mut SeenSlice| slice.part.locate(&here),
        );
        let nodes = Informer::new(
            Api::all(client.clone()),
            nodes,
            move |node: &mut SeenNode| {
                if node.metadata.name.as_deref() != Some(own.as_str()) {
                    node.part.forget_rest();
                }
            },
        );
        let volumes = Informer::new(
            Api::all(client.clone()),
            Selection::labels(format!("{}={node_name}", local_path::NODE)),
            |volume: &mut PersistentVolume| volume.metadata.managed_fields = None,
        );
        Self {
            pods: Informer::new(Api::all(client.clone()), bound, |_| {}).woken_by(pulse, RETRY),
            // All, those without rules as well: containers' environments tell of them.
            services: Informer::new(Api::all(client.clone()), Selection::all(), |_| {})
                .woken_by(pulse, RETRY),
            slices: slices.woken_by(pulse, RETRY),
            nodes: nodes.woken_by(pulse, RETRY),
            service_cidrs: Informer::new(Api::all(client.clone()), Selection::all(), |_| {})
                .woken_by(pulse, RETRY),
            volumes: volumes.woken_by(pulse, RETRY),
            policies: Informer::new(Api::all(client.clone()), Selection::all(), |_| {})
                .woken_by(pulse, RETRY),
            namespaces: Informer::new(Api::all(client.clone()), Selection::all(), |_| {})
                .woken_by(pulse, RETRY),
            peers: Informer::new(Api::all(client.clone()), Selection::all(), |_| {})
                .woken_by(pulse, RETRY),
            peers_wanted: watch::Sender::new(false),
        }
    }

    /// The slices of each Service.
    pub(crate) fn slices_by_service(&self) -> By<SeenSlice> {
        self.slices.index(Index::new("service", |slice, put| {
            if let Some(service) = slice_service(slice) {
                put(&service.to_string());
            }
        }))
    }

    /// Watches until the tasks are told to stop.
    pub fn spawn(self, tasks: &mut Tasks) {
        let stop = tasks.stop();
        tasks.add("watch pods", self.pods.run(stop.clone()));
        tasks.add("watch Services", self.services.run(stop.clone()));
        tasks.add("watch EndpointSlices", self.slices.run(stop.clone()));
        tasks.add("watch Nodes", self.nodes.run(stop.clone()));
        tasks.add("watch ServiceCIDRs", self.service_cidrs.run(stop.clone()));
        tasks.add("watch PersistentVolumes", self.volumes.run(stop.clone()));
        tasks.add("watch NetworkPolicies", self.policies.run(stop.clone()));
        tasks.add("watch Namespaces", self.namespaces.run(stop.clone()));
        let mut wanted = self.peers_wanted.subscribe();
        tasks.add("watch pods of all nodes", async move {
            let wait = async { wanted.wait_for(|is| *is).await.is_ok() };
            // Without anybody who could want it, there is nothing to do but to wait for the end.
            if stop.run_until_cancelled(wait).await == Some(true) {
                self.peers.run(stop).await;
            } else {
                stop.cancelled().await;
            }
        });
    }
}

/// The Service that a slice is of.
pub(crate) fn slice_service(slice: &SeenSlice) -> Option<Key> {
    Some(Key::new(
        slice.metadata.namespace.clone()?,
        slice.part.service.clone()?,
    ))
}

#[cfg(test)]
mod tests;
