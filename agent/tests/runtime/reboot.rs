//! The machine is started anew: shims, namespaces and the run directory are gone, the disk is not.

use coracle_agent::runtime::*;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::harness::*;

/// Ends what a reboot ends.
async fn reboot(node: &mut Node, sandboxes: &[&SandboxId]) {
    let shims: Vec<i32> = sandboxes
        .iter()
        .map(|sandbox| shim_pid(node, sandbox))
        .collect();
    node.crash();
    for shim in shims {
        kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
        eventually("the shim is dead", || {
            !std::path::Path::new(&format!("/proc/{shim}")).exists()
        })
        .await;
    }
    node.unmount();
    node.remove_cgroups();
    std::fs::remove_dir_all(node.dir.path().join("run")).unwrap();
    node.network.attached.lock().clear();
    node.start().await;
}

/// What is kept of a container over a reboot.
fn record(node: &Node, id: &ContainerId) -> std::io::Result<String> {
    let directory = node.dir.path().join("root/containers").join(&id.0);
    std::fs::read_to_string(directory.join("record.json"))
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_before_a_reboot_are_known_and_ended() {
    let Some(mut node) = node().await else { return };
    let secret = ContainerConfig {
        env: vec![("TOKEN".into(), "hunter2".into())],
        ..container(&["sleep", "1000"])
    };
    let (first, running) = node.run(&secret).await;
    let (second, done) = node.run(&shell("exit 7")).await;
    assert_eq!(node.exited(&done).await.0, 7);
    eventually("its end is recorded", || {
        record(&node, &done).is_ok_and(|text| text.contains("\"Exited\""))
    })
    .await;
    let before = (node.status(&running).await, node.status(&done).await);
    assert!(
        !record(&node, &running).unwrap().contains("hunter2"),
        "no Secret outlives the boot"
    );

    reboot(&mut node, &[&first, &second]).await;
    assert_eq!(node.exited(&running).await, (255, "Unknown".to_owned()));
    let after = (node.status(&running).await, node.status(&done).await);
    assert_eq!(after.1, before.1);
    assert_eq!(
        ContainerStatus {
            state: before.0.state.clone(),
            ..after.0.clone()
        },
        before.0
    );
    let sandboxes = node.runtime().list_pod_sandboxes().await.unwrap();
    assert_eq!(sandboxes.len(), 2);
    assert!(
        sandboxes
            .iter()
            .all(|sandbox| sandbox.state == SandboxState::NotReady)
    );
    assert!(
        node.runtime().known_sandboxes().is_empty(),
        "they hold nothing of the network"
    );

    // The next start tells the same.
    node.crash();
    node.start().await;
    assert_eq!(
        (node.status(&running).await, node.status(&done).await),
        after
    );
    goes_on(&node, &after.0.pod, &first, &running).await;
    node.finish().await;
}

/// The pod goes on in a new sandbox; the old container is removed as any other.
async fn goes_on(node: &Node, pod: &PodRef, first: &SandboxId, old: &ContainerId) {
    let config = SandboxConfig {
        attempt: 1,
        pod: pod.clone(),
        ..node.sandbox()
    };
    let sandbox = node.runtime().run_pod_sandbox(&config).await.unwrap();
    node.runtime().remove_container(old).await.unwrap();
    let of_pod = node.runtime().pod_state(&pod.uid).await.unwrap();
    assert_eq!((of_pod.0.len(), of_pod.1), (2, vec![]));
    node.runtime().remove_pod_sandbox(first).await.unwrap();
    assert!(
        node.runtime()
            .pod_state(&pod.uid)
            .await
            .unwrap()
            .0
            .iter()
            .all(|left| left.id == sandbox.id)
    );
}

/// A container that was made and not started has not run.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_started_leaves_nothing_after_a_reboot() {
    let Some(mut node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    node.runtime()
        .create_container(&sandbox.id, &container(&["true"]))
        .await
        .unwrap();
    reboot(&mut node, &[&sandbox.id]).await;
    assert!(node.runtime().list_containers().await.unwrap().is_empty());
    assert!(
        node.runtime()
            .list_pod_sandboxes()
            .await
            .unwrap()
            .is_empty()
    );
    node.finish().await;
}

/// A run directory that is no tmpfs outlives the boot; what is in it does not run all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_directory_of_another_boot_is_no_truth() {
    let Some(mut node) = node().await else { return };
    let (sandbox, id) = shim_dies_alone(&mut node).await;
    let path = node
        .dir
        .path()
        .join("run/sandboxes")
        .join(&sandbox.0)
        .join("sandbox.json");
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    record["boot_id"] = "another".into();
    std::fs::write(&path, record.to_string()).unwrap();
    node.start().await;
    assert_eq!(node.exited(&id).await, (255, "Unknown".to_owned()));
    assert!(!path.exists(), "what it was made of is gone");
    assert_eq!(
        node.runtime().list_pod_sandboxes().await.unwrap()[0].state,
        SandboxState::NotReady
    );
    node.finish().await;
}
