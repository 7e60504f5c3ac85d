//! One task a probe: waits, tries, counts, and tells the pod's worker when its verdict changes.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use coracle_telemetry::{Backoff, span};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument as _, field::Empty};

use super::{Outcome, ProbingNode, exec, grpc, http, port_number, tcp};
use crate::{
    events::EventType, pod::PodExt, pod_actions::Verdict, pod_status::ProbeState,
    runtime::types::ContainerId,
};

/// First and longest distance of early tries.
const EARLY: Duration = Duration::from_millis(5);
const EARLY_MAX: Duration = Duration::from_secs(1);

/// Tries of one probe that cannot be carried out.
const MAX_TRIES: usize = 3;

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

/// What all probes of one container have found out so far.
#[derive(Clone, Copy)]
struct Findings {
    verdict: Verdict,
    ready: bool,
}

/// The probes of one container at work. Dropping it ends them.
pub(super) struct Probed {
    findings: watch::Sender<Findings>,
    others: CancellationToken,
    _stop: DropGuard,
}

impl Probed {
    /// What they say, for the plan.
    pub(super) fn verdict(&self) -> Verdict {
        self.findings.borrow().verdict
    }

    /// What they say, for the status.
    pub(super) fn state(&self) -> ProbeState {
        let Findings { verdict, ready } = *self.findings.borrow();
        ProbeState {
            started: verdict.started,
            ready,
        }
    }

    pub(super) fn stop_all_but_readiness(&self) {
        self.others.cancel();
    }
}

/// A container whose probes begin.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) node: ProbingNode,
    pub(super) pod: Arc<Pod>,
    pub(super) container: Container,
    pub(super) id: ContainerId,
    pub(super) host: Option<IpAddr>,
    pub(super) started_at: SystemTime,
    pub(super) wake: Arc<Notify>,
}

/// Starts its probes; `seed` is what is known from before the agent.
pub(super) fn spawn(target: &Target, seed: Option<ProbeState>) -> Probed {
    let container = &target.container;
    let started = container.startup_probe.is_none() || seed.is_some_and(|seed| seed.started);
    let ready = container.readiness_probe.is_none() || seed.is_some_and(|seed| seed.ready);
    let verdict = Verdict {
        started,
        ..Verdict::default()
    };
    let findings = watch::Sender::new(Findings { verdict, ready });
    let all = CancellationToken::new();
    let others = all.child_token();
    let run = |kind, probe: &Option<Probe>, stop: &CancellationToken| {
        let Some(probe) = probe.clone() else { return };
        let worker = ProbeWorker {
            target: target.clone(),
            findings: findings.clone(),
            kind,
            probe,
            seeded: seed.is_some(),
        };
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
    Probed {
        findings,
        others,
        _stop: all.drop_guard(),
    }
}

struct ProbeWorker {
    target: Target,
    findings: watch::Sender<Findings>,
    kind: Kind,
    probe: Probe,
    seeded: bool,
}

impl ProbeWorker {
    async fn run(self) {
        if self.kind != Kind::Startup
            && self
                .findings
                .subscribe()
                .wait_for(|findings| findings.verdict.started)
                .await
                .is_err()
        {
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
            match self.attempt_with_retries().await {
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
                    self.tell(
                        "Unhealthy",
                        format!(
                            "{} probe errored and resulted in unknown state: {message}",
                            self.kind.as_str()
                        ),
                    );
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

    /// Again at once while it cannot be carried out. Source: `runProbeWithRetries` in
    /// `pkg/kubelet/prober/prober.go`, `maxProbeRetries`.
    async fn attempt_with_retries(&self) -> Outcome {
        let mut outcome = self.attempt().await;
        for _ in 1..MAX_TRIES {
            if !matches!(outcome, Outcome::Unknown(_)) {
                break;
            }
            outcome = self.attempt().await;
        }
        outcome
    }

    async fn attempt(&self) -> Outcome {
        let Target { pod, container, .. } = &self.target;
        let (kind, name) = (self.kind.as_str(), container.name.as_str());
        let span = span!("probe", pod = %pod.reference(), uid = %pod.uid(), container = name, "type" = kind, outcome = Empty);
        let outcome = self.ask().instrument(span.clone()).await;
        span.record("outcome", outcome.as_str());
        outcome
    }

    async fn ask(&self) -> Outcome {
        let limit = seconds(self.probe.timeout_seconds, 1).max(Duration::from_millis(1));
        let target = &self.target;
        if let Some(action) = &self.probe.exec {
            return exec::probe(
                target.node.runtime.as_ref(),
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
                (Some(host), Ok(port)) => {
                    grpc::probe(host, port, action.service.as_deref().unwrap_or(""), limit).await
                }
                // Without an address it is not the container's failure: unknown.
                _ => Outcome::Unknown("no address or port to connect to".to_owned()),
            };
        }
        let Some(action) = &self.probe.tcp_socket else {
            return Outcome::Unknown("no handler".to_owned());
        };
        let (host, port) = (
            action.host.clone(),
            port_number(&action.port, &target.container),
        );
        let host = host
            .filter(|host| !host.is_empty())
            .or_else(|| target.host.map(|ip| ip.to_string()));
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
                self.find(|findings| &mut findings.verdict.started, true);
                true
            }
            Kind::Readiness => {
                if successes >= threshold {
                    self.find(|findings| &mut findings.ready, true);
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
            Kind::Liveness => self.find(|findings| &mut findings.verdict.liveness_failed, true),
            Kind::Startup => self.find(|findings| &mut findings.verdict.startup_failed, true),
            Kind::Readiness => self.find(|findings| &mut findings.ready, false),
        }
        self.kind != Kind::Readiness
    }

    /// Tells the pod's worker, if it is news.
    fn find(&self, what: impl FnOnce(&mut Findings) -> &mut bool, value: bool) {
        let news = self
            .findings
            .send_if_modified(|findings| std::mem::replace(what(findings), value) != value);
        if news {
            self.target.wake.notify_one();
        }
    }

    fn complain(&self, message: &str) {
        self.tell(
            "Unhealthy",
            format!("{} probe failed: {message}", self.kind.as_str()),
        );
    }

    fn warn(&self, outcome: &Outcome) {
        if let Outcome::Warning(message) = outcome {
            self.tell(
                "ProbeWarning",
                format!("{} probe warning: {message}", self.kind.as_str()),
            );
        }
    }

    fn tell(&self, reason: &'static str, text: String) {
        let name = &self.target.container.name;
        self.target.node.events.pod(
            &self.target.pod,
            Some(name),
            EventType::Warning,
            reason,
            text,
        );
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(
        value
            .and_then(|value| u64::try_from(value).ok())
            .filter(|&value| value > 0)
            .unwrap_or(default),
    )
}
