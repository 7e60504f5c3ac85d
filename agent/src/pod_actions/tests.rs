use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::*;
use crate::runtime::types::{PodRef, PodUid, Resources};

mod init_containers;

/// A pod with the table's spec and what runs for it.
struct World {
    pod: Pod,
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
    verdicts: HashMap<ContainerId, Verdict>,
}

impl World {
    fn new(spec: Value) -> Self {
        let pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}),
        )
        .expect("pod");
        Self {
            pod,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            verdicts: HashMap::new(),
        }
    }

    fn sandbox(mut self, attempt: u32, state: SandboxState) -> Self {
        self.sandboxes.push(SandboxStatus {
            id: SandboxId(format!("s{attempt}")),
            pod: reference(),
            attempt,
            state,
            created_at: SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(attempt)),
            ips: vec!["10.0.0.2".parse().expect("address")],
            host_network: false,
            resources: Resources::default(),
        });
        self
    }

    fn container(mut self, sandbox: u32, name: &str, attempt: u32, state: ContainerState) -> Self {
        let ephemeral = self.pod.ephemeral_containers();
        let spec = self
            .pod
            .all_containers()
            .chain(&ephemeral)
            .find(|one| one.name == name)
            .expect("in the spec");
        self.containers.push(ContainerStatus {
            id: ContainerId(format!("{name}{attempt}")),
            sandbox_id: SandboxId(format!("s{sandbox}")),
            pod: reference(),
            name: name.to_owned(),
            attempt,
            image: String::new(),
            image_id: String::new(),
            image_ref: String::new(),
            spec_hash: spec_hash(spec),
            created_at: SystemTime::UNIX_EPOCH,
            resources: Resources::default(),
            state,
            log_path: "/log".into(),
        });
        self
    }

    fn verdict(mut self, id: &str, verdict: Verdict) -> Self {
        self.verdicts.insert(ContainerId(id.to_owned()), verdict);
        self
    }

    fn plan(&self) -> PodActions {
        plan(
            &self.pod,
            &Observed {
                sandboxes: &self.sandboxes,
                containers: &self.containers,
                verdicts: &self.verdicts,
            },
        )
    }
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
        started_at: SystemTime::UNIX_EPOCH,
        pid: 1,
    }
}

fn exited(exit_code: i32) -> ContainerState {
    let at = SystemTime::UNIX_EPOCH;
    ContainerState::Exited {
        started_at: at,
        finished_at: at,
        exit_code,
        signal: None,
        reason: String::new(),
        message: String::new(),
    }
}

fn two() -> Value {
    json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]})
}

fn with_policy(policy: &str) -> Value {
    let mut spec = two();
    spec["restartPolicy"] = json!(policy);
    spec
}

fn with_init() -> Value {
    json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]})
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn new_pod_gets_a_sandbox_and_its_containers() {
    let expected = PodActions {
        create_sandbox: Some(0),
        to_start: names(&["a", "b"]),
        ..PodActions::default()
    };
    assert_eq!(World::new(two()).plan(), expected);
}

#[test]
fn ephemeral_containers_start_once_even_before_the_pod_is_initialized() {
    use SandboxState::Ready;
    let spec = |mut spec: Value| {
        spec["ephemeralContainers"] = json!([{"name": "debug", "image": "i"}]);
        spec
    };
    let start = PodActions {
        ephemeral_to_start: names(&["debug"]),
        ..PodActions::default()
    };
    let world = || {
        World::new(spec(two()))
            .sandbox(0, Ready)
            .container(0, "a", 0, running())
            .container(0, "b", 0, running())
    };
    assert_eq!(world().plan(), start);
    assert_eq!(
        world().container(0, "debug", 0, running()).plan(),
        PodActions::default()
    );
    assert_eq!(
        world().container(0, "debug", 0, exited(1)).plan(),
        PodActions::default(),
        "never again"
    );
    let initializing =
        World::new(spec(with_init()))
            .sandbox(0, Ready)
            .container(0, "i", 0, running());
    assert_eq!(initializing.plan(), start);
}

#[test]
fn restart_policy_decides_what_starts_again() {
    let cases = [
        ("Always", 0, vec!["a"]),
        ("Always", 1, vec!["a"]),
        ("OnFailure", 0, vec![]),
        ("OnFailure", 1, vec!["a"]),
        ("Never", 1, vec![]),
    ];
    for (policy, code, expected) in cases {
        let world = World::new(with_policy(policy))
            .sandbox(0, SandboxState::Ready)
            .container(0, "a", 0, exited(code))
            .container(0, "b", 0, running());
        let expected = PodActions {
            to_start: names(&expected),
            ..PodActions::default()
        };
        assert_eq!(world.plan(), expected, "{policy} {code}");
    }
}

#[test]
fn pod_is_killed_when_all_is_done() {
    let world = World::new(with_policy("OnFailure"))
        .sandbox(0, SandboxState::Ready)
        .container(0, "a", 0, exited(0))
        .container(0, "b", 1, exited(0));
    assert_eq!(
        world.plan(),
        PodActions {
            kill_pod: true,
            ..PodActions::default()
        }
    );
}

#[test]
fn changed_image_and_failed_probes_restart_a_container() {
    let base = || {
        World::new(two())
            .sandbox(0, SandboxState::Ready)
            .container(0, "a", 0, running())
            .container(0, "b", 0, running())
    };
    let mut changed = base();
    changed.containers[0].spec_hash = "other".to_owned();
    let liveness = base().verdict(
        "a0",
        Verdict {
            liveness_failed: true,
            started: true,
            ..Verdict::default()
        },
    );
    let startup = base().verdict(
        "a0",
        Verdict {
            startup_failed: true,
            ..Verdict::default()
        },
    );
    let cases = [
        (
            changed,
            KillReason::SpecChanged,
            "Container a definition changed, will be restarted",
        ),
        (
            liveness,
            KillReason::LivenessProbe,
            "Container a failed liveness probe, will be restarted",
        ),
        (
            startup,
            KillReason::StartupProbe,
            "Container a failed startup probe, will be restarted",
        ),
    ];
    for (world, reason, message) in cases {
        let kill = ContainerToKill {
            id: ContainerId("a0".to_owned()),
            name: "a".to_owned(),
            reason,
            message: message.to_owned(),
        };
        assert_eq!(
            world.plan(),
            PodActions {
                to_kill: vec![kill],
                to_start: names(&["a"]),
                ..PodActions::default()
            }
        );
    }
}

#[test]
fn dead_sandbox_is_replaced() {
    let world = World::new(two())
        .sandbox(0, SandboxState::NotReady)
        .container(0, "a", 0, exited(137))
        .container(0, "b", 0, exited(137));
    let expected = PodActions {
        kill_pod: true,
        create_sandbox: Some(1),
        to_start: names(&["a", "b"]),
        ..PodActions::default()
    };
    assert_eq!(world.plan(), expected);
}

#[test]
fn dead_sandbox_ends_a_pod_that_never_restarts() {
    let world = World::new(with_policy("Never"))
        .sandbox(0, SandboxState::NotReady)
        .container(0, "a", 0, exited(137));
    assert_eq!(world.plan(), PodActions::default());
}

#[test]
fn settled_pod_needs_nothing() {
    let world = World::new(two())
        .sandbox(0, SandboxState::Ready)
        .container(0, "a", 0, running())
        .container(0, "b", 0, running());
    assert!(world.plan().is_empty());
}

#[test]
fn deleted_pod_starts_nothing() {
    let mut world = World::new(two())
        .sandbox(0, SandboxState::Ready)
        .container(0, "a", 0, exited(1))
        .container(0, "b", 0, running());
    world.pod.metadata.deletion_timestamp = Some(crate::pod::api_time(SystemTime::UNIX_EPOCH));
    assert!(world.plan().to_start.is_empty());
}

#[test]
fn resized_container_is_changed_in_place_unless_it_must_restart() {
    let limits = |memory: i64, cpu: i64| Resources {
        cpu_shares: Some(102),
        cpu_quota_us: Some(cpu),
        memory_limit_bytes: Some(memory << 20),
        ..Resources::default()
    };
    let cases = [
        (limits(64, 10_000), (0, 0)),
        (limits(32, 10_000), (1, 0)),
        (limits(64, 20_000), (0, 1)),
        (limits(32, 20_000), (0, 1)),
        (Resources::default(), (0, 0)),
    ];
    for (actual, expected) in cases {
        let mut world = World::new(json!({"restartPolicy": "Never", "containers": [{
            "name": "a", "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}))
        .sandbox(0, SandboxState::Ready)
        .container(0, "a", 0, running());
        world.containers[0].resources = actual.clone();
        world.sandboxes[0].resources = actual.clone();
        let plan = world.plan();
        assert_eq!(
            (plan.to_resize.len(), plan.to_kill.len()),
            expected,
            "{actual:?}"
        );
        assert_eq!(
            (plan.resize_pod, plan.to_start.len()),
            (expected != (0, 0), expected.1),
            "{actual:?}"
        );
    }
}

#[test]
fn a_containers_own_policy_and_rules_decide_before_the_pods() {
    let rule = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let spec = json!({"restartPolicy": "Never", "containers": [
        {"name": "a", "restartPolicy": "Never", "restartPolicyRules": rule}, {"name": "b", "restartPolicy": "OnFailure"}]});
    for (a, b, expected) in [
        (42, 0, vec!["a"]),
        (1, 1, vec!["b"]),
        (42, 7, vec!["a", "b"]),
        (1, 0, vec![]),
    ] {
        let world = World::new(spec.clone())
            .sandbox(0, SandboxState::Ready)
            .container(0, "a", 0, exited(a))
            .container(0, "b", 0, exited(b));
        let kill_pod = expected.is_empty();
        let expected = PodActions {
            to_start: names(&expected),
            kill_pod,
            ..PodActions::default()
        };
        assert_eq!(world.plan(), expected, "{a} {b}");
    }
}
