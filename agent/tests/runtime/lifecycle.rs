//! Making, starting, watching, stopping and removing containers.

use std::time::{Duration, Instant};

use coracle_agent::runtime::*;

use super::harness::*;

#[tokio::test]
async fn output_and_exit_code_are_kept() {
    let Some(node) = node().await else { return };
    let (code, log) = node.output(&shell("echo out; echo err >&2; exit 3")).await;
    assert_eq!(code, 3);
    assert!(log.contains("out\n") && log.contains("err\n"), "{log:?}");
    node.finish().await;
}

#[tokio::test]
async fn log_is_complete_when_the_exit_is_told() {
    let Some(node) = node().await else { return };
    let (code, log) = node.output(&shell("seq 1 20000; printf unfinished")).await;
    assert_eq!(code, 0);
    assert_eq!(log.lines().count(), 20001);
    assert!(log.ends_with("20000\nunfinished"), "as it was written");
    node.finish().await;
}

#[tokio::test]
async fn container_waits_to_be_started() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let id = node
        .runtime()
        .create_container(&sandbox.id, &shell("echo ran"))
        .await
        .unwrap();
    assert_eq!(node.status(&id).await.state, ContainerState::Created);
    node.runtime()
        .stop_container(&id, Duration::from_secs(10))
        .await
        .unwrap();
    assert!(matches!(
        node.status(&id).await.state,
        ContainerState::Exited { exit_code: 137, .. }
    ));
    assert_eq!(node.log(&id).await, "");
    node.finish().await;
}

#[tokio::test]
async fn stop_sends_the_stop_signal_first() {
    let Some(node) = node().await else { return };
    let script = "trap 'echo quit; exit 7' QUIT; echo ready; while :; do sleep 0.05; done";
    let (_, id) = node
        .run(&ContainerConfig {
            stop_signal: Some("SIGQUIT".into()),
            ..shell(script)
        })
        .await;
    node.logged(&id, "ready").await;
    node.runtime().stop_container(&id, LIMIT).await.unwrap();
    assert_eq!(node.exited(&id).await, (7, "Error".to_owned()));
    assert!(node.log(&id).await.contains("quit"));
    node.finish().await;
}

#[tokio::test]
async fn stop_kills_after_the_grace_period() {
    let Some(node) = node().await else { return };
    let (_, id) = node
        .run(&shell(
            "trap '' TERM; echo ready; while :; do sleep 0.05; done",
        ))
        .await;
    node.logged(&id, "ready").await;
    let began = Instant::now();
    node.runtime()
        .stop_container(&id, Duration::from_millis(300))
        .await
        .unwrap();
    assert!(
        began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(5)
    );
    assert_eq!(node.exited(&id).await.0, 137);
    node.finish().await;
}

#[tokio::test]
async fn containers_of_a_pod_share_its_namespaces() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let mut seen = Vec::new();
    for name in ["one", "two"] {
        let script = "for n in net ipc uts; do readlink /proc/self/ns/$n; done; hostname; readlink /proc/self/ns/pid; sleep 100";
        let config = ContainerConfig {
            name: name.into(),
            log_path: format!("{name}/0.log"),
            ..shell(script)
        };
        let id = node
            .runtime()
            .create_container(&sandbox.id, &config)
            .await
            .unwrap();
        node.runtime().start_container(&id).await.unwrap();
        node.logged(&id, "pid:").await;
        seen.push(
            node.log(&id)
                .await
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(seen[0][..4], seen[1][..4]);
    assert_eq!(seen[0][3], sandbox.pod.name);
    assert_ne!(seen[0][4], seen[1][4], "PID namespaces are their own");
    assert_ne!(
        seen[0][0],
        std::fs::read_link("/proc/self/ns/net")
            .unwrap()
            .to_string_lossy()
    );
    node.finish().await;
}

#[tokio::test]
async fn shared_process_namespace_has_one_reaper() {
    let Some(node) = node().await else { return };
    let config = SandboxConfig {
        share_process_namespace: true,
        ..node.sandbox()
    };
    let sandbox = node.runtime().run_pod_sandbox(&config).await.unwrap();
    let server = ContainerConfig {
        name: "server".into(),
        log_path: "server/0.log".into(),
        ..container(&["sleep", "1234"])
    };
    let server = node
        .runtime()
        .create_container(&sandbox.id, &server)
        .await
        .unwrap();
    node.runtime().start_container(&server).await.unwrap();
    let viewer = shell("ps -o pid,comm; echo self $$; (sleep 0.2 &); sleep 0.6; ps -o stat,comm");
    let viewer = node
        .runtime()
        .create_container(&sandbox.id, &viewer)
        .await
        .unwrap();
    node.runtime().start_container(&viewer).await.unwrap();
    assert_eq!(node.exited(&viewer).await.0, 0);
    let log = node.log(&viewer).await;
    assert!(log.contains("1 pause") && log.contains("sleep"), "{log}");
    assert!(!log.contains("self 1\n") && !log.contains("Z "), "{log}");
    assert!(
        matches!(
            node.status(&server).await.state,
            ContainerState::Running { .. }
        ),
        "the other goes on"
    );
    node.finish().await;
}

#[tokio::test]
async fn shm_is_shared_in_the_sandbox() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for (script, expected) in [
        ("echo hello > /dev/shm/x", ""),
        ("cat /dev/shm/x", "hello\n"),
    ] {
        let id = node
            .runtime()
            .create_container(&sandbox.id, &shell(script))
            .await
            .unwrap();
        node.runtime().start_container(&id).await.unwrap();
        assert_eq!(node.exited(&id).await.0, 0);
        let log = node.log(&id).await;
        assert!(log.ends_with(expected), "{log:?}");
    }
    node.finish().await;
}

#[tokio::test]
async fn removed_container_leaves_its_log_only() {
    let Some(node) = node().await else { return };
    let (sandbox, id) = node.run(&shell("echo kept; touch /written")).await;
    node.exited(&id).await;
    let log = node.status(&id).await.log_path;
    node.runtime().remove_container(&id).await.unwrap();
    assert!(node.runtime().list_containers().await.unwrap().is_empty());
    assert_eq!(log_text(&log), "kept\n");
    let left = std::fs::read_dir(
        node.dir
            .path()
            .join("run/sandboxes")
            .join(&sandbox.0)
            .join("containers"),
    )
    .unwrap()
    .count();
    assert_eq!(left, 0);
    assert!(
        node.residue()
            .iter()
            .all(|line| !line.contains("root/containers")),
        "{:?}",
        node.residue()
    );
    node.runtime()
        .remove_container(&id)
        .await
        .expect("idempotent");
    node.finish().await;
}

#[tokio::test]
async fn log_goes_on_in_a_new_file_after_rotation() {
    let Some(node) = node().await else { return };
    let (_, id) = node.run(&shell("echo first; cat; echo last")).await;
    node.logged(&id, "last").await;
    let (_, id) = node
        .run(&ContainerConfig {
            stdin: true,
            stdin_once: true,
            ..shell("echo first; head -n 1; echo last")
        })
        .await;
    node.logged(&id, "first").await;
    let log = node.status(&id).await.log_path;
    let rotated = log.with_extension("1");
    std::fs::rename(&log, &rotated).unwrap();
    node.runtime().reopen_container_log(&id).await.unwrap();
    let request = ExecRequest {
        command: vec![],
        stdin: true,
        stdout: true,
        stderr: true,
        tty: false,
    };
    let mut session = node.runtime().attach(&id, &request).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(session.stdin.as_mut().unwrap(), b"second\n")
        .await
        .unwrap();
    assert_eq!(node.exited(&id).await.0, 0);
    assert_eq!(log_text(&rotated), "first\n");
    assert_eq!(log_text(&log), "second\nlast\n");
    node.finish().await;
}

#[tokio::test]
async fn failed_network_leaves_nothing() {
    let Some(node) = node().await else { return };
    node.network
        .fail
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let outcome = node.runtime().run_pod_sandbox(&node.sandbox()).await;
    assert!(
        matches!(outcome, Err(RuntimeError::Network { .. })),
        "{outcome:?}"
    );
    assert!(
        node.runtime()
            .list_pod_sandboxes()
            .await
            .unwrap()
            .is_empty()
    );
    node.finish().await;
}

#[tokio::test]
async fn program_that_cannot_be_executed_is_an_end_of_its_container() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let huge = ("HUGE".to_owned(), "x".repeat(200_000));
    for (command, env, words) in [
        ("no-such-thing", None, "executable file not found in $PATH"),
        ("/no/such/thing", None, "no such file or directory"),
        ("/etc/passwd", None, "permission denied"),
        ("/etc", None, "permission denied"),
        ("/bin/true", Some(huge), "argument list too long"),
    ] {
        let config = ContainerConfig {
            env: env.into_iter().collect(),
            ..container(&[command])
        };
        let runtime = node.runtime();
        let id = runtime
            .create_container(&sandbox.id, &config)
            .await
            .unwrap();
        let outcome = runtime.start_container(&id).await;
        let text = outcome.expect_err(command).to_string();
        assert!(text.contains(words) && text.contains(command), "{text}");
        let ContainerState::Exited {
            exit_code,
            reason,
            message,
            started_at,
            finished_at,
            ..
        } = node.status(&id).await.state
        else {
            panic!("{command} has not ended");
        };
        assert_eq!((exit_code, &*reason), (128, "StartError"));
        assert!(text.ends_with(&message) && message.contains(words));
        assert_eq!(started_at, finished_at, "{command} never ran");
    }
    node.finish().await;
}

#[tokio::test]
async fn replaced_sandbox_keeps_its_cgroup_when_the_old_one_goes() {
    let Some(node) = node().await else { return };
    let config = node.sandbox();
    let old = node.runtime().run_pod_sandbox(&config).await.unwrap();
    node.runtime().stop_pod_sandbox(&old.id).await.unwrap();
    let new = node
        .runtime()
        .run_pod_sandbox(&SandboxConfig {
            attempt: 1,
            ..config
        })
        .await
        .unwrap();
    let id = node
        .runtime()
        .create_container(&new.id, &container(&["sleep", "1000"]))
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.runtime().remove_pod_sandbox(&old.id).await.unwrap();
    assert_eq!(node.exec(&id, "echo alive").await.stdout, b"alive\n");
    node.finish().await;
}
