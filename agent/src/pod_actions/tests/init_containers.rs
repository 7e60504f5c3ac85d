//! Init containers and sidecars.

use super::*;

fn with_sidecar() -> Value {
    json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "startupProbe": {}}, {"name": "i"}], "containers": [{"name": "a"}], "restartPolicy": "Never"})
}

#[test]
fn init_containers_come_first_and_one_by_one() {
    use SandboxState::Ready;
    let start = |name: &str| PodActions {
        init_to_start: names(&[name]),
        ..PodActions::default()
    };
    let world = || World::new(with_init());
    let cases = [
        (
            world(),
            PodActions {
                create_sandbox: Some(0),
                ..start("i")
            },
        ),
        (world().sandbox(0, Ready), start("i")),
        (
            world().sandbox(0, Ready).container(0, "i", 0, running()),
            PodActions::default(),
        ),
        (
            world().sandbox(0, Ready).container(0, "i", 0, exited(1)),
            start("i"),
        ),
        (
            world().sandbox(0, Ready).container(0, "i", 0, exited(0)),
            start("j"),
        ),
        (
            world().sandbox(0, Ready).container(0, "j", 0, exited(0)),
            PodActions {
                to_start: names(&["a"]),
                ..PodActions::default()
            },
        ),
        (
            world()
                .sandbox(0, Ready)
                .container(0, "i", 0, exited(0))
                .container(0, "j", 0, exited(0))
                .container(0, "a", 0, running()),
            PodActions::default(),
        ),
        // A new sandbox begins from the start.
        (
            world().sandbox(1, Ready).container(0, "a", 0, exited(1)),
            start("i"),
        ),
    ];
    for (index, (world, expected)) in cases.into_iter().enumerate() {
        assert_eq!(world.plan(), expected, "case {index}");
    }
}

#[test]
fn failed_init_container_ends_a_pod_that_never_restarts() {
    let mut spec = with_init();
    spec["restartPolicy"] = json!("Never");
    let world = World::new(spec)
        .sandbox(0, SandboxState::Ready)
        .container(0, "i", 0, exited(1));
    assert_eq!(
        world.plan(),
        PodActions {
            kill_pod: true,
            ..PodActions::default()
        }
    );
}

#[test]
fn sidecar_must_be_started_before_what_follows() {
    use SandboxState::Ready;
    let started = Verdict {
        started: true,
        ..Verdict::default()
    };
    let world = || World::new(with_sidecar()).sandbox(0, Ready);
    let start = |init: &[&str], main: &[&str]| PodActions {
        init_to_start: names(init),
        to_start: names(main),
        ..PodActions::default()
    };
    let cases = [
        (world(), start(&["s"], &[])),
        (world().container(0, "s", 0, running()), start(&[], &[])),
        (
            world()
                .container(0, "s", 0, running())
                .verdict("s0", started),
            start(&["i"], &[]),
        ),
        (
            world()
                .container(0, "s", 0, running())
                .verdict("s0", started)
                .container(0, "i", 0, exited(0)),
            start(&[], &["a"]),
        ),
        // It restarts while the pod runs, whatever the pod's policy.
        (
            world()
                .container(0, "s", 0, exited(1))
                .container(0, "i", 0, exited(0))
                .container(0, "a", 0, running()),
            start(&["s"], &[]),
        ),
    ];
    for (index, (world, expected)) in cases.into_iter().enumerate() {
        assert_eq!(world.plan(), expected, "case {index}");
    }
}

#[test]
fn sidecars_do_not_keep_a_finished_pod() {
    let started = Verdict {
        started: true,
        ..Verdict::default()
    };
    let world = World::new(with_sidecar())
        .sandbox(0, SandboxState::Ready)
        .container(0, "s", 0, running())
        .verdict("s0", started)
        .container(0, "i", 0, exited(0))
        .container(0, "a", 0, exited(0));
    assert_eq!(
        world.plan(),
        PodActions {
            kill_pod: true,
            ..PodActions::default()
        }
    );
}
