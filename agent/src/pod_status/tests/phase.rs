//! `status.phase`.

use super::*;

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
