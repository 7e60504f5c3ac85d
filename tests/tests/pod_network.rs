//! What a pod's network gives and limits, as its author sees it: by kubectl, on one node.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

fn pod(name: &str, annotations: &str, security: &str, command: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {{{security}}}
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
    command: [sh, -c, "{command}"]
"#
    )
}

const SERVE: &str =
    "mkdir /tmp/w; dd if=/dev/zero of=/tmp/w/big bs=1000 count=1000; exec httpd -f -p 80 -h /tmp/w";
const NOBODY: &str = "runAsNonRoot: true, runAsUser: 1000";

/// One cluster for all of it: starting one takes longer than any step.
#[test]
fn a_pods_network_serves_and_limits_it() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    whoever_it_runs_as_a_pod_has_its_low_ports_and_pings(&cluster, &kubectl);
    an_annotation_limits_what_a_pod_receives(&kubectl);
    a_limit_that_makes_no_sense_is_told(&kubectl);
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    let links = cluster.site.within("n1", &["ip", "-o", "link", "show"]);
    assert!(!links.contains("vifb"), "{links}");
}

fn whoever_it_runs_as_a_pod_has_its_low_ports_and_pings(cluster: &Cluster, kubectl: &Kubectl) {
    kubectl.apply(&pod("plain", "", NOBODY, SERVE));
    kubectl.pod_ready("plain");
    let address = kubectl.ok("get pod plain -o jsonpath={.status.podIP}");
    nobody_pings(cluster, &address);
    let own = format!(
        "{NOBODY}, sysctls: [{{name: net.ipv4.ip_unprivileged_port_start, value: '1024'}}, {{name: net.ipv4.ping_group_range, value: '1 0'}}]"
    );
    kubectl.apply(&pod("strict", "", &own, "httpd -f -p 80; sleep 1000"));
    kubectl.pod_ready("strict");
    let get = |from: &str| {
        kubectl.run(&format!(
            "exec {from} -- timeout 5 wget -q -O /dev/null http://{address}/big"
        ))
    };
    wait::until("port 80 of a pod of nobody's", PATIENCE, || {
        let got = get("strict");
        (got.code == 0).then_some(()).ok_or(got.stderr)
    });
    wait::until("what the author says is so", PATIENCE, || {
        let log = kubectl.ok("logs strict");
        log.contains("ermission denied").then_some(()).ok_or(log)
    });
    let groups = "/proc/sys/net/ipv4/ping_group_range";
    let groups = kubectl.ok(&format!("exec strict -- cat {groups}"));
    assert_eq!(groups.trim(), "1\t0");
}

/// An echo in the namespace of the only pod, by a user without any right: what is in the image asks
/// for a raw socket, which takes one.
fn nobody_pings(cluster: &Cluster, address: &str) {
    let sandboxes = cluster.site.subdir("n1-run").join("sandboxes");
    let sandboxes = std::fs::read_dir(sandboxes).expect("sandboxes").flatten();
    let pins: Vec<_> = sandboxes
        .map(|one| one.path().join("ns/net"))
        .filter(|pin| pin.exists())
        .collect();
    let [pin] = pins.as_slice() else {
        panic!("{pins:?}")
    };
    let script = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
s.settimeout(5)
s.sendto(bytes([8, 0, 0, 0, 0, 0, 0, 1]), (sys.argv[1], 0))
assert s.recv(64)[0] == 0";
    let nobody = [
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ];
    let mut ping = Command::new("nsenter");
    ping.arg(format!("--net={}", pin.display()))
        .arg("setpriv")
        .args(nobody)
        .args(["/usr/bin/python3", "-c", script, address]);
    process::succeed(&mut ping);
}

fn an_annotation_limits_what_a_pod_receives(kubectl: &Kubectl) {
    let limit = "kubernetes.io/ingress-bandwidth: 2M, kubernetes.io/egress-bandwidth: 100M";
    kubectl.apply(&pod("slow", limit, NOBODY, "sleep 1000"));
    kubectl.pod_ready("slow");
    let address = kubectl.ok("get pod plain -o jsonpath={.status.podIP}");
    let started = Instant::now();
    kubectl.ok(&format!(
        "exec slow -- wget -q -O /dev/null http://{address}/big"
    ));
    let took = started.elapsed();
    // A megabyte is eight megabits.
    let bounds = Duration::from_secs(3)..Duration::from_secs(12);
    assert!(bounds.contains(&took), "{took:?}");
}

fn a_limit_that_makes_no_sense_is_told(kubectl: &Kubectl) {
    let limit = "kubernetes.io/egress-bandwidth: '10'";
    kubectl.apply(&pod("odd", limit, NOBODY, "sleep 1000"));
    let why = "resource is unreasonably small (< 1kbit)";
    wait::until("the event", PATIENCE, || {
        let events = kubectl.ok("get events --field-selector involvedObject.name=odd");
        let told = events.contains("FailedCreatePodSandBox") && events.contains(why);
        told.then_some(()).ok_or(events)
    });
    kubectl.ok("delete pod odd");
}
