//! The conditions of a pod that the node writes (pure). All others are kept as they are.

use coracle_api::scheduling::is_sidecar;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition};

use super::{Phase, StatusInput};
use crate::{
    container_config::resources::{self, Difference},
    eviction::ranking::{self, EVICTED},
    pod::{PodExt, api_time},
    runtime::types::{ContainerState, ContainerStatus as ContainerRecord, SandboxState},
};

const OWNED: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
];
/// These two are there only while they are true.
const RESIZE_PENDING: &str = "PodResizePending";
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

/// Whether the node writes this condition.
pub(crate) fn is_own(kind: &str) -> bool {
    OWNED.contains(&kind)
}

struct Verdict {
    status: bool,
    reason: Option<String>,
    message: Option<String>,
}

impl Verdict {
    fn yes() -> Self {
        Self {
            status: true,
            reason: None,
            message: None,
        }
    }

    fn yes_because(reason: &str) -> Self {
        Self {
            status: true,
            reason: Some(reason.to_owned()),
            message: None,
        }
    }

    fn no(reason: Option<&str>, message: Option<String>) -> Self {
        Self {
            status: false,
            reason: reason.map(str::to_owned),
            message,
        }
    }
}

/// The node's own conditions, then everybody else's.
pub(super) fn generate(
    input: &StatusInput<'_>,
    phase: Phase,
    init: &[ContainerStatus],
    containers: &[ContainerStatus],
) -> Vec<PodCondition> {
    let containers_ready = containers_ready(input, phase, init, containers);
    let ready = ready(input, &containers_ready);
    let network = input
        .observed
        .sandbox()
        .is_some_and(|s| s.state == SandboxState::Ready && (s.host_network || !s.ips.is_empty()));
    let verdicts = [
        (
            "PodReadyToStartContainers",
            if network && !input.terminated {
                Verdict::yes()
            } else {
                Verdict::no(None, None)
            },
        ),
        ("Initialized", initialized(input, phase, init, containers)),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", Verdict::yes()),
    ];
    let mut conditions: Vec<PodCondition> = verdicts
        .into_iter()
        .chain(resizing(input))
        .chain(disrupted(input))
        .map(|(kind, verdict)| condition(input, kind, verdict))
        .collect();
    let is_new = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind);
    let previous = input.previous.conditions.iter().flatten();
    let others = previous
        .filter(|condition| !is_own(&condition.type_) && !is_new(&condition.type_))
        .cloned();
    let others: Vec<PodCondition> = others.collect();
    conditions.extend(others);
    conditions
}

/// A resize that waits, and one that is not done yet.
fn resizing(input: &StatusInput<'_>) -> impl Iterator<Item = (&'static str, Verdict)> {
    let pending = input.resize_pending.map(|why| {
        let verdict = Verdict {
            message: Some(why.message.clone()),
            ..Verdict::yes_because(&why.reason)
        };
        (RESIZE_PENDING, verdict)
    });
    let runs =
        |container: &ContainerRecord| matches!(container.state, ContainerState::Running { .. });
    let differs = |container: &Container| {
        let running = input
            .observed
            .latest(&container.name)
            .filter(|record| runs(record));
        running.is_some_and(|one| {
            Difference::between(&resources::limits_of(input.pod, container), &one.resources).any()
        })
    };
    let under_way = !input.terminated && input.pod.all_containers().any(differs);
    let in_progress =
        (under_way || input.resize_error.is_some()).then(|| match input.resize_error {
            Some(error) => Verdict {
                message: Some(error.to_owned()),
                ..Verdict::yes_because("Error")
            },
            None => Verdict::yes(),
        });
    pending
        .into_iter()
        .chain(in_progress.map(|verdict| (RESIZE_IN_PROGRESS, verdict)))
}

/// Once the node has taken a pod down; whoever made the pod makes another. It stays, though others
/// write it as well.
fn disrupted(input: &StatusInput<'_>) -> Option<(&'static str, Verdict)> {
    let why = input
        .failed
        .filter(|why| why.reason == EVICTED && ranking::is_shortage(&why.message))?;
    let verdict = Verdict {
        message: Some(why.message.clone()),
        ..Verdict::yes_because("TerminationByKubelet")
    };
    Some(("DisruptionTarget", verdict))
}

fn condition(input: &StatusInput<'_>, kind: &str, verdict: Verdict) -> PodCondition {
    let status = if verdict.status { "True" } else { "False" };
    let before = input
        .previous
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind && condition.status == status);
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason,
        message: verdict.message,
        last_transition_time: before
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(api_time(input.now))),
        last_probe_time: None,
        observed_generation: input.pod.metadata.generation,
    }
}

fn initialized(
    input: &StatusInput<'_>,
    phase: Phase,
    init: &[ContainerStatus],
    containers: &[ContainerStatus],
) -> Verdict {
    if containers
        .iter()
        .any(|status| status.container_id.is_some())
    {
        return if phase == Phase::Succeeded {
            Verdict::yes_because("PodCompleted")
        } else {
            Verdict::yes()
        };
    }
    let incomplete: Vec<&str> = input
        .pod
        .init_containers()
        .iter()
        .zip(init)
        .filter(|(container, status)| {
            if is_sidecar(container) {
                status.started != Some(true)
            } else {
                !status.ready
            }
        })
        .map(|(container, _)| container.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return Verdict::yes();
    }
    Verdict::no(
        Some("ContainersNotInitialized"),
        Some(format!(
            "containers with incomplete status: [{}]",
            incomplete.join(" ")
        )),
    )
}

fn containers_ready(
    input: &StatusInput<'_>,
    phase: Phase,
    init: &[ContainerStatus],
    containers: &[ContainerStatus],
) -> Verdict {
    match phase {
        Phase::Succeeded => return Verdict::no(Some("PodCompleted"), None),
        Phase::Failed => return Verdict::no(Some("PodFailed"), None),
        Phase::Pending | Phase::Running => {}
    }
    let sidecars = input
        .pod
        .init_containers()
        .iter()
        .zip(init)
        .filter(|(container, _)| is_sidecar(container));
    let ordinary = input.pod.containers().iter().zip(containers);
    let unready: Vec<&str> = sidecars
        .chain(ordinary)
        .filter(|(_, status)| !status.ready)
        .map(|(container, _)| container.name.as_str())
        .collect();
    if !unready.is_empty() {
        return Verdict::no(
            Some("ContainersNotReady"),
            Some(format!(
                "containers with unready status: [{}]",
                unready.join(" ")
            )),
        );
    }
    Verdict::yes()
}

fn ready(input: &StatusInput<'_>, containers_ready: &Verdict) -> Verdict {
    if !containers_ready.status {
        return Verdict::no(
            containers_ready.reason.as_deref(),
            containers_ready.message.clone(),
        );
    }
    if input.terminating {
        return Verdict::no(Some("PodTerminating"), None);
    }
    let mut messages = Vec::new();
    for gate in input.pod.spec_or_default().readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match input
            .previous
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == *kind)
        {
            None => messages.push(format!(
                "corresponding condition of pod readiness gate \"{kind}\" does not exist."
            )),
            Some(condition) if condition.status != "True" => messages.push(format!(
                "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                condition.status
            )),
            Some(_) => {}
        }
    }
    if messages.is_empty() {
        Verdict::yes()
    } else {
        Verdict::no(Some("ReadinessGatesNotReady"), Some(messages.join(", ")))
    }
}
