use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::runtime::types::{
    ContainerState, ContainerStatus, PodRef, PodUid, Resources, SandboxId, SandboxState,
    SandboxStatus,
};

/// A pod, what runs for it, and what else its status depends on.
struct World {
    pod: Pod,
    previous: PodStatus,
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
    waiting: BTreeMap<String, StatusReason>,
    probes: HashMap<ContainerId, ProbeState>,
    terminating: bool,
    terminated: bool,
    rejected: Option<StatusReason>,
    hooked: HashSet<ContainerId>,
    resize_pending: Option<StatusReason>,
}

impl World {
    fn new(spec: Value) -> Self {
        let pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3}, "spec": spec}),
        );
        let sandbox = SandboxStatus {
            id: SandboxId("s".to_owned()),
            pod: reference(),
            attempt: 0,
            state: SandboxState::Ready,
            created_at: at(0),
            ips: vec!["10.0.0.2".parse().expect("address")],
            host_network: false,
            resources: Resources::default(),
        };
        Self {
            pod: pod.expect("pod"),
            previous: PodStatus::default(),
            sandboxes: vec![sandbox],
            containers: Vec::new(),
            waiting: BTreeMap::new(),
            probes: HashMap::new(),
            terminating: false,
            terminated: false,
            rejected: None,
            hooked: HashSet::new(),
            resize_pending: None,
        }
    }

    fn container(mut self, name: &str, attempt: u32, state: ContainerState) -> Self {
        self.containers.push(ContainerStatus {
            id: ContainerId(format!("{name}{attempt}")),
            sandbox_id: SandboxId("s".to_owned()),
            pod: reference(),
            name: name.to_owned(),
            attempt,
            image: "img".to_owned(),
            image_id: "sha256:i".to_owned(),
            image_ref: String::new(),
            spec_hash: String::new(),
            created_at: at(u64::from(attempt)),
            resources: Resources::default(),
            state,
            log_path: "/log".into(),
        });
        self
    }

    fn status(&self) -> PodStatus {
        let verdicts = HashMap::new();
        let observed = Observed {
            sandboxes: &self.sandboxes,
            containers: &self.containers,
            verdicts: &verdicts,
        };
        generate(&StatusInput {
            pod: &self.pod,
            previous: &self.previous,
            observed: &observed,
            waiting: &self.waiting,
            probes: &self.probes,
            termination_messages: &HashMap::new(),
            node_ip: "192.0.2.1".parse().expect("address"),
            now: at(100),
            terminating: self.terminating,
            terminated: self.terminated,
            failed: self.rejected.as_ref(),
            hooked: &self.hooked,
            resize_pending: self.resize_pending.as_ref(),
            resize_error: None,
        })
    }

    fn phase(&self) -> String {
        self.status().phase.expect("phase")
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn reference() -> PodRef {
    PodRef {
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        uid: PodUid("u".to_owned()),
    }
}

fn running() -> ContainerState {
    ContainerState::Running {
        started_at: at(10),
        pid: 1,
    }
}

fn exited(exit_code: i32) -> ContainerState {
    ContainerState::Exited {
        started_at: at(10),
        finished_at: at(20),
        exit_code,
        signal: None,
        reason: "Error".to_owned(),
        message: String::new(),
    }
}

fn two(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "img"}, {"name": "b", "image": "img"}]})
}

fn condition<'a>(
    status: &'a PodStatus,
    kind: &str,
) -> &'a k8s_openapi::api::core::v1::PodCondition {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
        .expect("condition")
}

#[test]
fn phase_follows_the_containers() {
    let cases = [
        ("Always", vec![], "Pending"),
        ("Always", vec![("a", running())], "Pending"),
        (
            "Always",
            vec![("a", running()), ("b", running())],
            "Running",
        ),
        (
            "Always",
            vec![("a", running()), ("b", exited(1))],
            "Running",
        ),
        (
            "Always",
            vec![("a", exited(0)), ("b", exited(1))],
            "Running",
        ),
        (
            "OnFailure",
            vec![("a", exited(0)), ("b", exited(1))],
            "Running",
        ),
        (
            "OnFailure",
            vec![("a", exited(0)), ("b", exited(0))],
            "Succeeded",
        ),
        ("Never", vec![("a", exited(0)), ("b", exited(1))], "Failed"),
        (
            "Never",
            vec![("a", exited(0)), ("b", exited(0))],
            "Succeeded",
        ),
        ("Never", vec![("a", exited(1)), ("b", running())], "Running"),
    ];
    for (policy, containers, expected) in cases {
        let world = containers
            .clone()
            .into_iter()
            .fold(World::new(two(policy)), |world, (name, state)| {
                world.container(name, 0, state)
            });
        assert_eq!(world.phase(), expected, "{policy} {containers:?}");
    }
}

#[test]
fn final_phase_stays() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    world.previous.phase = Some("Failed".to_owned());
    assert_eq!(world.phase(), "Failed");
}

#[test]
fn deleted_pod_ends_as_its_containers_did() {
    let cases = [(0, "Succeeded"), (143, "Failed")];
    for (code, expected) in cases {
        let mut world = World::new(two("Always"))
            .container("a", 0, exited(code))
            .container("b", 0, exited(0));
        world.terminated = true;
        assert_eq!(world.phase(), expected);
    }
}

#[test]
fn running_pod_is_ready() {
    let status = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running())
        .status();
    for kind in [
        "Ready",
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "PodScheduled",
    ] {
        assert_eq!(condition(&status, kind).status, "True", "{kind}");
        assert_eq!(
            condition(&status, kind).observed_generation,
            Some(3),
            "{kind}"
        );
    }
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
}

#[test]
fn unready_containers_are_named() {
    let status = World::new(two("Always"))
        .container("a", 0, running())
        .status();
    let ready = condition(&status, "Ready");
    assert_eq!(
        (
            ready.status.as_str(),
            ready.reason.as_deref(),
            ready.message.as_deref()
        ),
        (
            "False",
            Some("ContainersNotReady"),
            Some("containers with unready status: [b]")
        )
    );
}

#[test]
fn terminating_pod_is_not_ready() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    world.terminating = true;
    assert_eq!(condition(&world.status(), "Ready").status, "False");
}

#[test]
fn transition_times_are_kept_while_nothing_changes() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    let mut before = world.status();
    for condition in before.conditions.iter_mut().flatten() {
        condition.last_transition_time = Some(api_time(at(50)));
    }
    world.previous = before;
    let status = world.status();
    assert_eq!(
        condition(&status, "Ready").last_transition_time,
        Some(api_time(at(50)))
    );
    assert_eq!(status, world.previous);
}

#[test]
fn foreign_conditions_are_kept() {
    let mut world = World::new(two("Always"));
    world.previous = serde_json::from_value(
        json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
    )
    .expect("status");
    assert_eq!(
        condition(&world.status(), "DisruptionTarget").status,
        "True"
    );
}

#[test]
fn readiness_gates_hold_back_ready_only() {
    let mut spec = two("Always");
    spec["readinessGates"] = json!([{"conditionType": "x/y"}]);
    let status = World::new(spec)
        .container("a", 0, running())
        .container("b", 0, running())
        .status();
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("ReadinessGatesNotReady")
    );
}

#[test]
fn crash_loop_shows_the_last_end() {
    let mut world = World::new(two("Always"))
        .container("a", 0, exited(1))
        .container("a", 1, exited(2))
        .container("b", 0, running());
    let why = StatusReason::new("CrashLoopBackOff", "m".to_owned());
    world.waiting.insert("a".to_owned(), why);
    let status = world.status();
    let a = &status.container_statuses.expect("containers")[0];
    let waiting = a
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref())
        .expect("waiting");
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    let last = a
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref())
        .expect("last");
    assert_eq!((last.exit_code, a.restart_count, a.ready), (2, 1, false));
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn probes_decide_readiness() {
    let spec = json!({"containers": [{"name": "a", "image": "img", "readinessProbe": {}, "startupProbe": {}}]});
    let cases = [
        (None, (false, false)),
        (Some((true, false)), (true, false)),
        (Some((true, true)), (true, true)),
        (Some((false, true)), (false, false)),
    ];
    for (probe, expected) in cases {
        let mut world = World::new(spec.clone()).container("a", 0, running());
        world.probes.extend(
            probe.map(|(started, ready)| {
                (ContainerId("a0".to_owned()), ProbeState { started, ready })
            }),
        );
        let a = world
            .status()
            .container_statuses
            .expect("containers")
            .remove(0);
        assert_eq!((a.started == Some(true), a.ready), expected, "{probe:?}");
    }
}

#[test]
fn init_containers_hold_the_pod_pending() {
    let spec = json!({"initContainers": [{"name": "i", "image": "img"}], "containers": [{"name": "a", "image": "img"}]});
    let world = World::new(spec.clone()).container("i", 0, running());
    let status = world.status();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(
        condition(&status, "Initialized").message.as_deref(),
        Some("containers with incomplete status: [i]")
    );
    let a = &status.container_statuses.as_ref().expect("containers")[0];
    assert_eq!(
        a.state
            .as_ref()
            .and_then(|s| s.waiting.as_ref())
            .and_then(|w| w.reason.as_deref()),
        Some("PodInitializing")
    );
    let done = World::new(spec)
        .container("i", 0, exited(0))
        .container("a", 0, running())
        .status();
    assert_eq!(
        (
            done.phase.as_deref(),
            condition(&done, "Ready").status.as_str()
        ),
        (Some("Running"), "True")
    );
}

#[test]
fn lost_container_counts_as_a_restart() {
    let mut world = World::new(two("Always"));
    world.previous = serde_json::from_value(
        json!({"containerStatuses": [{"name": "a", "image": "img", "imageID": "", "ready": true,
        "restartCount": 4, "containerID": "coracle://x", "state": {"running": {}}}]}),
    )
    .expect("status");
    let a = world
        .status()
        .container_statuses
        .expect("containers")
        .remove(0);
    let last = a
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref())
        .expect("last");
    assert_eq!(
        (a.restart_count, last.exit_code, last.reason.as_deref()),
        (5, 137, Some("ContainerStatusUnknown"))
    );
}

#[test]
fn resize_is_told_until_it_is_done() {
    let container = json!({"name": "a", "image": "img", "resources": {
        "limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}});
    let mut world = World::new(json!({"containers": [container]})).container("a", 0, running());
    world.containers[0].resources = Resources {
        cpu_shares: Some(2),
        memory_limit_bytes: Some(32 << 20),
        ..Resources::default()
    };
    let why = StatusReason::new("Deferred", "no room".to_owned());
    world.resize_pending = Some(why);
    let status = world.status();
    assert_eq!(condition(&status, "PodResizeInProgress").status, "True");
    let pending = condition(&status, "PodResizePending");
    assert_eq!(
        (pending.reason.as_deref(), pending.message.as_deref()),
        (Some("Deferred"), Some("no room"))
    );
    let one = serde_json::to_value(&status.container_statuses.as_ref().expect("statuses")[0])
        .expect("JSON");
    assert_eq!(
        one["resources"],
        json!({"limits": {"memory": "32Mi"}, "requests": {"memory": "64Mi"}})
    );
    assert_eq!(one["allocatedResources"], json!({"memory": "64Mi"}));

    world.previous = status;
    world.containers[0].resources.memory_limit_bytes = Some(64 << 20);
    world.resize_pending = None;
    let status = world.status();
    let kinds: Vec<&str> = status
        .conditions
        .iter()
        .flatten()
        .map(|condition| &*condition.type_)
        .collect();
    assert_eq!(
        kinds,
        [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled"
        ]
    );
}

#[test]
fn a_container_tells_its_image_by_manifest_and_what_it_mounts() {
    let mounts = json!([{"name": "v", "mountPath": "/v"}, {"name": "r", "mountPath": "/r", "readOnly": true}]);
    let mut world = World::new(json!({"containers": [{"name": "a", "volumeMounts": mounts}]}));
    world = world.container(
        "a",
        0,
        ContainerState::Running {
            started_at: at(1),
            pid: 1,
        },
    );
    world.containers[0].image_ref = "r.example/a@sha256:m".to_owned();
    let status = serde_json::to_value(&world.status().container_statuses.expect("statuses")[0])
        .expect("JSON");
    assert_eq!(status["imageID"], "r.example/a@sha256:m");
    let expected = json!([{"name": "v", "mountPath": "/v"},
        {"name": "r", "mountPath": "/r", "readOnly": true, "recursiveReadOnly": "Disabled"}]);
    assert_eq!(status["volumeMounts"], expected);
}

#[test]
fn a_pod_is_not_over_while_a_container_starts_again() {
    let ended = |exit_code| ContainerState::Exited {
        started_at: at(1),
        finished_at: at(2),
        exit_code,
        signal: None,
        reason: String::new(),
        message: String::new(),
    };
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b", "restartPolicy": "OnFailure"}]});
    for (a, b, expected) in [(1, 1, "Running"), (1, 0, "Failed"), (0, 0, "Succeeded")] {
        let world = World::new(spec.clone())
            .container("a", 0, ended(a))
            .container("b", 0, ended(b));
        assert_eq!(world.phase(), expected, "{a} {b}");
    }
}

fn states(statuses: Option<&Vec<k8s_openapi::api::core::v1::ContainerStatus>>) -> Vec<String> {
    let text = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
        let state = status.state.clone().unwrap_or_default();
        match (state.waiting, state.running, state.terminated) {
            (Some(waiting), ..) => waiting.reason.unwrap_or_default(),
            (_, Some(_), _) => "running".to_owned(),
            (.., Some(end)) => format!("{} {}", end.exit_code, end.reason.unwrap_or_default()),
            _ => String::new(),
        }
    };
    statuses.into_iter().flatten().map(text).collect()
}

#[test]
fn every_waiting_container_of_a_pod_with_init_containers_waits_for_them() {
    let spec =
        json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]});
    let status = World::new(spec)
        .container("i", 0, ContainerState::Created)
        .status();
    assert_eq!(
        states(status.init_container_statuses.as_ref()),
        ["PodInitializing", "PodInitializing"]
    );
    assert_eq!(
        states(status.container_statuses.as_ref()),
        ["PodInitializing"]
    );
}

#[test]
fn a_container_runs_once_its_post_start_hook_is_done() {
    let mut world = World::new(two("Always"))
        .container("a", 0, running())
        .container("b", 0, running());
    world.hooked.insert(ContainerId("b0".to_owned()));
    let status = world.status();
    assert_eq!(
        states(status.container_statuses.as_ref()),
        ["running", "ContainerCreating"]
    );
    assert_eq!(
        (status.phase.as_deref(), is_ready(&status)),
        (Some("Pending"), false)
    );
    world.hooked.clear();
    assert!(is_ready(&world.status()));
}

#[test]
fn containers_of_a_pod_that_is_over_do_not_wait() {
    let lost = "137 ContainerStatusUnknown".to_owned();
    let mut world = World::new(two("Always")).container("a", 0, exited(0));
    world.terminated = true;
    assert_eq!(
        states(world.status().container_statuses.as_ref()),
        ["0 Error".to_owned(), lost.clone()]
    );
    assert_eq!(world.phase(), "Failed");
    // What never had its turn behind init containers stays as it is.
    let spec =
        json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]});
    let mut world = World::new(spec);
    world.terminated = true;
    let status = world.status();
    assert_eq!(
        states(status.init_container_statuses.as_ref()),
        [lost, "PodInitializing".to_owned()]
    );
    assert_eq!(
        states(status.container_statuses.as_ref()),
        ["PodInitializing"]
    );
}

#[test]
fn a_rejected_pod_has_no_containers() {
    let mut world = World::new(two("Always"));
    let why = StatusReason {
        reason: "OutOfcpu".to_owned(),
        message: format!("{REJECTED}no"),
    };
    world.rejected = Some(why);
    let status = world.status();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("OutOfcpu"))
    );
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no"));
    assert_eq!(
        (&status.container_statuses, &status.init_container_statuses),
        (&None, &None)
    );
    // Another agent has only that to go by.
    world.rejected = None;
    world.previous = status.clone();
    assert_eq!(world.status(), status);
}
