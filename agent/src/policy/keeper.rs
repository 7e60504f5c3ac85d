//! Keeps the kernel equal to the policies.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use coracle_api::cluster_dns;
use coracle_netfilter::{
    nftables::policies::{Policies, PoliciesError},
    policy::{Change, PolicyKey},
    refused,
    service::Protocol,
};
use coracle_policy::{
    objects::{Labels, NamedPort, PodKey, PodView},
    tracker::Tracker,
};
use coracle_telemetry::{Backoff, ErrorChain};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    guard::{Heard, Told},
    peers::{Attached, Attachment},
    sources::Sources,
};
use crate::{
    blocking::blocking,
    events::{EventRecorder, EventType},
    node::address::own_addresses,
};

/// How often it is asked whether others changed rules; microseconds each time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A comparison may be followed by the next after so many times its own length, and so may a look
/// through all connections.
const PAUSE: u32 = 20;
/// First wait after a failed transaction; doubled up to the longest.
const RETRY_DELAY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The label of what answers names in every cluster.
const DNS_LABEL: (&str, &str) = ("k8s-app", "kube-dns");

/// What a [`Keeper`] needs to know.
#[derive(Debug)]
pub(crate) struct KeeperConfig {
    pub(crate) node_name: String,
    /// Where this node answers names.
    pub(crate) dns_address: Option<IpAddr>,
    /// What was attached before.
    pub(crate) attached: Vec<Attachment>,
}

/// A pod that waits for its policies.
struct Waiting {
    addresses: Vec<IpAddr>,
    done: oneshot::Sender<Result<(), String>>,
}

/// What is known of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Not even whether there are policies.
    Nothing,
    /// There are none, and nobody has asked for more.
    NoPolicies,
    /// There are policies; what they look at is asked for.
    Policies,
    Everything,
}

/// Follows what policies look at, for as long as the agent runs.
pub(crate) struct Keeper {
    sources: Sources,
    heard: Heard,
    events: EventRecorder,
    dns_address: Option<IpAddr>,
    known: Known,
    attached: Attached,
    tracker: Tracker,
    /// `None` only while a blocking thread has it.
    engine: Option<Policies>,
    waiting: Vec<Waiting>,
    retry: Backoff,
    /// After a failure.
    retry_at: Option<Instant>,
    look_at: Instant,
    /// Connections are to be looked through, and not before.
    cut_due: bool,
    cut_at: Instant,
}

impl Keeper {
    pub(crate) fn new(
        sources: Sources,
        heard: Heard,
        events: EventRecorder,
        config: KeeperConfig,
    ) -> Self {
        let mut attached = Attached::new(&config.node_name);
        let pods: BTreeSet<PodKey> = config.attached.iter().map(|one| one.pod.clone()).collect();
        config
            .attached
            .into_iter()
            .for_each(|one| attached.add(one));
        let mut tracker = Tracker::new(&config.node_name);
        for pod in &pods {
            tracker.set_pod(pod, attached.view(pod, None));
        }
        let now = Instant::now();
        Self {
            sources,
            heard,
            events,
            dns_address: config.dns_address,
            known: Known::Nothing,
            attached,
            tracker,
            engine: Some(Policies::new(config.dns_address.into_iter().collect())),
            waiting: Vec::new(),
            retry: Backoff::new(RETRY_DELAY, LONGEST_RETRY),
            retry_at: None,
            look_at: now + LOOK_INTERVAL,
            cut_due: false,
            cut_at: now,
        }
    }

    /// Works until `shutdown`. The rules stay.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        if let Some(address) = self.dns_address {
            let dns = answers_names(address);
            self.tracker.set_pod(&dns.key.clone(), Some(dns));
        }
        loop {
            let retry_at = self.retry_at.unwrap_or_else(Instant::now);
            tokio::select! {
                () = shutdown.cancelled() => return,
                told = self.heard.0.recv() => match told {
                    Some(told) => self.hear_all(told),
                    // Nobody attaches pods any more.
                    None => return,
                },
                () = self.sources.policies_listed(), if self.known == Known::Nothing => {
                    self.known = Known::NoPolicies;
                }
                () = self.sources.all_listed(), if self.known == Known::Policies => {
                    self.known = Known::Everything;
                }
                () = self.sources.changed(), if self.known != Known::Nothing => {}
                () = sleep_until(retry_at), if self.retry_at.is_some() => {}
                () = sleep_until(self.cut_at), if self.cut_due => {
                    self.cut().await;
                    continue;
                }
                () = sleep_until(self.look_at) => {
                    self.look().await;
                    continue;
                }
            }
            if self.known == Known::NoPolicies && self.sources.has_policies() {
                self.known = Known::Policies;
            }
            match self.known {
                Known::Nothing | Known::Policies => {}
                Known::NoPolicies | Known::Everything => self.write().await,
            }
        }
    }

    fn hear_all(&mut self, first: Told) {
        self.hear(first);
        while let Ok(next) = self.heard.0.try_recv() {
            self.hear(next);
        }
    }

    fn hear(&mut self, told: Told) {
        let pod = match told {
            Told::Attached { attachment, done } => {
                let (pod, addresses) = (attachment.pod.clone(), attachment.addresses.clone());
                self.attached.add(attachment);
                self.waiting.push(Waiting { addresses, done });
                pod
            }
            Told::Detached { pod, sandbox } => {
                self.attached.remove(&pod, &sandbox);
                pod
            }
        };
        self.look_at_pod(&pod);
    }

    fn look_at_pod(&mut self, pod: &PodKey) {
        let seen = self.sources.peer(pod);
        let view = self.attached.view(pod, seen.as_ref());
        self.tracker.set_pod(pod, view);
    }

    /// Tells the tracker what has changed.
    fn track(&mut self) {
        for (key, namespace) in self.sources.take_namespaces() {
            let labels = namespace.map(|namespace| namespace.part.labels.clone());
            self.tracker.set_namespace(&key.name, labels);
        }
        for key in self.sources.take_peers() {
            self.look_at_pod(&PodKey::new(&key.namespace, &key.name));
        }
        for (key, policy) in self.sources.take_policies() {
            let name = PolicyKey {
                namespace: key.namespace,
                name: key.name,
            };
            match policy.as_ref().map(|policy| &policy.part.policy) {
                None => self.tracker.set_policy(&name, None),
                Some(Ok(policy)) => self.tracker.set_policy(&name, Some(policy.clone())),
                // The one before goes on.
                Some(Err(why)) => self.events.node(
                    EventType::Warning,
                    "NetworkPolicyUnreadable",
                    format!("NetworkPolicy {name} is not enforced as it is now: {why}"),
                ),
            }
        }
    }

    async fn write(&mut self) {
        self.track();
        let change = self.tracker.changes();
        self.cut_due |= refused::may_refuse(&change);
        let outcome = self.on_engine(move |engine| apply(engine, &change)).await;
        let why = match outcome {
            Ok(()) => {
                if self.retry_at.take().is_some() {
                    self.retry.reset();
                    let message = "NetworkPolicies can be enforced again";
                    self.events
                        .node(EventType::Normal, "NetworkPoliciesEnforced", message);
                }
                None
            }
            Err(error) => Some(self.fail(&error)),
        };
        let engine = self.engine.as_ref();
        for Waiting { addresses, done } in self.waiting.drain(..) {
            // What no policy selects need not wait for those that cannot be written.
            let is_selected = engine.is_none_or(|engine| {
                let (to, from) = (&engine.plan().to, &engine.plan().from);
                addresses
                    .iter()
                    .any(|ip| to.contains_key(ip) || from.contains_key(ip))
            });
            // Who does not wait any more tries again.
            let _ = done.send(match &why {
                Some(why) if is_selected => Err(why.clone()),
                _ => Ok(()),
            });
        }
        if self.cut_due && self.cut_at <= Instant::now() {
            self.cut().await;
        }
    }

    /// Says why.
    fn fail(&mut self, error: &PoliciesError) -> String {
        let why = ErrorChain(error).to_string();
        let delay = self.retry.pause();
        let is_first = self.retry_at.replace(Instant::now() + delay).is_none();
        tracing::error!(
            error = why,
            ?delay,
            "cannot write NetworkPolicies; trying again"
        );
        if is_first {
            let message = format!(
                "NetworkPolicies cannot be enforced on this node, and pods that they select do not start: {why}"
            );
            self.events
                .node(EventType::Warning, "NetworkPoliciesFailing", message);
        }
        why
    }

    /// Sees whether others changed rules.
    async fn look(&mut self) {
        let started = Instant::now();
        let has_rules = |engine: &Policies| !engine.plan().chains.is_empty();
        if self.known == Known::Everything
            && self.retry_at.is_none()
            && self.engine.as_ref().is_some_and(has_rules)
        {
            match self.on_engine(Policies::reconcile).await {
                Ok(true) => {
                    tracing::warn!("repaired NetworkPolicy rules that were changed by others");
                    self.cut_due = true;
                }
                Ok(false) => {}
                Err(error) => drop(self.fail(&error)),
            }
        }
        self.look_at = Instant::now() + LOOK_INTERVAL.max(started.elapsed() * PAUSE);
    }

    /// Ends connections that policies do not let through any more.
    async fn cut(&mut self) {
        let started = Instant::now();
        self.cut_due = false;
        let cut = |engine: &mut Policies| {
            let own: BTreeSet<IpAddr> = own_addresses()?.collect();
            refused::cut(engine.plan(), |address| own.contains(&address))
        };
        match self.on_engine(cut).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "cut connections that policies refuse"),
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "connections that NetworkPolicies refuse may go on: is nf_conntrack_netlink there?");
            }
        }
        self.cut_at = Instant::now() + started.elapsed() * PAUSE;
    }

    /// Works on the kernel on a blocking thread.
    async fn on_engine<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Policies) -> T + Send + 'static,
    ) -> T {
        let engine = self.engine.take();
        let (engine, outcome) = blocking(move || {
            let mut engine = engine.unwrap_or_else(|| Policies::new(Vec::new()));
            let outcome = work(&mut engine);
            (engine, outcome)
        })
        .await;
        self.engine = Some(engine);
        outcome
    }
}

/// Without any policy nothing is asked of a kernel that may not be able to answer.
fn apply(engine: &mut Policies, change: &Change) -> Result<(), PoliciesError> {
    match engine.apply(change) {
        Err(error @ PoliciesError::List(_)) if engine.plan().chains.is_empty() => {
            tracing::debug!(error = %ErrorChain(&error), "cannot see whether NetworkPolicy rules are left");
            Ok(())
        }
        outcome => outcome,
    }
}

/// What this node serves as cluster DNS, as a pod.
fn answers_names(address: IpAddr) -> PodView {
    let port = |name: &str, protocol| NamedPort {
        name: name.into(),
        protocol,
        port: cluster_dns::PORT,
    };
    PodView {
        // No pod can be called so.
        key: PodKey::new(cluster_dns::NAMESPACE, "(this node)"),
        labels: Labels::new([DNS_LABEL]),
        addresses: vec![address],
        node: "".into(),
        ports: vec![port("dns", Protocol::Udp), port("dns-tcp", Protocol::Tcp)],
    }
}
