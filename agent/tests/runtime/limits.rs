//! Limits of containers and pods, as the kernel has them.

use coracle_agent::runtime::*;

use super::harness::*;

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

fn sized(mebibytes: i64, quota: i64, shares: u64) -> Resources {
    Resources {
        cpu_shares: Some(shares),
        cpu_quota_us: Some(quota),
        memory_limit_bytes: Some(mebibytes << 20),
        ..Resources::default()
    }
}

/// The same as [`limits`] reads it.
fn written(mebibytes: i64, quota: i64, shares: u64) -> [String; 3] {
    let memory = (mebibytes << 20).to_string();
    if is_v2() {
        let weight = 1 + (shares - 2) * 9999 / 262_142;
        [memory, format!("{quota} 100000"), weight.to_string()]
    } else {
        [memory, quota.to_string(), shares.to_string()]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_while_a_container_runs() {
    let Some(mut node) = node().await else { return };
    let first = sized(64, 50_000, 512);
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
    let more = sized(128, 80_000, 1024);
    node.runtime()
        .update_pod_sandbox_resources(&sandbox, &more)
        .await
        .unwrap();
    node.runtime()
        .update_container_resources(&id, &more)
        .await
        .unwrap();
    for path in [&pod, &path] {
        assert_eq!(limits(path), written(128, 80_000, 1024), "{path}");
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
    assert_eq!(limits(&path), written(64, 50_000, 512));
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
