//! Liveness, readiness and startup probes.
//!
//! Each pod worker owns a [`PodProbes`]; each probe of each running container is a task of its own
//! that writes its verdict into shared state and wakes the worker when the verdict changes.
//! Readiness and startup probes that have not yet succeeded are tried early and often (5 ms,
//! doubling up to the period): a server that listens after 20 ms is ready after 25 ms, not at the
//! next period. Early tries never count as failures. Probes that run a command are not hastened:
//! what a command does is its author's to space.

mod exec;
mod grpc;
pub(crate) mod http;
mod tcp;
mod worker;

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::sync::Notify;

use self::worker::{Probed, Target};
use crate::{
    events::EventRecorder,
    pod::PodExt,
    pod_actions::Verdict,
    pod_status::ProbeState,
    runtime::{
        RuntimeService,
        types::{ContainerId, ContainerState, ContainerStatus},
    },
};

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

impl Outcome {
    /// Upstream's word for it.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Warning(_) => "warning",
            Self::Failure(_) => "failure",
            Self::Unknown(_) => "unknown",
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

/// What probes need of the node.
#[derive(Clone)]
pub(crate) struct ProbingNode {
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) events: EventRecorder,
    /// Where pods of the host's network listen.
    pub(crate) address: IpAddr,
}

/// The probes of one pod's running containers. Dropping it ends them.
pub(crate) struct PodProbes {
    node: ProbingNode,
    containers: HashMap<ContainerId, Probed>,
}

impl PodProbes {
    /// Probes nothing yet.
    pub(crate) fn new(node: ProbingNode) -> Self {
        Self {
            node,
            containers: HashMap::new(),
        }
    }

    /// Starts probes of new containers, ends those of containers that no longer run.
    ///
    /// `seed` says what is known of a container.
    pub(crate) fn sync(
        &mut self,
        pod: &Arc<Pod>,
        containers: &[ContainerStatus],
        ips: &[IpAddr],
        wake: &Arc<Notify>,
        seed: impl Fn(&ContainerStatus) -> Seed,
    ) {
        self.keep_running(containers);
        for status in containers {
            let ContainerState::Running { started_at, .. } = status.state else {
                continue;
            };
            if self.containers.contains_key(&status.id) {
                continue;
            }
            let Some(container) = pod.container(&status.name) else {
                continue;
            };
            let kept = match seed(status) {
                Seed::Fresh => None,
                Seed::Kept(state) => Some(state),
                // Asked again at the next sync, when the API server may have told.
                Seed::Unsaid => continue,
            };
            let host = if pod.host_network() {
                Some(self.node.address)
            } else {
                ips.first().copied()
            };
            let target = Target {
                node: self.node.clone(),
                pod: Arc::clone(pod),
                container: container.clone(),
                id: status.id.clone(),
                host,
                started_at,
                wake: Arc::clone(wake),
            };
            self.containers
                .insert(status.id.clone(), worker::spawn(&target, kept));
        }
    }

    /// Ends those of containers that no longer run, and starts none.
    pub(crate) fn keep_running(&mut self, containers: &[ContainerStatus]) {
        self.containers.retain(|id, _| {
            containers
                .iter()
                .any(|c| c.id == *id && matches!(c.state, ContainerState::Running { .. }))
        });
    }

    /// Ends all of them.
    pub(crate) fn end(&mut self) {
        self.containers.clear();
    }

    /// What the probes say, for the plan.
    pub(crate) fn verdicts(&self) -> HashMap<ContainerId, Verdict> {
        self.containers
            .iter()
            .map(|(id, probed)| (id.clone(), probed.verdict()))
            .collect()
    }

    /// What the probes say, for the status.
    pub(crate) fn states(&self) -> HashMap<ContainerId, ProbeState> {
        self.containers
            .iter()
            .map(|(id, probed)| (id.clone(), probed.state()))
            .collect()
    }

    /// Ends liveness and startup probes; readiness is still asked for while a pod winds down.
    pub(crate) fn stop_all_but_readiness(&mut self) {
        for probed in self.containers.values() {
            probed.stop_all_but_readiness();
        }
    }
}

/// A port by number, or by the name of one of the container's ports.
pub(crate) fn port_number(port: &IntOrString, container: &Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => match name.parse() {
            Ok(number) => number,
            Err(_) => {
                container
                    .ports
                    .iter()
                    .flatten()
                    .find(|port| port.name.as_deref() == Some(name))?
                    .container_port
            }
        },
    };
    u16::try_from(number).ok().filter(|&port| port > 0)
}

#[cfg(test)]
mod tests;
