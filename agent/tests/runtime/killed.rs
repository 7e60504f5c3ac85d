//! The shim and its helper are killed while a pod starts.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, time::Duration};

use coracle_agent::runtime::*;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::harness::*;

/// Processes whose parent or log tells that they are this node's shims.
fn shims(dir: &Path) -> BTreeSet<i32> {
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    all.filter(|pid| {
        fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|log| log.starts_with(dir.join("run")))
    })
    .collect()
}

/// Helpers of these shims.
fn helpers(shims: &BTreeSet<i32>) -> Vec<i32> {
    let mut found = Vec::new();
    for shim in shims {
        let children =
            fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok())
                .filter(|pid| {
                    fs::read(format!("/proc/{pid}/cmdline"))
                        .is_ok_and(|words| words.starts_with(b"coracle-oci"))
                }),
        );
    }
    found
}

/// Whether any of them got it; all are sent it.
#[allow(clippy::unnecessary_fold, reason = "any() would stop at the first")]
fn signal(pids: impl IntoIterator<Item = i32>) -> bool {
    pids.into_iter().fold(false, |any, pid| {
        kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() || any
    })
}

/// Whatever the moment, the pod is either not there, or there with a container whose end is told,
/// and it goes without a trace.
#[tokio::test(flavor = "multi_thread")]
async fn shim_killed_in_the_middle_of_a_start_leaves_nothing() {
    let Some(node) = node().await else { return };
    let node = Arc::new(node);
    for micros in [
        0, 500, 1000, 2000, 3000, 4000, 6000, 8000, 12_000, 16_000, 25_000, 40_000,
    ] {
        let starter = {
            let node = Arc::clone(&node);
            coracle_telemetry::spawn("task of a test", async move {
                let sandbox = node.runtime().run_pod_sandbox(&node.sandbox()).await.ok()?;
                let id = node
                    .runtime()
                    .create_container(&sandbox.id, &container(&["sleep", "1000"]))
                    .await
                    .ok()?;
                node.runtime().start_container(&id).await.ok()
            })
        };
        let dir = node.dir.path().to_owned();
        let deadline = std::time::Instant::now() + LIMIT;
        while shims(&dir).is_empty() {
            assert!(std::time::Instant::now() < deadline, "no shim comes");
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_micros(micros)).await;
        // The first one seen may only be what forks the shim: until nothing of it lives.
        while signal(shims(&dir)) || !starter.is_finished() {
            assert!(
                std::time::Instant::now() < deadline,
                "the start does not end"
            );
            tokio::task::yield_now().await;
        }
        let started = starter.await.unwrap();
        for container in node.runtime().list_containers().await.unwrap() {
            let (code, reason) = node.exited(&container.id).await;
            assert!(
                (code, &*reason) == (137, "ContainerStatusUnknown"),
                "{micros}: {code} {reason}"
            );
        }
        for sandbox in node.runtime().list_pod_sandboxes().await.unwrap() {
            let runtime = node.runtime();
            let id = sandbox.id.clone();
            let ready = async {
                while runtime
                    .list_pod_sandboxes()
                    .await
                    .unwrap()
                    .iter()
                    .any(|s| s.state == SandboxState::Ready)
                {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LIMIT, ready)
                .await
                .expect("the sandbox is told not ready");
            runtime.stop_pod_sandbox(&id).await.unwrap();
            runtime.remove_pod_sandbox(&id).await.unwrap();
        }
        node.assert_no_residue().await;
        eprintln!(
            "shim killed {micros} us after it was seen: start {}",
            if started.is_some() { "done" } else { "failed" }
        );
    }
    Arc::into_inner(node).unwrap().finish().await;
}

/// A helper that dies (out of memory, say) costs its container only; the next attempt works.
#[tokio::test(flavor = "multi_thread")]
async fn killed_helper_fails_its_container_and_no_other() {
    let Some(node) = node().await else { return };
    let node = Arc::new(node);
    let (sandbox, id) = node.run(&container(&["sleep", "1000"])).await;
    // Until it has executed its program, a container's process looks like a helper.
    eventually("the first container runs its own program", || {
        helpers(&shims(node.dir.path())).is_empty()
    })
    .await;
    let mut killed = 0;
    for _ in 0..20 {
        let creator = {
            let (node, sandbox) = (Arc::clone(&node), sandbox.clone());
            let config = ContainerConfig {
                name: "other".into(),
                log_path: "other/0.log".into(),
                ..shell("exit 3")
            };
            coracle_telemetry::spawn("task of a test", async move {
                node.runtime().create_container(&sandbox, &config).await
            })
        };
        let shims = shims(node.dir.path());
        while !creator.is_finished() && !signal(helpers(&shims)) {
            tokio::task::yield_now().await;
        }
        match tokio::time::timeout(LIMIT, creator)
            .await
            .expect("it ends")
            .unwrap()
        {
            Err(error) => {
                killed += 1;
                assert!(error.to_string().contains("other"), "{error}");
            }
            // It was faster than the signal.
            Ok(id) => node.runtime().remove_container(&id).await.unwrap(),
        }
        let containers = node.runtime().list_containers().await.unwrap();
        assert_eq!(
            containers
                .iter()
                .map(|container| &container.id)
                .collect::<Vec<_>>(),
            [&id]
        );
    }
    assert!(killed > 0, "no helper was ever caught");
    assert_eq!(node.exec(&id, "echo alive").await.stdout, b"alive\n");
    let (code, _) = node.output(&shell("exit 3")).await;
    assert_eq!(code, 3);
    Arc::into_inner(node).unwrap().finish().await;
}
