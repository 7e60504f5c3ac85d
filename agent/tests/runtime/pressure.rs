//! Too little memory, disk or processes, and very many pods.

use std::{fs, path::Path, sync::Arc};

use coracle_agent::runtime::*;
use nix::mount::{MsFlags, mount, umount2};

use super::harness::*;

/// A small file system that can be full; gone with the value.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Self {
        fs::create_dir_all(path).unwrap();
        mount(
            Some("small"),
            path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("size=512k,nr_inodes=500"),
        )
        .unwrap();
        Self(path)
    }

    /// To the last page and the last name.
    fn fill(&self) {
        for size in [4096, 1, 0] {
            let mut number = 0;
            while fs::write(self.0.join(format!("fill-{size}-{number}")), vec![1; size]).is_ok() {
                number += 1;
            }
        }
    }

    fn free(&self) {
        for entry in fs::read_dir(self.0).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("fill-") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_out_of_memory_kill_is_told() {
    let Some(node) = node().await else { return };
    let node = Arc::new(node);
    let resources = Resources {
        memory_limit_bytes: Some(15 << 20),
        ..Resources::default()
    };
    for _ in 0..10 {
        let pods = (0..8).map(|_| {
            let (node, resources) = (Arc::clone(&node), resources.clone());
            coracle_telemetry::spawn("task of a test", async move {
                let (sandbox, id) = node
                    .run(&ContainerConfig {
                        resources,
                        ..shell("exec tail /dev/zero")
                    })
                    .await;
                let end = node.exited(&id).await;
                node.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
                end
            })
        });
        for end in futures::future::join_all(pods).await {
            assert_eq!(end.unwrap(), (137, "OOMKilled".to_owned()));
        }
    }
    Arc::into_inner(node).unwrap().finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_stays_in_its_limit_and_can_be_stopped() {
    let Some(node) = node().await else { return };
    let resources = Resources {
        pids_limit: Some(64),
        ..Resources::default()
    };
    // A shell ends when it may not fork any more; what it has started stays.
    let bomb = "sh -c 'while :; do sleep 1000 & done'; exec sleep 1001";
    let (_, id) = node
        .run(&ContainerConfig {
            resources,
            ..shell(bomb)
        })
        .await;
    let path = format!("{}/poduid-0/{id}", node.cgroup);
    let count = || {
        let files = format!(
            "cat /sys/fs/cgroup{path}/pids.current /sys/fs/cgroup/pids{path}/pids.current 2>/dev/null"
        );
        run_command(&files).trim().parse::<u32>().unwrap_or(0)
    };
    eventually("the limit is reached", || count() >= 60).await;
    assert!(count() <= 64);
    let (code, _) = node.output(&shell("exit 5")).await;
    assert_eq!(code, 5, "other pods start");
    node.runtime()
        .stop_container(&id, std::time::Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(node.exited(&id).await.0, 137);
    eventually("all of it is gone", || count() == 0).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_fails_a_start_and_leaves_nothing() {
    let Some(mut node) = node().await else { return };
    for place in ["run", "root"] {
        node.crash();
        let path = node.dir.path().join(place);
        let disk = SmallDisk::mount(&path);
        node.start().await;
        disk.fill();
        let sandbox = node.runtime().run_pod_sandbox(&node.sandbox()).await;
        match &sandbox {
            Ok(sandbox) => {
                let outcome = node
                    .runtime()
                    .create_container(&sandbox.id, &container(&["true"]))
                    .await;
                assert!(outcome.is_err(), "{place}");
                assert!(node.runtime().list_containers().await.unwrap().is_empty());
            }
            Err(error) => {
                let mut text = error.to_string();
                let mut source = std::error::Error::source(error);
                while let Some(cause) = source {
                    text = format!("{text}: {cause}");
                    source = cause.source();
                }
                assert!(text.contains("No space left"), "{text}");
                assert!(
                    node.runtime()
                        .list_pod_sandboxes()
                        .await
                        .unwrap()
                        .is_empty()
                );
            }
        }
        // With room again, the next attempt works.
        disk.free();
        let (code, log) = node.output(&shell("echo fits")).await;
        assert_eq!((code, &*log), (0, "fits\n"), "{place}");
        for sandbox in node.runtime().list_pod_sandboxes().await.unwrap() {
            node.runtime()
                .remove_pod_sandbox(&sandbox.id)
                .await
                .unwrap();
        }
        node.crash();
        drop(disk);
    }
    node.start().await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_stops_no_container_and_loses_no_exit() {
    let Some(mut node) = node().await else { return };
    node.crash();
    let (run, logs) = (node.dir.path().join("run"), node.dir.path().join("logs"));
    let (run_disk, log_disk) = (SmallDisk::mount(&run), SmallDisk::mount(&logs));
    node.start().await;
    let (_, id) = node
        .run(&shell(
            "echo before; while ! test -e /go; do sleep 0.02; done; seq 1 200000; exit 23",
        ))
        .await;
    node.logged(&id, "before").await;
    run_disk.fill();
    log_disk.fill();
    assert_eq!(node.exec(&id, "touch /go").await.exit_code, 0);
    let end = node.exited(&id).await;
    assert_eq!(end, (23, "Error".to_owned()));
    // The shim still knows, though it could write nothing down.
    node.crash();
    node.start().await;
    assert_eq!(node.exited(&id).await, end);
    // A pod goes, full disk or not.
    for sandbox in node.runtime().list_pod_sandboxes().await.unwrap() {
        node.runtime().stop_pod_sandbox(&sandbox.id).await.unwrap();
        node.runtime()
            .remove_pod_sandbox(&sandbox.id)
            .await
            .unwrap();
    }
    assert!(node.runtime().known_sandboxes().is_empty());
    node.crash();
    drop((run_disk, log_disk));
    node.start().await;
    node.finish().await;
}

/// Descriptors, tasks and memory of the agent do not grow with the pods it has seen.
#[tokio::test(flavor = "multi_thread")]
async fn many_pods_leave_the_agent_as_it_was() {
    const CYCLES: usize = 120;
    let Some(node) = node().await else { return };
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let memory = || {
        let text = fs::read_to_string("/proc/self/status").unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("RssAnon:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let mut before = None;
    for cycle in 0..CYCLES {
        let (sandbox, id) = node.run(&shell("echo one")).await;
        assert_eq!(node.exited(&id).await.0, 0);
        node.runtime().remove_pod_sandbox(&sandbox).await.unwrap();
        if cycle == CYCLES / 4 {
            before = Some((descriptors(), tasks(), memory()));
        }
    }
    let (open, running, kilobytes) = before.unwrap();
    eventually("descriptors are closed", || descriptors() <= open + 4).await;
    eventually("tasks have ended", || tasks() <= running + 4).await;
    assert!(
        memory() < kilobytes + 2048,
        "{kilobytes} kB became {} kB",
        memory()
    );
    node.finish().await;
}
