//! Streams and figures as the real kubectl sees them, old and new: exec, attach, port-forward, cp,
//! proxies.

#[path = "streams/data.rs"]
mod data;
#[path = "streams/figures.rs"]
mod figures;
#[path = "streams/processes.rs"]
mod processes;

use std::{path::Path, process::Command, time::Instant};

use coracle_tests::{cluster::Cluster, is_root_or_skip, kubectl::Kubectl, process, workspace};

use self::{
    data::{
        copies_come_back_intact, port_forward_brings_the_page,
        proxies_reach_services_pods_and_nodes,
    },
    figures::{metrics_are_prometheus_text, top_shows_nodes_pods_and_containers},
    processes::{
        attach_joins_the_main_process, exec_keeps_streams_apart_and_tells_the_exit_code,
        exec_takes_binary_input, exec_with_a_terminal_has_its_size,
        run_waits_for_the_end_of_its_command,
    },
};

/// What `kubectl cp` carries.
const BIG: usize = 100 << 20;

/// There is no registry.
const PULL: &str = "--image-pull-policy=IfNotPresent";

/// One cluster for the whole story: starting one takes longer than any single step.
#[test]
fn kubectl_streams_in_every_form() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    kubectl.ok(&format!(
        "apply -f {}",
        workspace().join("examples/nginx.yaml").display()
    ));
    kubectl.ok(
        "run box --image=busybox --image-pull-policy=IfNotPresent --restart=Never -- sleep 3600",
    );
    // Ends its loop, and so its pod, with its input: for attach.
    for (index, _) in clients(&kubectl).iter().enumerate() {
        let script = "while read line; do echo got $line; echo err $line >&2; done; exit 3";
        let pod = format!("echo-{index}");
        let run = [
            "run",
            &pod,
            "--image=busybox",
            PULL,
            "--restart=Never",
            "--stdin",
            "--attach=false",
        ];
        kubectl.ok_args(&[&run[..], &["--", "sh", "-c", script]].concat());
        if index == 0 {
            let run = [
                "run",
                "echo-open",
                "--image=busybox",
                PULL,
                "--restart=Never",
                "--stdin",
                "--leave-stdin-open",
            ];
            kubectl.ok_args(&[&run[..], &["--attach=false", "--", "sh", "-c", script]].concat());
        }
    }
    kubectl.rolled_out("nginx");
    kubectl.pod_ready("box");
    for (index, (version, client)) in clients(&kubectl).iter().enumerate() {
        let started = Instant::now();
        exec_keeps_streams_apart_and_tells_the_exit_code(client);
        exec_takes_binary_input(&cluster, client);
        exec_with_a_terminal_has_its_size(client);
        run_waits_for_the_end_of_its_command(client, index);
        kubectl.pod_ready(&format!("echo-{index}"));
        attach_joins_the_main_process(client, &format!("echo-{index}"));
        port_forward_brings_the_page(&cluster, client, index);
        copies_come_back_intact(&cluster, client, 1 << 20);
        eprintln!("kubectl {version}: all streams in {:?}", started.elapsed());
    }
    attach_joins_the_main_process(&kubectl, "echo-open");
    copies_come_back_intact(&cluster, &kubectl, BIG);
    proxies_reach_services_pods_and_nodes(&cluster);
    top_shows_nodes_pods_and_containers(&kubectl);
    metrics_are_prometheus_text(&kubectl);
}

/// kubectl 1.37 and older ones.
fn clients(newest: &Kubectl) -> Vec<(&'static str, Kubectl)> {
    let older = ["1.35", "1.29"].map(|version| (version, newest.version(version)));
    [("1.37", newest.clone())]
        .into_iter()
        .chain(older)
        .collect()
}

fn md5(path: &Path) -> String {
    let said = process::succeed(Command::new("md5sum").arg(path));
    said.split_whitespace().next().expect("a sum").to_owned()
}
