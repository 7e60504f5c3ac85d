//! The agent dies, the shim dies, either at a bad moment.

use std::time::Duration;

use coracle_agent::runtime::*;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::harness::*;

fn running_pid(status: &ContainerStatus) -> i32 {
    match status.state {
        ContainerState::Running { pid, .. } => pid,
        ref other => panic!("not running: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_agent_finds_everything_unchanged() {
    let Some(mut node) = node().await else { return };
    let (sandbox, id) = node
        .run(&shell(
            "echo one; while ! test -e /go; do sleep 0.02; done; echo two; exit 9",
        ))
        .await;
    node.logged(&id, "one").await;
    let before = (
        node.status(&id).await,
        node.runtime().list_pod_sandboxes().await.unwrap(),
    );
    for _ in 0..3 {
        node.crash();
        node.start().await;
        assert_eq!(
            (
                node.status(&id).await,
                node.runtime().list_pod_sandboxes().await.unwrap()
            ),
            before
        );
        // What the network keeps; everything else of it is released.
        assert_eq!(
            node.runtime().known_sandboxes(),
            std::slice::from_ref(&sandbox)
        );
        let of_pod = node.runtime().pod_state(&before.0.pod.uid).await.unwrap();
        assert_eq!(of_pod, (before.1.clone(), vec![before.0.clone()]));
        assert_eq!(
            node.runtime()
                .pod_state(&PodUid("other".into()))
                .await
                .unwrap(),
            (vec![], vec![])
        );
    }
    assert_eq!(node.exec(&id, "touch /go").await.exit_code, 0);
    assert_eq!(node.exited(&id).await.0, 9);
    assert_eq!(node.log(&id).await, "one\ntwo\n");
    assert_eq!(
        node.runtime().list_pod_sandboxes().await.unwrap()[0].id,
        sandbox
    );
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_while_the_agent_is_away_is_not_lost() {
    let Some(mut node) = node().await else { return };
    let (_, id) = node
        .run(&shell("echo before; sleep 0.5; echo after; exit 21"))
        .await;
    let log = node.status(&id).await.log_path;
    node.crash();
    eventually("it goes on without an agent", || {
        log_text(&log).contains("after")
    })
    .await;
    node.start().await;
    assert_eq!(node.exited(&id).await, (21, "Error".to_owned()));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_shim_takes_its_containers_along() {
    let Some(node) = node().await else { return };
    let (sandbox, id) = node.run(&container(&["sleep", "1000"])).await;
    let pid = running_pid(&node.status(&id).await);
    kill(Pid::from_raw(shim_pid(&node, &sandbox)), Signal::SIGKILL).unwrap();
    assert_eq!(
        node.exited(&id).await,
        (137, "ContainerStatusUnknown".to_owned())
    );
    let sandboxes = node.runtime().list_pod_sandboxes().await.unwrap();
    assert_eq!(sandboxes[0].state, SandboxState::NotReady);
    eventually("the process is gone", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
    assert!(
        node.runtime()
            .create_container(&sandbox, &container(&["true"]))
            .await
            .is_err()
    );
    node.finish().await;
}

/// The kernel clears the parent-death signal of a program that is set-user-ID.
#[tokio::test(flavor = "multi_thread")]
async fn dead_shim_takes_set_user_id_programs_along() {
    use std::os::unix::fs::PermissionsExt;
    let Some(node) = node().await else { return };
    // Run under a name that is none of its applets', it takes the first argument for one.
    let program = node.layer().join("bin/busybox-raised");
    std::fs::copy("/bin/busybox", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let security = SecurityContext {
        run_as_user: Some(1000),
        ..SecurityContext::default()
    };
    let config = ContainerConfig {
        security,
        ..container(&["/bin/busybox-raised", "sleep", "1000"])
    };
    let (sandbox, id) = node.run(&config).await;
    let pid = running_pid(&node.status(&id).await);
    kill(Pid::from_raw(shim_pid(&node, &sandbox)), Signal::SIGKILL).unwrap();
    node.exited(&id).await;
    eventually("the process is gone", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shim_that_died_while_the_agent_was_away_is_noticed() {
    let Some(mut node) = node().await else { return };
    let (_, id) = shim_dies_alone(&mut node).await;
    node.start().await;
    assert_eq!(
        node.exited(&id).await,
        (137, "ContainerStatusUnknown".to_owned())
    );
    assert_eq!(
        node.runtime().list_pod_sandboxes().await.unwrap()[0].state,
        SandboxState::NotReady
    );
    node.finish().await;
}

/// Stops the agent's side at ever later moments of a pod's start; the next agent must leave nothing
/// of it.
#[tokio::test(flavor = "multi_thread")]
async fn agent_killed_in_the_middle_of_a_start_leaves_nothing() {
    let Some(mut node) = node().await else { return };
    for micros in [0, 300, 1000, 2000, 3000, 5000, 8000, 12_000, 20_000, 40_000] {
        let runtime = node.runtime.clone().unwrap();
        let config = node.sandbox();
        // A runtime of its own, ended abruptly with all its tasks: what SIGKILL leaves.
        let doomed = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let sandbox_config = config.clone();
        let dir = node.dir.path().to_owned();
        let (network, layer) = (node.network.clone(), node.layer());
        doomed.spawn(async move {
            let config = RuntimeConfig {
                run_dir: dir.join("run"),
                root_dir: dir.join("root"),
                shim_path: shim_path(),
                network,
                images: std::sync::Arc::new(OneImage {
                    layers: vec![layer],
                    config: ImageConfig::default(),
                }),
                own_pods: OwnPods::default(),
            };
            let runtime = LocalRuntime::start(config).await.unwrap();
            if let Ok(sandbox) = runtime.run_pod_sandbox(&sandbox_config).await
                && let Ok(id) = runtime
                    .create_container(&sandbox.id, &container(&["sleep", "1000"]))
                    .await
            {
                let _ = runtime.start_container(&id).await;
            }
        });
        tokio::time::sleep(Duration::from_micros(micros)).await;
        doomed.shutdown_background();
        drop(runtime);
        node.crash();
        tokio::time::sleep(Duration::from_millis(60)).await;
        node.start().await;
        for sandbox in node.runtime().list_pod_sandboxes().await.unwrap() {
            node.runtime().stop_pod_sandbox(&sandbox.id).await.unwrap();
            node.runtime()
                .remove_pod_sandbox(&sandbox.id)
                .await
                .unwrap();
        }
        node.assert_no_residue().await;
    }
    node.finish().await;
}

#[tokio::test]
async fn stop_and_remove_are_idempotent() {
    let Some(node) = node().await else { return };
    let (sandbox, id) = node.run(&container(&["sleep", "1000"])).await;
    for _ in 0..2 {
        node.runtime()
            .stop_container(&id, Duration::ZERO)
            .await
            .unwrap();
        node.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
    }
    assert_eq!(node.exited(&id).await.0, 137);
    for _ in 0..2 {
        node.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
        node.runtime().remove_container(&id).await.unwrap();
    }
    node.finish().await;
}

/// Whatever started the agent may have left descriptors open in it (a service manager, a lock
/// file): no shim minds or keeps them.
#[test]
fn shim_does_without_the_agents_inherited_descriptors() {
    // Before anything else is open, so that 3 is among them.
    let file = std::fs::File::open("/etc/hostname").unwrap();
    let held: Vec<_> = (0..8)
        .map(|_| nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_DUPFD(3)).unwrap())
        .collect();
    let work = async {
        let Some(node) = node().await else { return };
        let (sandbox, id) = node
            .run(&shell("ls -l /proc/1/fd; echo end; exec sleep 1000"))
            .await;
        node.logged(&id, "end").await;
        let shim = shim_pid(&node, &sandbox);
        let open = run_command(&format!("ls -l /proc/{shim}/fd"));
        assert!(
            !open.contains("hostname") && open.contains("socket:"),
            "{open}"
        );
        assert!(!node.log(&id).await.contains("hostname"));
        node.finish().await;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The file itself is kept by this number and above, without close-on-exec.
    assert!(held.iter().any(|number| *number <= 5), "{held:?}");
    drop(file);
    runtime.block_on(work);
}
