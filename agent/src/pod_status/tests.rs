use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::runtime::types::{
    ContainerState, ContainerStatus, PodRef, PodUid, Resources, SandboxId, SandboxState,
    SandboxStatus,
};

mod conditions;
mod phase;

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
