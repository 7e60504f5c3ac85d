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
async fn memory_limit_ends_in_oom_killed() {
    let Some(node) = node().await else { return };
    let resources = Resources {
        memory_limit_bytes: Some(15 << 20),
        ..Resources::default()
    };
    // What the first process makes of another's end is its own affair.
    for (script, code) in [
        ("exec tail /dev/zero", 137),
        ("tail /dev/zero", 137),
        ("(tail /dev/zero); exit 3", 3),
    ] {
        let (_, id) = node
            .run(&ContainerConfig {
                resources: resources.clone(),
                ..shell(script)
            })
            .await;
        assert_eq!(
            node.exited(&id).await,
            (code, "OOMKilled".to_owned()),
            "{script}"
        );
    }
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
async fn volumes_are_mounted_as_asked() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("volume");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let mount = |host_path: &std::path::Path, container_path: &str, readonly| Mount {
        container_path: container_path.into(),
        host_path: host_path.into(),
        readonly,
        recursive_readonly: false,
        propagation: MountPropagation::Private,
    };
    let mounts = vec![
        mount(&source, "/rw", false),
        mount(&source, "/deep/er/ro", true),
        mount(&source.join("file"), "/etc/one", true),
    ];
    let script =
        "cat /rw/file /etc/one; touch /rw/new && echo wrote; touch /deep/er/ro/no || echo refused";
    let (_, log) = node
        .output(&ContainerConfig {
            mounts,
            ..shell(script)
        })
        .await;
    assert!(log.contains("contentcontent"), "{log}");
    assert!(log.contains("wrote") && log.contains("refused"), "{log}");
    assert!(source.join("new").exists());
    node.finish().await;
}

#[tokio::test]
async fn volume_mounted_after_the_sandbox_was_made_is_seen() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    let source = node.dir.path().join("late");
    std::fs::create_dir(&source).unwrap();
    nix::mount::mount(
        Some("tmpfs"),
        &source,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    std::fs::write(source.join("file"), "late").unwrap();
    let mounts = vec![Mount {
        container_path: "/v".into(),
        host_path: source.clone(),
        readonly: true,
        recursive_readonly: false,
        propagation: MountPropagation::Private,
    }];
    let id = node
        .runtime()
        .create_container(
            &sandbox.id,
            &ContainerConfig {
                mounts,
                ..shell("cat /v/file")
            },
        )
        .await
        .unwrap();
    node.runtime().start_container(&id).await.unwrap();
    node.exited(&id).await;
    assert_eq!(node.log(&id).await, "late");
    nix::mount::umount2(&source, nix::mount::MntFlags::empty()).unwrap();
    node.finish().await;
}

/// A file system of the node that is shared with whoever has a part of it.
fn shared_tmpfs(at: &std::path::Path) {
    use nix::mount::{MsFlags, mount};
    std::fs::create_dir(at).unwrap();
    mount(
        Some("tmpfs"),
        at,
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    mount(
        None::<&str>,
        at,
        None::<&str>,
        MsFlags::MS_SHARED,
        None::<&str>,
    )
    .unwrap();
}

#[tokio::test]
async fn what_the_node_mounts_later_is_seen_only_where_it_was_asked_for() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("spread");
    shared_tmpfs(&source);
    std::fs::create_dir(source.join("later")).unwrap();
    let mount = |container_path: &str, propagation| Mount {
        container_path: container_path.into(),
        host_path: source.clone(),
        readonly: false,
        recursive_readonly: false,
        propagation,
    };
    let (none, follows) = (
        mount("/none", MountPropagation::Private),
        mount("/follows", MountPropagation::HostToContainer),
    );
    let both = mount("/both", MountPropagation::Bidirectional);
    for mounts in [
        vec![none.clone(), follows.clone()],
        vec![none, follows, both],
    ] {
        let (sandbox, id) = node
            .run(&ContainerConfig {
                mounts,
                ..container(&["sleep", "1000"])
            })
            .await;
        let later = source.join("later");
        nix::mount::mount(
            Some("tmpfs"),
            &later,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
        std::fs::write(later.join("secret"), "").unwrap();
        let seen = node.exec(&id, "ls /none/later /follows/later").await;
        assert_eq!(
            String::from_utf8_lossy(&seen.stdout),
            "/follows/later:\nsecret\n\n/none/later:\n"
        );
        let tied = node
            .exec(
                &id,
                "grep -E ' /none ' /proc/self/mountinfo | grep -E 'master:'; true",
            )
            .await;
        assert_eq!(String::from_utf8_lossy(&tied.stdout), "");
        node.runtime()
            .stop_container(&id, Duration::ZERO)
            .await
            .unwrap();
        node.runtime().remove_container(&id).await.unwrap();
        node.runtime().stop_pod_sandbox(&sandbox).await.unwrap();
        nix::mount::umount2(&later, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    nix::mount::umount2(&source, nix::mount::MntFlags::MNT_DETACH).unwrap();
    node.finish().await;
}

#[tokio::test]
async fn recursively_read_only_reaches_what_is_mounted_below() {
    let Some(node) = node().await else { return };
    let source = node.dir.path().join("tree");
    shared_tmpfs(&source);
    let below = source.join("below");
    shared_tmpfs(&below);
    let mount = |container_path: &str, recursive_readonly| Mount {
        container_path: container_path.into(),
        host_path: source.clone(),
        readonly: true,
        recursive_readonly,
        propagation: MountPropagation::Private,
    };
    let mounts = vec![mount("/top", false), mount("/all", true)];
    let script = "for f in /top/f /top/below/f /all/f /all/below/f; do touch $f 2>/dev/null && echo wrote $f; done; true";
    let (_, log) = node
        .output(&ContainerConfig {
            mounts,
            ..shell(script)
        })
        .await;
    assert_eq!(log, "wrote /top/below/f\n");
    for path in [below, source] {
        nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
    node.finish().await;
}

fn is_v2() -> bool {
    std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// What a file of a cgroup says, in whatever hierarchy.
fn limit(path: &str, file: &str) -> String {
    run_command(&format!(
        "cat /sys/fs/cgroup{{,/*}}{path}/{file} 2>/dev/null || cat /sys/fs/cgroup/*{path}/{file}"
    ))
    .trim()
    .to_owned()
}

/// Memory, CPU quota and CPU share of a cgroup, as its hierarchy writes them.
fn limits(path: &str) -> [String; 3] {
    let files = if is_v2() {
        ["memory.max", "cpu.max", "cpu.weight"]
    } else {
        ["memory.limit_in_bytes", "cpu.cfs_quota_us", "cpu.shares"]
    };
    files.map(|file| limit(path, file))
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_a_container_runs() {
    let Some(mut node) = node().await else { return };
    let sized = |memory: Option<i64>, quota: Option<i64>, shares: u64| Resources {
        cpu_shares: Some(shares),
        cpu_quota_us: quota,
        memory_limit_bytes: memory.map(|mebibytes| mebibytes << 20),
        ..Resources::default()
    };
    let expected = |memory: &str, quota: &str, shares: u64| {
        let (v2_quota, weight) = (format!("{quota} 100000"), 1 + (shares - 2) * 9999 / 262_142);
        if is_v2() {
            [memory.to_owned(), v2_quota, weight.to_string()]
        } else {
            [memory.to_owned(), quota.to_owned(), shares.to_string()]
        }
    };
    let first = sized(Some(64), Some(50_000), 512);
    let config = ContainerConfig {
        resources: first.clone(),
        ..container(&["sleep", "1000"])
    };
    let (sandbox, id) = node.run(&config).await;
    let (pod, path) = (
        format!("{}/poduid-0", node.cgroup),
        format!("{}/poduid-0/{id}", node.cgroup),
    );
    let pid = node.status(&id).await.state;
    let more = sized(Some(128), Some(80_000), 1024);
    node.runtime()
        .update_pod_sandbox_resources(&sandbox, &more)
        .await
        .unwrap();
    node.runtime()
        .update_container_resources(&id, &more)
        .await
        .unwrap();
    for path in [&pod, &path] {
        assert_eq!(
            limits(path),
            expected(&(128 << 20).to_string(), "80000", 1024),
            "{path}"
        );
    }
    // Back again, and a limit that what runs does not fit in.
    node.runtime()
        .update_container_resources(&id, &first)
        .await
        .unwrap();
    let refused = node
        .runtime()
        .update_container_resources(
            &id,
            &Resources {
                memory_limit_bytes: Some(1),
                ..more
            },
        )
        .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("below current usage")
    );
    assert_eq!(
        limits(&path),
        expected(&(64 << 20).to_string(), "50000", 512)
    );
    node.crash();
    node.start().await;
    let status = node.status(&id).await;
    assert_eq!(
        (
            status.resources.memory_limit_bytes,
            status.resources.cpu_quota_us
        ),
        (Some(64 << 20), Some(50_000))
    );
    assert_eq!(status.state, pid);
    node.finish().await;
}

#[tokio::test]
async fn limits_reach_the_cgroup() {
    let Some(node) = node().await else { return };
    let resources = Resources {
        cpu_shares: Some(512),
        cpu_quota_us: Some(50_000),
        memory_limit_bytes: Some(64 << 20),
        pids_limit: Some(99),
        oom_score_adj: Some(-997),
        ..Resources::default()
    };
    let (_, id) = node
        .run(&ContainerConfig {
            resources,
            ..container(&["sleep", "1000"])
        })
        .await;
    let path = format!("{}/poduid-0/{id}", node.cgroup);
    let stats = node.runtime().container_stats(&id).await.unwrap();
    assert!(
        stats.cpu_usage_nanos > 0 && stats.memory_working_set_bytes > 0,
        "{stats:?}"
    );
    let find = |file: &str| limit(&path, file);
    if is_v2() {
        assert_eq!(find("memory.max"), (64 << 20).to_string());
    } else {
        assert_eq!(find("cpu.shares"), "512");
        assert_eq!(find("cpu.cfs_quota_us"), "50000");
        assert_eq!(find("memory.limit_in_bytes"), (64 << 20).to_string());
    }
    assert_eq!(find("pids.max"), "99");
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
async fn program_that_is_not_there_is_named() {
    let Some(node) = node().await else { return };
    let sandbox = node
        .runtime()
        .run_pod_sandbox(&node.sandbox())
        .await
        .unwrap();
    for (command, words) in [
        ("no-such-thing", "executable file not found in $PATH"),
        ("/no/such/thing", "no such file or directory"),
        ("/etc/passwd", "permission denied"),
    ] {
        let outcome = node
            .runtime()
            .create_container(&sandbox.id, &container(&[command]))
            .await;
        let text = outcome.expect_err(command).to_string();
        assert!(text.contains(words) && text.contains(command), "{text}");
    }
    assert!(node.runtime().list_containers().await.unwrap().is_empty());
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
