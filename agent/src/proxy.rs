//! The Service proxy: what kube-proxy does.
//!
//! Looks at what of Services and EndpointSlices concerns packets ([`Sources`]) and has a
//! [`ServiceEngine`] keep the kernel equal to it. Works in whatever network namespace the process
//! is in. Rules stay when it ends: the next one takes them over without a gap.
//!
//! Rules that others remove come back at once where the kernel tells of changes and counts them
//! (nft), else with the next regular comparison.

mod asked;
mod checks_due;
mod conntrack;
pub(crate) mod health;
mod health_checks;
mod health_server;
mod holdings;
mod look;
mod nearness;
mod news;
mod node_ports;
mod owned;
mod plan;
mod proxy_health;
mod service_ranges;
mod service_route;
mod sources;
mod translated;
mod turns;

use std::{net::IpAddr, time::Duration};

use coracle_netfilter::{
    ProxyMode,
    engine::{EngineError, ServiceEngine},
    flows::Targets,
};
use coracle_telemetry::{Backoff, ErrorChain};
use ipnet::IpNet;
use tokio::{
    sync::{mpsc, watch as latest},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use self::{
    checks_due::ChecksDue,
    health_checks::HealthChecks,
    health_server::{Facts, HealthServer},
    holdings::Holdings,
    look::Look,
    node_ports::NodePortRanges,
    proxy_health::ProxyHealth,
    service_ranges::ServiceRanges,
    service_route::ServiceRoute,
    turns::Turns,
};
pub use self::{news::News, plan::ServicePlan, sources::Sources};
use crate::blocking::blocking;

/// Changes are written at once as long as they come slower than this on average...
const WRITE_INTERVAL: Duration = Duration::from_millis(25);
/// ...or are not more than these: in a storm, transactions must not take a whole core from the pods
/// that cause it.
const WRITE_CREDIT: u32 = 4;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// What keeps the rules.
    pub mode: ProxyMode,
    /// Own InternalIP: source address of the node's own traffic to Services where there is no
    /// default route.
    pub node_ip: Option<IpAddr>,
    /// Addresses of all pods: traffic from elsewhere to a ClusterIP is masqueraded. Empty: none is.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of Services, beside those of the ServiceCIDRs: what has no rule there is rejected
    /// instead of leaving the node. None at all: only Services without endpoints are rejected.
    pub service_cidrs: Vec<IpNet>,
    /// An address among them at which the node answers itself: no Service has rules there.
    pub own_service_ip: Option<IpAddr>,
    /// Which of the node's addresses have node ports. Empty: all.
    pub node_port_cidrs: Vec<IpNet>,
    /// The link that packets of this node's pods come from; `None` with a foreign network.
    pub pod_interface: Option<String>,
    /// How often the kernel's rules are compared even if nothing changed: at most 30 s.
    pub repair_interval: Duration,
    /// The port of the nodes' API, which no Service takes on any address.
    pub api_port: Option<u16>,
    /// Where load balancers ask for the proxy's health (`/healthz`, `/livez`), if anywhere.
    pub healthz_port: Option<u16>,
    /// Told what others should know. News that finds no room is dropped.
    pub news: Option<mpsc::Sender<News>>,
}

/// Why the proxy cannot work at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// What it needs is not installed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Programs Services until `shutdown`. The rules stay when it ends.
///
/// # Errors
/// Only what makes going on useless; a failed transaction is logged and tried again.
pub async fn run(
    sources: Sources,
    config: ProxyConfig,
    shutdown: CancellationToken,
) -> Result<(), ProxyError> {
    let ranges = ServiceRanges::new(&config, &sources);
    let (engine, route) = ranges.writers()?;
    let (targets, told) = latest::channel(Targets::default());
    let (checks, told_checks) = latest::channel(HealthChecks::default());
    let health = ProxyHealth::default();
    let node_port_ranges = NodePortRanges::new(&config.node_port_cidrs);
    let facts = Facts {
        checks: told_checks,
        health: health.clone(),
        sources: sources.clone(),
        node_port_ranges: node_port_ranges.clone(),
    };
    let health_server = HealthServer::new(facts, config.healthz_port, config.news.clone());
    let mut beside = JoinSet::new();
    coracle_telemetry::spawn_in(
        &mut beside,
        "forget stale connections",
        conntrack::clean(told),
    );
    coracle_telemetry::spawn_in(&mut beside, "open health checks", health_server.run());
    let proxy = Proxy {
        sources,
        turns: Turns::default(),
        api_port: config.api_port,
        node_port_ranges,
        ranges,
        engine: Some(engine),
        route,
        repair_interval: config.repair_interval,
        retry_delay: None,
        retry: Backoff::new(RETRY_DELAY, config.repair_interval),
        targets,
        checks,
        due: ChecksDue::default(),
        health,
        _beside: beside,
        news: config.news,
    };
    proxy.run(shutdown).await
}

/// First wait after a failed transaction; doubled up to the repair interval.
const RETRY_DELAY: Duration = Duration::from_millis(500);

struct Proxy {
    sources: Sources,
    turns: Turns,
    api_port: Option<u16>,
    node_port_ranges: NodePortRanges,
    ranges: ServiceRanges,
    /// `None` only while a blocking thread has it.
    engine: Option<Box<dyn ServiceEngine>>,
    route: ServiceRoute,
    repair_interval: Duration,
    /// Set after a failure.
    retry_delay: Option<Duration>,
    retry: Backoff,
    /// Where UDP flows may go, for the cleaning.
    targets: latest::Sender<Targets>,
    /// What load balancers are told of Services.
    checks: latest::Sender<HealthChecks>,
    due: ChecksDue,
    health: ProxyHealth,
    /// Ends with the proxy.
    _beside: JoinSet<()>,
    news: Option<mpsc::Sender<News>>,
}

impl Proxy {
    async fn run(mut self, shutdown: CancellationToken) -> Result<(), ProxyError> {
        let listed = shutdown.run_until_cancelled(self.sources.listed());
        if self.health.behind_until(listed).await.is_none() {
            return Ok(());
        }
        self.sources.restart();
        let mut published = self.sources.published().watch();
        let mut repair_at = Instant::now() + self.repair_interval;
        let mut look = Look::new(self.repair_interval);
        // When the next write would be due if they came evenly: at most `WRITE_CREDIT` intervals
        // ahead of the clock.
        let mut even = Instant::now();
        loop {
            if let Some((engine, route)) = self.ranges.renewed(&self.sources)? {
                (self.engine, self.route) = (Some(engine), route);
                self.sources.restart();
            }
            let pending = self.has_work();
            if pending || self.retry_delay.is_some() {
                self.health.falls_behind();
            } else {
                self.health.catches_up();
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = self.sources.service_cidrs().changed() => {}
                () = self.sources.changed(), if !pending => {}
                () = self.sources.inquiries().come() => {
                    self.sources.inquiries().answer(|| self.owned());
                }
                Ok(()) = published.changed() => self.look_around().await,
                () = sleep_until(even - WRITE_INTERVAL * (WRITE_CREDIT - 1)), if pending => {
                    even = even.max(Instant::now()) + WRITE_INTERVAL;
                    self.write().await;
                    repair_at = Instant::now() + self.retry_delay.unwrap_or(self.repair_interval);
                }
                () = sleep_until(repair_at) => {
                    self.repair().await;
                    repair_at = Instant::now() + self.retry_delay.unwrap_or(self.repair_interval);
                }
                () = look.due() => {
                    let started = Instant::now();
                    let repaired = match self.is_disturbed() {
                        true => Some(self.repair().await),
                        false => None,
                    };
                    look.looked(started, repaired);
                }
            }
        }
    }

    /// Whether a transaction is due. After a failure everything waits for the repair, which has the
    /// changes too.
    fn has_work(&self) -> bool {
        let never_written = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.is_suspect());
        (self.has_changes() || never_written) && self.retry_delay.is_none()
    }

    fn has_changes(&self) -> bool {
        self.sources.has_changes() || !self.turns.is_empty()
    }

    /// Whether others changed rules. Not after a failure: then the repair has its own time.
    fn is_disturbed(&self) -> bool {
        self.retry_delay.is_none()
            && self
                .engine
                .as_ref()
                .is_some_and(|engine| !engine.is_suspect() && engine.is_disturbed())
    }

    async fn write(&mut self) {
        let changed = self.sources.take_changes();
        if changed
            .iter()
            .any(|(_, view)| view.as_ref().is_some_and(turns::has_external))
        {
            self.look_around().await;
        }
        for (key, view) in &changed {
            let check = view.as_ref().and_then(|_| self.sources.health_check(key));
            self.due.add(key, check);
        }
        self.turns.add(changed);
        // What a predecessor left stays until all is known that should be there.
        let is_suspect = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.is_suspect());
        let changes = if is_suspect {
            self.turns.take_all()
        } else {
            self.turns.take()
        };
        self.turns
            .take_news()
            .into_iter()
            .for_each(|news| self.tell(news));
        for (key, view) in &changes {
            self.due.take(key, view.is_some());
        }
        let count = changes.len();
        let started = Instant::now();
        let udp_changed = self.on_engine(move |engine| engine.apply(changes)).await;
        tracing::debug!(services = count, elapsed = ?started.elapsed(), "wrote rules");
        if udp_changed == Some(true)
            && let Some(engine) = &self.engine
        {
            // Only fails when the cleaning has ended, which it does with this.
            self.targets.send_replace(engine.udp_targets());
        }
    }

    /// Sees who is where: daemons of the node come and go without a word.
    async fn look_around(&mut self) {
        let listeners = self.sources.listeners().clone();
        let machine = blocking(move || Holdings::of_machine(&listeners)).await;
        let (nodes, api_servers) = (self.sources.nodes(), self.sources.api_servers());
        self.turns.set_holdings(Holdings {
            nodes,
            api_servers,
            api_port: self.api_port,
            published: self.sources.published().all(),
            node_port_ranges: self.node_port_ranges.clone(),
            ..machine
        });
    }

    /// Returns whether there was anything to repair.
    async fn repair(&mut self) -> bool {
        // What hangs here hears of no change.
        self.health.falls_behind();
        self.look_around().await;
        if self.has_changes() {
            self.write().await;
            return false;
        }
        let repaired = self.on_engine(|engine| engine.reconcile()).await == Some(true);
        if repaired {
            tracing::info!("repaired Service rules that were changed by others or not written yet");
            self.tell(News::Repaired);
        }
        repaired
    }

    /// Works on the rules on a blocking thread. `None`: failed, and `retry_delay` says when to try
    /// again.
    async fn on_engine(
        &mut self,
        work: impl FnOnce(&mut dyn ServiceEngine) -> Result<bool, EngineError> + Send + 'static,
    ) -> Option<bool> {
        let mut engine = self.engine.take()?;
        let mut route = self.route.clone();
        let (engine, route, result) = blocking(move || {
            route.ensure();
            let result = work(engine.as_mut());
            (engine, route, result)
        })
        .await;
        self.engine = Some(engine);
        self.route = route;
        for refusal in self
            .engine
            .as_mut()
            .map(|engine| engine.take_refusals())
            .unwrap_or_default()
        {
            self.tell(News::Refused(refusal));
        }
        match result {
            Ok(changed) => {
                self.retry_delay = None;
                self.retry.reset();
                let refused = self.engine.as_ref().map(|engine| engine.refused());
                let refused = refused.unwrap_or_default();
                // Whoever is sent here finds the rules.
                let checks = self.due.written(&refused);
                self.checks.send_if_modified(|told| {
                    let is_news = *told != checks;
                    *told = checks;
                    is_news
                });
                self.tell(News::Written {
                    refused: refused.len(),
                });
                Some(changed)
            }
            Err(error) => {
                let delay = self.retry.pause();
                self.retry_delay = Some(delay);
                tracing::error!(error = %ErrorChain(&error), ?delay, "cannot write Service rules; trying again");
                self.tell(News::Failing {
                    why: error.to_string(),
                });
                None
            }
        }
    }

    fn tell(&self, news: News) {
        if let Some(told) = &self.news
            && let Err(mpsc::error::TrySendError::Full(news)) = told.try_send(news)
        {
            tracing::warn!(?news, "nobody takes news of Service rules: dropped");
        }
    }
}
