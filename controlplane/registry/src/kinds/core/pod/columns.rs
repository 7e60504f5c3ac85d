//! What `kubectl get pods` shows: above all the one word under STATUS.
//!
//! Source: `printPod` in `pkg/printers/internalversion/printers.go` at v1.37.

use std::collections::{HashMap, HashSet};

use coracle_api::scheduling::is_sidecar_json;
use serde_json::{Value, json};

use crate::{
    cells::{self, AGE, NAME, NONE, text, wide},
    strategy::Column,
    value,
};

pub(super) static COLUMNS: &[Column] = &[
    NAME,
    text(
        "Ready",
        "The aggregate readiness state of this pod for accepting traffic.",
    ),
    text(
        "Status",
        "The aggregate status of the containers in this pod.",
    ),
    text(
        "Restarts",
        "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
    ),
    AGE,
    wide(
        "IP",
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
    ),
    wide(
        "Node",
        "NodeName indicates in which node this pod is scheduled.",
    ),
    wide(
        "Nominated Node",
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods.",
    ),
    wide(
        "Readiness Gates",
        "If specified, all readiness gates will be evaluated for pod readiness.",
    ),
];

/// What the statuses of the containers add up to.
#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    restarts: i64,
    /// The latest end of a container that was restarted, in Unix seconds.
    last_restart: Option<i64>,
}

pub(super) fn row(pod: &Value, now_secs: i64) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars = value::items(&spec["initContainers"])
        .iter()
        .filter(|c| is_sidecar_json(c))
        .count();
    let total = value::items(&spec["containers"]).len() + sidecars;
    let summary = summarize(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!(
                "{} ({} ago)",
                summary.restarts,
                cells::human_duration(now_secs - last)
            )
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        cells::name(pod),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        cells::age(pod, now_secs),
        value::string_or(&status["podIPs"][0]["ip"], NONE).into(),
        value::string_or(&spec["nodeName"], NONE).into(),
        value::string_or(&status["nominatedNodeName"], NONE).into(),
        readiness_gates(pod).into(),
    ]
}

pub(super) fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match value::string(&pod["status"]["phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    value::items(&pod["status"]["conditions"])
        .iter()
        .find(|condition| condition["type"] == kind)
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition["status"] == "True")
}

fn summarize(pod: &Value) -> Summary {
    let status = &pod["status"];
    let phase = value::string(&status["phase"]);
    let mut summary = Summary {
        reason: value::string_or(&status["reason"], phase).to_owned(),
        ..Summary::default()
    };
    if condition(pod, "PodScheduled")
        .is_some_and(|condition| condition["reason"] == "SchedulingGated")
    {
        summary.reason = "SchedulingGated".to_owned();
    }
    let (initializing, sidecars) = add_init_containers(pod, &mut summary);
    if !initializing || condition_is_true(pod, "Initialized") {
        summary.restarts = sidecars.restarts;
        summary.last_restart = sidecars.last_restart;
        add_containers(pod, &mut summary);
    }
    let deleted = pod["metadata"]["deletionTimestamp"].is_string();
    if deleted && status["reason"] == "NodeLost" {
        summary.reason = "Unknown".to_owned();
    } else if deleted && !matches!(phase, "Succeeded" | "Failed") {
        summary.reason = "Terminating".to_owned();
    }
    summary
}

/// Goes through the init containers up to the first that is not done. Says whether there is one,
/// and how often those were restarted that run beside the containers.
fn add_init_containers(pod: &Value, summary: &mut Summary) -> (bool, Summary) {
    let specs = value::items(&pod["spec"]["initContainers"]);
    let sidecar_names: HashSet<_> = specs
        .iter()
        .filter(|spec| is_sidecar_json(spec))
        .map(|spec| &spec["name"])
        .collect();
    let mut sidecars = Summary::default();
    for (index, status) in value::items(&pod["status"]["initContainerStatuses"])
        .iter()
        .enumerate()
    {
        summary.add_restarts(status);
        let sidecar = sidecar_names.contains(&status["name"]);
        if sidecar {
            sidecars.add_restarts(status);
        }
        let state = &status["state"];
        let terminated = state["terminated"].is_object();
        if terminated && value::number(&state["terminated"]["exitCode"]) == 0 {
            continue;
        }
        if sidecar && status["started"] == true {
            summary.ready += usize::from(status["ready"] == true);
            continue;
        }
        summary.reason = if terminated {
            format!("Init:{}", termination(&state["terminated"]))
        } else {
            match value::string(&state["waiting"]["reason"]) {
                "" | "PodInitializing" => format!("Init:{index}/{}", specs.len()),
                reason => format!("Init:{reason}"),
            }
        };
        return (true, sidecars);
    }
    (false, sidecars)
}

fn add_containers(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    for status in value::items(&pod["status"]["containerStatuses"])
        .iter()
        .rev()
    {
        summary.add_restarts(status);
        let state = &status["state"];
        let waiting = value::string(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if state["terminated"].is_object() {
            summary.reason = termination(&state["terminated"]);
        } else if status["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    // Some containers are done, others still run.
    if summary.reason == "Completed" && running {
        let ready = condition_is_true(pod, "Ready");
        summary.reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

/// `OOMKilled`, `Signal:9`, `ExitCode:1`.
fn termination(terminated: &Value) -> String {
    match (
        value::string(&terminated["reason"]),
        value::number(&terminated["signal"]),
    ) {
        ("", 0) => format!("ExitCode:{}", value::number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

impl Summary {
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += value::number(&status["restartCount"]);
        let finished = value::unix_seconds(&status["lastState"]["terminated"]["finishedAt"]);
        self.last_restart = self.last_restart.max(finished);
    }
}

/// `1/2`: how many of the gates are open.
fn readiness_gates(pod: &Value) -> String {
    let gates = value::items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let conditions = value::items(&pod["status"]["conditions"]).iter().rev();
    // Of several of a type the first counts.
    let conditions: HashMap<_, _> = conditions
        .map(|one| (&one["type"], one["status"] == "True"))
        .collect();
    let open = gates
        .iter()
        .filter(|gate| conditions.get(&gate["conditionType"]) == Some(&true))
        .count();
    format!("{open}/{}", gates.len())
}
