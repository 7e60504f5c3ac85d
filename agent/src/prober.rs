//! Liveness, readiness and startup probes.
//!
//! Each pod worker owns a [`PodProbes`]; each probe of each running container is a task of its own that writes its
//! verdict into shared state and wakes the worker when the verdict changes. Readiness and startup probes that have not
//! yet succeeded are tried early and often (5 ms, doubling up to the period): a server that listens after 20 ms is ready
//! after 25 ms, not at the next period. Early tries never count as failures. Probes that run a command are not hastened:
//! what a command does is its author's to space.

mod exec;
mod grpc;
pub(crate) mod http;
mod tcp;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_telemetry::Backoff;
use k8s_openapi::{
    api::core::v1::{Container, Pod, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    context::NodeContext,
    events::Severity,
    pod::PodExt,
    pod_actions::Verdict,
    pod_status::ProbeState,
    runtime::types::{ContainerId, ContainerState, ContainerStatus},
};

/// First and longest distance of early tries.
const EARLY: Duration = Duration::from_millis(5);
const EARLY_MAX: Duration = Duration::from_secs(1);

/// What one try found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// As good as success, but somebody should know of it.
    Warning(String),
    /// With what it said.
    Failure(String),
    /// The probe could not be carried out: neither success nor failure.
    Unknown(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Liveness,
    Readiness,
    Startup,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }
}

/// What is known of a container when its probes start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seed {
    /// Nothing: it has just started.
    Fresh,
    /// It ran before the agent did, and this is what was known of it then.
    Kept(ProbeState),
    /// It ran before the agent did, and nobody has said yet what was known of it: probed later.
    Unsaid,
}

struct Shared {
    verdict: Mutex<Verdict>,
    ready: Mutex<bool>,
    started: watch::Sender<bool>,
}

struct Probed {
    shared: Arc<Shared>,
    others: CancellationToken,
    _stop: DropGuard,
}

/// The probes of one pod's running containers. Dropping it ends them.
#[derive(Default)]
pub(crate) struct PodProbes {
    containers: HashMap<ContainerId, Probed>,
}

impl PodProbes {
    /// Starts probes of new containers, ends those of containers that no longer run.
    ///
    /// `seed` says what is known of a container.
    pub(crate) fn sync(
        &mut self,
        ctx: &Arc<NodeContext>,
        pod: &Arc<Pod>,
        containers: &[ContainerStatus],
        ips: &[IpAddr],
        wake: &Arc<Notify>,
        seed: impl Fn(&ContainerStatus) -> Seed,
    ) {
        self.keep_running(containers);
        for status in containers {
            let ContainerState::Running { started_at, .. } = status.state else { continue };
            if self.containers.contains_key(&status.id) {
                continue;
            }
            let Some(container) = pod.container(&status.name) else { continue };
            let kept = match seed(status) {
                Seed::Fresh => None,
                Seed::Kept(state) => Some(state),
                Seed::Unsaid => continue,
            };
            let host = if pod.host_network() { Some(ctx.config.node_ip) } else { ips.first().copied() };
            let target = Target {
                ctx: Arc::clone(ctx),
                pod: Arc::clone(pod),
                container: container.clone(),
                id: status.id.clone(),
                host,
                started_at,
                wake: Arc::clone(wake),
            };
            self.containers.insert(status.id.clone(), spawn(&target, kept));
        }
    }

    /// Ends those of containers that no longer run, and starts none.
    pub(crate) fn keep_running(&mut self, containers: &[ContainerStatus]) {
        self.containers.retain(|id, _| {
            containers.iter().any(|c| c.id == *id && matches!(c.state, ContainerState::Running { .. }))
        });
    }

    /// What the probes say, for the plan.
    pub(crate) fn verdicts(&self) -> HashMap<ContainerId, Verdict> {
        self.containers.iter().map(|(id, probed)| (id.clone(), *probed.shared.verdict.lock())).collect()
    }

    /// What the probes say, for the status.
    pub(crate) fn states(&self) -> HashMap<ContainerId, ProbeState> {
        let state = |probed: &Probed| ProbeState {
            started: *probed.shared.started.borrow(),
            ready: *probed.shared.ready.lock(),
        };
        self.containers.iter().map(|(id, probed)| (id.clone(), state(probed))).collect()
    }

    /// Ends liveness and startup probes; readiness is still asked for while a pod winds down.
    pub(crate) fn stop_all_but_readiness(&mut self) {
        for probed in self.containers.values() {
            probed.others.cancel();
        }
    }
}

#[derive(Clone)]
struct Target {
    ctx: Arc<NodeContext>,
    pod: Arc<Pod>,
    container: Container,
    id: ContainerId,
    host: Option<IpAddr>,
    started_at: SystemTime,
    wake: Arc<Notify>,
}

fn spawn(target: &Target, seed: Option<ProbeState>) -> Probed {
    let container = &target.container;
    let started = container.startup_probe.is_none() || seed.is_some_and(|seed| seed.started);
    let ready = container.readiness_probe.is_none() || seed.is_some_and(|seed| seed.ready);
    let shared = Arc::new(Shared {
        verdict: Mutex::new(Verdict { started, ..Verdict::default() }),
        ready: Mutex::new(ready),
        started: watch::Sender::new(started),
    });
    let all = CancellationToken::new();
    let others = all.child_token();
    let run = |kind, probe: &Option<Probe>, stop: &CancellationToken| {
        let Some(probe) = probe.clone() else { return };
        let worker =
            ProbeWorker { target: target.clone(), shared: Arc::clone(&shared), kind, probe, seeded: seed.is_some() };
        let stop = stop.clone();
        // Ended by its token, which the owner's guard cancels.
        drop(coracle_telemetry::spawn("probe", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = worker.run() => {}
            }
        }));
    };
    if !started {
        run(Kind::Startup, &container.startup_probe, &others);
    }
    run(Kind::Liveness, &container.liveness_probe, &others);
    run(Kind::Readiness, &container.readiness_probe, &all);
    Probed { shared, others, _stop: all.drop_guard() }
}

struct ProbeWorker {
    target: Target,
    shared: Arc<Shared>,
    kind: Kind,
    probe: Probe,
    seeded: bool,
}

impl ProbeWorker {
    async fn run(self) {
        if self.kind != Kind::Startup && self.shared.started.subscribe().wait_for(|started| *started).await.is_err() {
            return;
        }
        let delay = seconds(self.probe.initial_delay_seconds, 0);
        let age = self.target.started_at.elapsed().unwrap_or_default();
        tokio::time::sleep(delay.saturating_sub(age)).await;
        let period = seconds(self.probe.period_seconds, 10).max(Duration::from_secs(1));
        if self.seeded {
            // Not all pods at once while the agent starts, as upstream.
            tokio::time::sleep(period.mul_f64(rand::random())).await;
        }
        let (mut successes, mut failures) = (0, 0);
        // If nothing comes of the early tries, the next ones count.
        let hastened = self.kind != Kind::Liveness && !self.seeded && self.probe.exec.is_none();
        if hastened && self.hasten(period).await {
            successes = 1;
            if self.succeed(successes) {
                return;
            }
            tokio::time::sleep(period).await;
        }
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            match self.attempt().await {
                outcome @ (Outcome::Success | Outcome::Warning(_)) => {
                    self.warn(&outcome);
                    (successes, failures) = (successes + 1, 0);
                    if self.succeed(successes) {
                        return;
                    }
                }
                Outcome::Failure(message) => {
                    (successes, failures) = (0, failures + 1);
                    self.complain(&message);
                    if self.fail(failures) {
                        return;
                    }
                }
                Outcome::Unknown(message) => {
                    tracing::debug!(pod = %self.target.pod.display(), container = %self.target.container.name, message, "probe");
                }
            }
        }
    }

    /// Early tries within the first period; whether one succeeded.
    async fn hasten(&self, period: Duration) -> bool {
        let end = tokio::time::Instant::now() + period;
        let mut pauses = Backoff::new(EARLY, EARLY_MAX);
        loop {
            let outcome = self.attempt().await;
            if matches!(outcome, Outcome::Success | Outcome::Warning(_)) {
                self.warn(&outcome);
                return true;
            }
            let pause = pauses.pause();
            if tokio::time::Instant::now() + pause >= end {
                tokio::time::sleep_until(end).await;
                return false;
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(&self) -> Outcome {
        let limit = seconds(self.probe.timeout_seconds, 1).max(Duration::from_millis(1));
        let target = &self.target;
        if let Some(action) = &self.probe.exec {
            return exec::probe(
                target.ctx.runtime.as_ref(),
                &target.id,
                action.command.as_deref().unwrap_or_default(),
                limit,
            )
            .await;
        }
        if let Some(action) = &self.probe.http_get {
            return match http::Request::new(action, &target.container, target.host) {
                Ok(request) => http::probe(&request, limit).await,
                Err(message) => Outcome::Unknown(message),
            };
        }
        if let Some(action) = &self.probe.grpc {
            return match (target.host, u16::try_from(action.port)) {
                (Some(host), Ok(port)) => grpc::probe(host, port, action.service.as_deref().unwrap_or(""), limit).await,
                // Without an address it is not the container's failure: unknown.
                _ => Outcome::Unknown("no address or port to connect to".to_owned()),
            };
        }
        let Some(action) = &self.probe.tcp_socket else { return Outcome::Unknown("no handler".to_owned()) };
        let (host, port) = (action.host.clone(), port_number(&action.port, &target.container));
        let host = host.filter(|host| !host.is_empty()).or_else(|| target.host.map(|ip| ip.to_string()));
        match (host, port) {
            (Some(host), Some(port)) => tcp::probe(&host, port, limit).await,
            _ => Outcome::Unknown("no address or port to connect to".to_owned()),
        }
    }

    /// Counts a success; whether the task is done.
    fn succeed(&self, successes: i32) -> bool {
        let threshold = self.probe.success_threshold.unwrap_or(1).max(1);
        match self.kind {
            Kind::Liveness => false,
            Kind::Startup => {
                self.shared.verdict.lock().started = true;
                self.shared.started.send_replace(true);
                self.target.wake.notify_one();
                true
            }
            Kind::Readiness => {
                if successes >= threshold && !std::mem::replace(&mut *self.shared.ready.lock(), true) {
                    self.target.wake.notify_one();
                }
                false
            }
        }
    }

    /// Counts a failure; whether the task is done.
    fn fail(&self, failures: i32) -> bool {
        if failures < self.probe.failure_threshold.unwrap_or(3).max(1) {
            return false;
        }
        match self.kind {
            Kind::Liveness => self.shared.verdict.lock().liveness_failed = true,
            Kind::Startup => self.shared.verdict.lock().startup_failed = true,
            Kind::Readiness => {
                if std::mem::replace(&mut *self.shared.ready.lock(), false) {
                    self.target.wake.notify_one();
                }
                return false;
            }
        }
        self.target.wake.notify_one();
        true
    }

    fn complain(&self, message: &str) {
        self.tell("Unhealthy", format!("{} probe failed: {message}", self.kind.as_str()));
    }

    fn warn(&self, outcome: &Outcome) {
        if let Outcome::Warning(message) = outcome {
            self.tell("ProbeWarning", format!("{} probe warning: {message}", self.kind.as_str()));
        }
    }

    fn tell(&self, reason: &'static str, text: String) {
        let name = &self.target.container.name;
        self.target.ctx.events.pod(&self.target.pod, Some(name), Severity::Warning, reason, text);
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).filter(|&value| value > 0).unwrap_or(default))
}

/// A port by number, or by the name of one of the container's ports.
pub(crate) fn port_number(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => match name.parse() {
            Ok(number) => number,
            Err(_) => container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name))?.container_port,
        },
    };
    u16::try_from(number).ok().filter(|&port| port > 0)
}

#[cfg(test)]
mod tests;
