//! Keeps the kernel equal to the policies.

mod told;

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

use coracle_netfilter::{nftables::policies::NodeNetwork, policy::PolicyKey, refused};
use coracle_policy::{objects::PodKey, tracker::Tracker};
use coracle_telemetry::{Backoff, ErrorChain};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    enforcer::{Enforcer, Seen},
    guard::{Heard, Told},
    peers::{Attached, Attachment, answers_names},
    sources::Sources,
};
use crate::{
    blocking::blocking,
    events::{EventRecorder, EventType},
    notices::Notices,
};

/// What tables of policies are called.
const TABLES: &[&str] = &["coracle-policy"];
/// After a look, what the kernel tells of changes waits so long: who changes much does it step by
/// step.
const SETTLE: Duration = Duration::from_millis(20);
/// How often it is asked anyway whether others changed rules; microseconds each time.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A comparison may be followed by the next after so many times its own length, and so may a look
/// through all connections.
const PAUSE: u32 = 20;
/// First wait after a failed transaction; doubled up to the longest.
const RETRY_DELAY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What a [`Keeper`] needs to know.
#[derive(Debug)]
pub(crate) struct KeeperConfig {
    pub(crate) node_name: String,
    /// Where this node answers names.
    pub(crate) dns_address: Option<IpAddr>,
    /// The bridge of this node's own network, which has all pods.
    pub(crate) bridge: Option<String>,
    /// What was attached before.
    pub(crate) attached: Vec<Attachment>,
    /// Where it is remembered whom policies select.
    pub(crate) selected: PathBuf,
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
    bridge: Option<String>,
    selected: PathBuf,
    /// At the start.
    inherited: BTreeSet<IpAddr>,
    known: Known,
    attached: Attached,
    tracker: Tracker,
    /// `None` before there is one, and while a blocking thread has it.
    enforcer: Option<Enforcer>,
    waiting: Vec<Waiting>,
    retry: Backoff,
    /// After a failure.
    retry_at: Option<Instant>,
    look_at: Instant,
    /// Whatever the kernel tells.
    no_look_before: Instant,
    /// Addresses of pods that are gone, whose connections the kernel may know still; of a
    /// predecessor's it is not known before the first look through them.
    freed: BTreeSet<IpAddr>,
    has_cut: bool,
    /// Connections are to be looked through, and not before.
    cut_due: bool,
    cut_at: Instant,
    cut_retry: Backoff,
}

impl Keeper {
    pub(crate) fn new(
        sources: Sources,
        heard: Heard,
        events: EventRecorder,
        config: KeeperConfig,
    ) -> Self {
        let mut attached = Attached::new(&config.node_name);
        let addresses = config.attached.iter().flat_map(|one| &one.addresses);
        let inherited = addresses.copied().collect();
        let pods: BTreeSet<PodKey> = config.attached.iter().map(|one| one.pod.clone()).collect();
        config
            .attached
            .into_iter()
            .for_each(|one| attached.add(one));
        let mut tracker = Tracker::new(&config.node_name);
        for pod in &pods {
            for (key, view) in attached.views(pod, None) {
                tracker.set_pod(&key, view);
            }
        }
        let now = Instant::now();
        Self {
            sources,
            heard,
            events,
            dns_address: config.dns_address,
            bridge: config.bridge,
            selected: config.selected,
            inherited,
            known: Known::Nothing,
            attached,
            tracker,
            enforcer: None,
            waiting: Vec::new(),
            retry: Backoff::new(RETRY_DELAY, LONGEST_RETRY),
            retry_at: None,
            look_at: now + LOOK_INTERVAL,
            no_look_before: now,
            freed: BTreeSet::new(),
            has_cut: false,
            cut_due: false,
            cut_at: now,
            cut_retry: Backoff::new(RETRY_DELAY, LONGEST_RETRY),
        }
    }

    /// Works until `shutdown`. The rules stay.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut notices = Notices::listen();
        // Sees what is left before others can take it away, and what they have already.
        self.look().await;
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
                () = self.sources.inquiries().come() => {
                    self.sources.inquiries().answer(|| self.plan());
                    continue;
                }
                () = sleep_until(retry_at), if self.retry_at.is_some() => {}
                () = sleep_until(self.cut_at), if self.cut_due => {
                    self.cut().await;
                    continue;
                }
                () = notices.next_of(TABLES), if self.look_at > self.no_look_before => {
                    self.look_at = self.no_look_before.max(Instant::now());
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
            if self.is_settled() {
                self.write().await;
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
                // Who has given up tries again.
                self.waiting.retain(|one| !one.done.is_closed());
                self.waiting.push(Waiting { addresses, done });
                pod
            }
            Told::Detached { pod, sandbox } => {
                self.freed.extend(self.attached.remove(&pod, &sandbox));
                pod
            }
        };
        self.look_at_pod(&pod);
    }

    fn look_at_pod(&mut self, pod: &PodKey) {
        let seen = self.sources.peer(pod);
        for (key, view) in self.attached.views(pod, seen.as_ref()) {
            self.tracker.set_pod(&key, view);
        }
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
            let part = policy.as_ref().map(|policy| &policy.part);
            if let Some(why) = part.and_then(|part| part.flaw.as_ref()) {
                self.tell_of_flaw(&name, why);
            }
            let policy = part.and_then(|part| part.policy.clone());
            self.tracker.set_policy(&name, policy);
        }
    }

    async fn write(&mut self) {
        self.track();
        let change = self.tracker.changes();
        for policies in self.tracker.take_overfull() {
            self.tell_of_overfull(&policies);
        }
        self.cut_due |= refused::may_refuse(&change);
        let outcome = self.on_enforcer(move |kernel| kernel.apply(&change)).await;
        self.tell_of_refused();
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
        // A pod does not start on the connections of the one whose address it has.
        let mut waiting = self.waiting.iter().flat_map(|one| &one.addresses);
        let is_reused = waiting.any(|ip| !self.has_cut || self.freed.contains(ip));
        if self.cut_due && (is_reused || self.cut_at <= Instant::now()) {
            self.cut().await;
        }
        let enforcer = self.enforcer.as_ref();
        for Waiting { addresses, done } in self.waiting.drain(..) {
            // What no policy selects need not wait for those that cannot be written.
            let is_selected = enforcer.is_none_or(|kernel| kernel.selects(&addresses));
            // Who does not wait any more tries again.
            let _ = done.send(match &why {
                Some(why) if is_selected => Err(why.clone()),
                _ => Ok(()),
            });
        }
    }

    /// Sees whether others changed rules.
    async fn look(&mut self) {
        let started = Instant::now();
        let seen = self.on_enforcer(Enforcer::look).await;
        self.tell_of_refused();
        let (mut pause, mut settle) = (LOOK_INTERVAL, LOOK_INTERVAL);
        match seen {
            Ok(Seen::AllRight) => settle = SETTLE,
            Ok(Seen::Mended) => {
                tracing::warn!("repaired NetworkPolicy rules that were changed by others");
                self.cut_due = true;
            }
            Ok(Seen::ShutOff) => {
                let message = "rules of NetworkPolicies were removed by others before the API server has told which there are: pods that they selected are shut off until it does";
                tracing::warn!("{message}");
                self.events
                    .node(EventType::Warning, "NetworkPoliciesLost", message);
                self.cut_due = true;
            }
            // It was told, and is tried again in its own time.
            Err(_) if self.retry_at.is_some() => {}
            Err(error) if self.is_settled() => drop(self.fail(&error)),
            Err(error) => {
                pause = self.retry.pause();
                tracing::error!(error = %ErrorChain(&error), ?pause, "cannot see to NetworkPolicy rules that are left; trying again");
            }
        }
        let (now, least) = (Instant::now(), started.elapsed() * PAUSE);
        self.look_at = now + pause.max(least);
        self.no_look_before = now + settle.max(least).min(pause.max(least));
    }

    /// Whether it is known what to write.
    fn is_settled(&self) -> bool {
        match self.known {
            Known::Nothing | Known::Policies => false,
            Known::NoPolicies | Known::Everything => true,
        }
    }

    /// Ends connections that policies do not let through any more.
    async fn cut(&mut self) {
        let started = Instant::now();
        let outcome = self.on_enforcer(|kernel| kernel.cut()).await;
        let mut pause = started.elapsed() * PAUSE;
        match outcome {
            Ok(count) => {
                if count > 0 {
                    tracing::debug!(count, "cut connections that policies refuse");
                }
                self.cut_due = false;
                self.has_cut = true;
                self.freed.clear();
                self.cut_retry.reset();
            }
            Err(error) => {
                let is_first = self.cut_retry.failures() == 0;
                pause = self.cut_retry.pause();
                let message = format!(
                    "connections that NetworkPolicies refuse may go on, is nf_conntrack_netlink there?: {}",
                    ErrorChain(&error)
                );
                tracing::warn!(?pause, "{message}; trying again");
                if is_first {
                    self.events
                        .node(EventType::Warning, "NetworkPoliciesFailing", message);
                }
            }
        }
        self.cut_at = Instant::now() + pause;
    }

    /// Works on the kernel on a blocking thread.
    async fn on_enforcer<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Enforcer) -> T + Send + 'static,
    ) -> T {
        let before = self.enforcer.take();
        let node = NodeNetwork {
            own_service_ips: self.dns_address.into_iter().collect(),
            bridge: self.bridge.clone(),
        };
        let selected = self.selected.clone();
        // Only for the first, which has nobody before.
        let attached = std::mem::take(&mut self.inherited);
        let (enforcer, outcome) = blocking(move || {
            let begin = || Enforcer::begin(node, (selected, &attached));
            let mut enforcer = before.unwrap_or_else(begin);
            let outcome = work(&mut enforcer);
            (enforcer, outcome)
        })
        .await;
        self.enforcer = Some(enforcer);
        outcome
    }
}
