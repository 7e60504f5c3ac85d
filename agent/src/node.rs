//! This machine as a Node of the cluster: registers it, keeps its status and its Lease.
//!
//! One task watches the own Node object: it hands the podCIDR to the network, registers anew if the
//! object vanishes, and writes the status when it changes or is due. The Lease, the heartbeat
//! proper, is a task of its own ([`lease`]).

pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod facts;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod status;

use std::{sync::Arc, time::Duration};

use coracle_client::{
    cache::{Cache, Key},
    errors::is_not_found,
    feed::Feed,
    pulse::Pulse,
};
use coracle_telemetry::{Backoff, ErrorChain, ExponentialBackoff};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::AgentConfig,
    events::{EventRecorder, EventType},
    informers::{Informers, SeenNode},
    network::{PodNetwork, cni::CniNetwork},
    runtime::ImageService,
};
use clock::ClockView;
use facts::Machine;
use health::{Examiner, Health};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// For a look at the machine.
const READ_LIMIT: Duration = Duration::from_secs(2);
/// How often a network that is not ready is asked again.
const NOT_READY_PAUSE: Duration = Duration::from_millis(100);
/// How often everything else is looked at.
const CHECK: Duration = Duration::from_secs(10);
/// After the API server did not take the Node or its status. As upstream's registration.
const RETRY: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(200), Duration::from_secs(7));
/// Says who attaches volumes; not the node.
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// For events to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why the API does not have this node.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error(transparent)]
    Request(Box<kube::Error>),
    #[error("no answer within {} s", REQUEST_LIMIT.as_secs())]
    Timeout,
}

/// The Node object as last seen, for whoever needs it (`None` before registration).
pub(crate) type NodeView = Arc<Mutex<Option<Arc<Node>>>>;

/// The own Node as the API has it.
pub(crate) struct OwnNode {
    feed: Feed,
    nodes: Arc<Cache<SeenNode>>,
    key: Key,
}

impl OwnNode {
    pub(crate) fn new(informers: &mut Informers, node_name: &str) -> Self {
        let (mut feed, key) = (Feed::default(), Key::new("", node_name));
        let own = key.clone();
        feed.follow(&mut informers.nodes, move |change| {
            Some(Key::of(change.latest().as_ref())).filter(|changed| *changed == own)
        });
        Self {
            feed,
            nodes: informers.nodes.cache(),
            key,
        }
    }

    /// What has become of it: `None` if it is gone. Cancel-safe.
    async fn changed(&self) -> Option<Arc<Node>> {
        while self.feed.take().is_empty() {
            self.feed.changed().await;
        }
        self.nodes.get(&self.key)?.part.own.clone()
    }
}

/// Keeps the Node object.
pub(crate) struct NodeManager {
    pub(crate) config: AgentConfig,
    pub(crate) client: kube::Client,
    pub(crate) machine: Arc<Machine>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) network: Arc<dyn PodNetwork>,
    /// Told the podCIDR; absent where a test has its own network.
    pub(crate) cni: Option<CniNetwork>,
    pub(crate) events: EventRecorder,
    pub(crate) own: OwnNode,
    pub(crate) view: NodeView,
    pub(crate) clock: ClockView,
    /// Told by the Lease when the API is back.
    pub(crate) pulse: Pulse,
}

impl NodeManager {
    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.keep() => {}
        }
    }

    async fn keep(&self) {
        let mut retry = Backoff::of(RETRY);
        while let Err(error) = self.register().await {
            tracing::warn!(error = %ErrorChain(&error), "cannot register the node; trying again");
            tokio::time::sleep(retry.pause()).await;
        }
        retry.reset();
        let mut written = Written::default();
        let mut examiner = Examiner::new(&self.config, Arc::clone(&self.clock));
        let mut health = Health::default();
        let mut cidr: Option<IpNet> = None;
        let mut next = Instant::now();
        let mut back = self.pulse.subscribe();
        loop {
            tokio::select! {
                // The control plane may have given the node up meanwhile.
                Ok(()) = back.changed() => {
                    written.at = None;
                    next = Instant::now();
                }
                node = self.own.changed() => match node {
                    Some(node) => {
                        self.node_seen(node, &mut cidr).await;
                        next = next.min(Instant::now() + NOT_READY_PAUSE);
                        if self.network.ready().is_ok() && !written.ready {
                            next = Instant::now();
                        }
                    }
                    None => {
                        self.register_again().await;
                        written.at = None;
                        next = Instant::now();
                    }
                },
                () = tokio::time::sleep_until(next) => {
                    let found = examiner.look().await;
                    self.report(&mut written, &health, &found).await;
                    if self.has_moved(&found).await {
                        return;
                    }
                    health = found;
                    let pause = if written.at.is_none() {
                        retry.pause()
                    } else {
                        retry.reset();
                        if written.ready { CHECK } else { NOT_READY_PAUSE }
                    };
                    next = Instant::now() + pause;
                }
            }
        }
    }

    /// Whether the machine has got another address for good. Everything of the node is bound to the
    /// old one, so the agent ends for the service manager to start it with the new one; pods do not
    /// notice. An address that was chosen by flag is only reported: it may come back.
    async fn has_moved(&self, found: &Health) -> bool {
        let instead = found.address_loss.and_then(|loss| loss.instead);
        let Some(instead) = instead.filter(|_| self.config.node_ip_detected) else {
            return false;
        };
        tracing::error!(old = %self.config.node_ip, new = %instead, "this machine's address has changed: start again with the new one");
        tokio::time::sleep(LAST_WORDS).await;
        true
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Makes the Node object, or takes over the one that is there.
    async fn register(&self) -> Result<(), RegisterError> {
        match tokio::time::timeout(REQUEST_LIMIT, self.try_register()).await {
            Ok(outcome) => outcome.map_err(|error| RegisterError::Request(Box::new(error))),
            Err(_) => Err(RegisterError::Timeout),
        }
    }

    async fn try_register(&self) -> Result<(), kube::Error> {
        let status = status::build(
            &self.config,
            &self.machine.facts(),
            self.machine.allocatable(),
            &self.image_list().await,
            &self.network.ready(),
            &Health::default(),
            None,
        );
        let own = status::annotations(&self.config);
        let mut annotations = own.clone();
        annotations.insert(ATTACH_DETACH.to_owned(), "true".to_owned());
        let node = Node {
            metadata: ObjectMeta {
                name: Some(self.config.node_name.clone()),
                labels: Some(status::labels(&self.config)),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            status: Some(status),
            ..Node::default()
        };
        match self.api().create(&PostParams::default(), &node).await {
            Ok(created) => {
                tracing::info!(node = self.config.node_name, "registered the node");
                self.events
                    .node(EventType::Normal, "Starting", "Starting kubelet.");
                *self.view.lock() = Some(Arc::new(created));
                Ok(())
            }
            Err(kube::Error::Api(why)) if why.code == 409 => {
                // It was here before. Taints, other annotations and other labels may be somebody
                // else's by now.
                let labels = status::labels(&self.config);
                let metadata = serde_json::json!({"labels": labels, "annotations": own});
                let patch = serde_json::json!({"metadata": metadata});
                let known = self
                    .api()
                    .patch(
                        &self.config.node_name,
                        &PatchParams::default(),
                        &Patch::Merge(&patch),
                    )
                    .await?;
                *self.view.lock() = Some(Arc::new(known));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn register_again(&self) {
        tracing::warn!("the Node object is gone: register again");
        if let Err(error) = self.register().await {
            tracing::warn!(error = %ErrorChain(&error), "cannot register the node; trying again");
        }
    }

    async fn node_seen(&self, node: Arc<Node>, cidr: &mut Option<IpNet>) {
        let assigned = node
            .spec
            .as_ref()
            .and_then(|spec| spec.pod_cidr.as_deref())
            .and_then(|text| text.parse().ok());
        *self.view.lock() = Some(node);
        let (Some(assigned), Some(cni)) = (assigned, &self.cni) else {
            return;
        };
        if *cidr == Some(assigned) {
            return;
        }
        match cni.set_pod_cidr(assigned).await {
            Ok(()) => *cidr = Some(assigned),
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), cidr = %assigned, "cannot set up the pod network")
            }
        }
    }

    async fn image_list(&self) -> Vec<crate::runtime::Image> {
        self.images.list_images().await.unwrap_or_default()
    }

    /// What has been plugged in or taken away since.
    async fn refresh_machine(&self) {
        let machine = Arc::clone(&self.machine);
        // A disk that hangs must not keep the node from telling that it lives: the last facts are
        // told again.
        let read = tokio::task::spawn_blocking(move || machine.refresh());
        if tokio::time::timeout(READ_LIMIT, read).await.is_err() {
            tracing::warn!("cannot read what the machine has: its disk does not answer");
        }
    }

    /// Writes the status if it differs from what the API has, or if it is due.
    async fn report(&self, written: &mut Written, last: &Health, health: &Health) {
        let known = self.view.lock().clone();
        let Some(known) = known else { return };
        let ready = self.network.ready();
        for (severity, reason, message) in health::events(&self.config.node_name, last, health) {
            tracing::info!(reason, message, "the machine's state has changed");
            self.events.node(severity, reason, message);
        }
        let before = known.status.clone().unwrap_or_default();
        self.refresh_machine().await;
        let wanted = status::build(
            &self.config,
            &self.machine.facts(),
            self.machine.allocatable(),
            &self.image_list().await,
            &ready,
            health,
            Some(&before),
        );
        let due = written
            .at
            .is_none_or(|at| at.elapsed() >= self.config.status_interval);
        let changed = written
            .status
            .as_ref()
            .is_none_or(|last| status::differs(last, &wanted));
        // The control plane says Unknown of nodes it has not heard of: that must be corrected at
        // once.
        if !due && !changed && !status::conditions_differ(&before, &wanted) {
            written.ready = ready.is_ok();
            return;
        }
        let Some(node) = self.write_status(&wanted).await else {
            // Due at once.
            written.at = None;
            return;
        };
        self.tell_change(&before, ready.is_ok() && !written.ready);
        *written = Written {
            at: Some(Instant::now()),
            ready: ready.is_ok(),
            status: Some(wanted),
        };
        *self.view.lock() = Some(Arc::new(node));
    }

    /// The Node with this status, as the API has it then; `None` if it was not written.
    async fn write_status(&self, status: &NodeStatus) -> Option<Node> {
        let patch = serde_json::json!({"status": status});
        let api = self.api();
        let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
        let request = api.patch_status(&self.config.node_name, &params, &patch);
        match tokio::time::timeout(REQUEST_LIMIT, request).await {
            Ok(Ok(node)) => return Some(node),
            // It went before it was listed first.
            Ok(Err(error)) if is_not_found(&error) => self.register_again().await,
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "cannot write the node's status");
            }
            Err(_) => {
                tracing::warn!("cannot write the node's status: the API server does not answer");
            }
        }
        None
    }

    /// In events, once a status is written that differs so from the one before.
    fn tell_change(&self, before: &NodeStatus, now_ready: bool) {
        let name = &self.config.node_name;
        if now_ready {
            let message = format!("Node {name} status is now: NodeReady");
            self.events.node(EventType::Normal, "NodeReady", message);
        }
        // What said so when it happened may have been lost with the old address's connections.
        let (old, new) = (status::internal_ip(before), self.config.node_ip.to_string());
        if let Some(old) = old.filter(|old| *old != new) {
            let message = format!("the node's address was {old} and is {new} now");
            self.events
                .node(EventType::Warning, "NodeAddressChanged", message);
        }
    }
}

/// The last status written.
#[derive(Default)]
struct Written {
    at: Option<Instant>,
    ready: bool,
    status: Option<NodeStatus>,
}
