//! Figures: `kubectl top` and metrics.

use std::process::Stdio;

use coracle_tests::{
    kubectl::{Kubectl, PATIENCE},
    wait,
};

pub(crate) fn top_shows_nodes_pods_and_containers(kubectl: &Kubectl) {
    let nodes = kubectl.ok("top nodes --no-headers");
    let row: Vec<&str> = nodes.split_whitespace().collect();
    assert!(
        row.len() == 5 && row[0] == "n1" && row[1].ends_with('m') && row[3].ends_with("Mi"),
        "{nodes}"
    );
    assert!(row[2].ends_with('%') && row[4].ends_with('%'), "{nodes}");
    // Busy for the looks of the agent.
    let mut busy = kubectl.command(&[
        "exec",
        "box",
        "--",
        "timeout",
        "30",
        "sh",
        "-c",
        "while true; do :; done",
    ]);
    let mut busy = busy
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    wait::until("the busy pod is seen as busy", PATIENCE, || {
        let pods = kubectl.ok("top pods --no-headers");
        let row = pods
            .lines()
            .find(|line| line.starts_with("box "))
            .map(str::to_owned);
        let cpu = row.and_then(|row| {
            row.split_whitespace()
                .nth(1)?
                .strip_suffix('m')?
                .parse::<u32>()
                .ok()
        });
        if cpu.is_some_and(|cpu| cpu > 100) {
            Ok(())
        } else {
            Err(pods)
        }
    });
    let _ended_already = busy.kill();
    let _status = busy.wait();
    let selected = kubectl.ok("top pods -l app=nginx --no-headers");
    assert_eq!(selected.lines().count(), 3, "{selected}");
    let containers = kubectl.ok("top pods --containers -l app=nginx --no-headers");
    assert!(
        containers
            .lines()
            .all(|line| line.split_whitespace().nth(1) == Some("nginx")),
        "{containers}"
    );
    let one = kubectl.ok("top pod box --no-headers");
    assert!(one.starts_with("box "), "{one}");
}

pub(crate) fn metrics_are_prometheus_text(kubectl: &Kubectl) {
    let has = |path: &str, wanted: &[&str]| {
        let text = kubectl.ok(&format!("get --raw {path}"));
        for name in wanted {
            assert!(
                text.lines().any(|line| line.starts_with(name)),
                "{path}: no {name}\n{text}"
            );
        }
    };
    has(
        "/metrics",
        &[
            "apiserver_request_total{code=\"200\"",
            "apiserver_request_duration_seconds_bucket{",
            "apiserver_current_inflight_requests{",
            "apiserver_longrunning_requests{",
            "apiserver_registered_watchers{",
            "apiserver_storage_objects{resource=\"pods\"}",
            "etcd_request_duration_seconds_count{operation=\"txn\"}",
            "process_resident_memory_bytes ",
        ],
    );
    has(
        "/api/v1/nodes/n1/proxy/metrics",
        &[
            "kubelet_running_pods ",
            "kubelet_running_containers{container_state=\"running\"}",
            "process_cpu_seconds_total ",
        ],
    );
    has(
        "/api/v1/nodes/n1/proxy/metrics/resource",
        &[
            "container_cpu_usage_seconds_total{container=\"nginx\",namespace=\"default\",pod=\"nginx-",
            "container_memory_working_set_bytes{",
            "node_cpu_usage_seconds_total ",
            "pod_memory_working_set_bytes{namespace=\"default\",pod=\"box\"}",
        ],
    );
}
