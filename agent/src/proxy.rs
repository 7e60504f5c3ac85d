//! The Service proxy: what kube-proxy does.
//!
//! Watches Services and EndpointSlices, turns them into rules ([`rules`], pure) and keeps the kernel's tables equal to
//! them ([`iptables`]), one `iptables-restore --noflush` transaction a change. Works in whatever network namespace the
//! process is in. Rules stay when it ends: the next one takes them over without a gap.

pub mod change_tracker;
pub mod conntrack;
pub mod iptables;
pub mod rules;
mod service_route;

use std::{net::IpAddr, pin::pin, time::Duration};

use coracle_cni::iptables::{Iptables, IptablesError};
use futures::StreamExt as _;
use ipnet::IpNet;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{Api, runtime::watcher};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::watch::{self, Pulse};

use self::{
    change_tracker::ChangeTracker, conntrack::Targets, iptables::Writer, rules::Frame, service_route::ServiceRoute,
};

/// Most events taken into one transaction: bounds how long a flood can hold the first of it back.
const BURST: usize = 10_000;
/// Changes are written at once as long as they come slower than this on average...
const WRITE_INTERVAL: Duration = Duration::from_millis(25);
/// ...or are not more than these: in a storm, transactions must not take a whole core from the pods that cause it.
const WRITE_CREDIT: u32 = 4;

/// What [`run`] needs to know.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Own node: decides which endpoints are local.
    pub node_name: String,
    /// Own InternalIP: source address of the node's own traffic to Services where there is no default route.
    pub node_ip: Option<IpAddr>,
    /// Addresses of all pods: traffic from elsewhere to a ClusterIP is masqueraded. Empty: none is.
    pub cluster_cidrs: Vec<IpNet>,
    /// Addresses of Services: what has no rule there is rejected instead of leaving the node. Empty: only Services
    /// without endpoints are rejected.
    pub service_cidrs: Vec<IpNet>,
    /// How often the kernel's rules are compared even if nothing changed: at most 30 s.
    pub repair_interval: Duration,
    /// Told when the API is back after a silence.
    pub pulse: Pulse,
}

/// Why the proxy cannot work at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// No usable `iptables-restore`.
    #[error("{what}")]
    Iptables {
        /// What was tried and what it answered.
        what: String,
    },
}

/// Programs Services until `shutdown`. The rules stay when it ends.
///
/// # Errors
/// Only what makes going on useless; a failed transaction is logged and tried again.
pub async fn run(client: kube::Client, config: ProxyConfig, shutdown: CancellationToken) -> Result<(), ProxyError> {
    let iptables = Iptables::find().map_err(|error| ProxyError::Iptables { what: error.to_string() })?;
    let frame = Frame::new(&config.cluster_cidrs, &config.service_cidrs);
    let route = ServiceRoute::new(&frame.service_cidrs, config.node_ip);
    let proxy = Proxy {
        tracker: ChangeTracker::new(&config.node_name),
        writer: Some(Writer::new(iptables, frame)),
        route,
        repair_interval: config.repair_interval,
        pulse: config.pulse.clone(),
        retry_delay: None,
        cleaning: JoinSet::new(),
    };
    proxy.run(client, shutdown).await;
    Ok(())
}

/// First wait after a failed transaction; doubled up to the repair interval.
const RETRY_DELAY: Duration = Duration::from_millis(500);

struct Proxy {
    tracker: ChangeTracker,
    /// `None` only while a blocking thread has it.
    writer: Option<Writer>,
    route: ServiceRoute,
    repair_interval: Duration,
    pulse: Pulse,
    /// Set after a failure.
    retry_delay: Option<Duration>,
    /// At most one cleaning of UDP flows at a time.
    cleaning: JoinSet<()>,
}

impl Proxy {
    async fn run(mut self, client: kube::Client, shutdown: CancellationToken) {
        let services = watch::events(Api::<Service>::all(client.clone()), watcher::Config::default(), &self.pulse);
        let slices = watch::events(Api::<EndpointSlice>::all(client), watcher::Config::default(), &self.pulse);
        let (mut services, mut slices) = (pin!(services), pin!(slices));
        let mut repair_at = Instant::now() + self.repair_interval;
        // When the next write would be due if they came evenly: at most `WRITE_CREDIT` intervals ahead of the clock.
        let mut even = Instant::now();
        loop {
            let pending = self.tracker.is_complete() && self.has_work();
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(event) = services.next() => self.on_service(event),
                Some(event) = slices.next() => self.on_slice(event),
                () = sleep_until(even - WRITE_INTERVAL * (WRITE_CREDIT - 1)), if pending => {
                    even = even.max(Instant::now()) + WRITE_INTERVAL;
                    self.write().await;
                    repair_at = Instant::now() + self.retry_delay.unwrap_or(self.repair_interval);
                    continue;
                }
                () = sleep_until(repair_at) => {
                    if self.tracker.is_complete() {
                        self.repair().await;
                    }
                    repair_at = Instant::now() + self.retry_delay.unwrap_or(self.repair_interval);
                    continue;
                }
            }
            // A burst is one transaction: take what has already arrived, wait for nothing.
            for _ in 0..BURST {
                tokio::select! {
                    biased;
                    Some(event) = services.next() => self.on_service(event),
                    Some(event) = slices.next() => self.on_slice(event),
                    () = std::future::ready(()) => break,
                }
            }
        }
    }

    /// Whether a transaction is due. After a failure everything waits for the repair, which has the changes too.
    fn has_work(&self) -> bool {
        let never_written = self.writer.as_ref().is_some_and(Writer::is_suspect);
        (self.tracker.has_changes() || never_written) && self.retry_delay.is_none()
    }

    fn on_service(&mut self, event: Result<watcher::Event<Service>, watcher::Error>) {
        match event {
            Ok(event) => self.tracker.service(event),
            Err(error) => tracing::debug!(%error, "watch of services; trying again"),
        }
    }

    fn on_slice(&mut self, event: Result<watcher::Event<EndpointSlice>, watcher::Error>) {
        match event {
            Ok(event) => self.tracker.slice(event),
            Err(error) => tracing::debug!(%error, "watch of endpointslices; trying again"),
        }
    }

    async fn write(&mut self) {
        let changes = self.tracker.take_changes();
        let count = changes.len();
        let started = Instant::now();
        let udp_changed = self.on_writer(move |writer| writer.apply(changes)).await;
        tracing::debug!(services = count, elapsed = ?started.elapsed(), "wrote rules");
        if udp_changed == Some(true)
            && let Some(writer) = &self.writer
        {
            let targets = Targets::collect(writer.fragments());
            let running = std::mem::take(&mut self.cleaning);
            self.cleaning.spawn(async move {
                running.join_all().await;
                conntrack::clean(targets).await;
            });
        }
    }

    async fn repair(&mut self) {
        if self.tracker.has_changes() {
            self.write().await;
        } else if self.on_writer(Writer::reconcile).await == Some(true) {
            tracing::info!("repaired Service rules that were changed by others or not written yet");
        }
    }

    /// Works on the rules on a blocking thread. `None`: failed, and `retry_delay` says when to try again.
    async fn on_writer(
        &mut self,
        work: impl FnOnce(&mut Writer) -> Result<bool, IptablesError> + Send + 'static,
    ) -> Option<bool> {
        let mut writer = self.writer.take()?;
        let mut route = self.route.clone();
        let done = tokio::task::spawn_blocking(move || {
            route.ensure();
            let result = work(&mut writer);
            (writer, route, result)
        });
        let result = match done.await {
            Ok((writer, route, result)) => {
                self.writer = Some(writer);
                self.route = route;
                result
            }
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down.
                Err(_) => return None,
            },
        };
        match result {
            Ok(changed) => {
                self.retry_delay = None;
                Some(changed)
            }
            Err(error) => {
                let delay = self.retry_delay.map_or(RETRY_DELAY, |delay| (delay * 2).min(self.repair_interval));
                self.retry_delay = Some(delay);
                tracing::error!(%error, ?delay, "cannot write Service rules; trying again");
                None
            }
        }
    }
}
