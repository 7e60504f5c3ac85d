//! What runs of `examples/nginx.yaml`: whether it is still the same.

use crate::{cluster::Cluster, kubectl::Kubectl};

/// Name, address, container's ID, restarts and start of every pod.
pub fn identities(kubectl: &Kubectl) -> String {
    kubectl.ok_args(&[
        "get",
        "pods",
        "-l",
        "app=nginx",
        "--sort-by=.metadata.name",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.running.startedAt}{\"\\n\"}{end}",
    ])
}

/// PIDs of the cluster's nginx masters.
pub fn nginx_pids(cluster: &Cluster) -> Vec<String> {
    let mut pids: Vec<String> = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        let site = cluster.site.cgroup("");
        if cmdline.starts_with(b"nginx: master") && cgroup.contains(site.trim_end_matches('/')) {
            pids.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    pids.sort();
    pids
}
