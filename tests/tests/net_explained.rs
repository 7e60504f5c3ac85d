//! `coracle net` on a node: what it says, and that it is so.

use std::{io, process::Command};

use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};
use serde_json::Value;

/// A server behind a Service that only `friend` may ask, and one behind which nobody is.
const WORLD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "exec httpd -f -p 8080 -h /"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: nobody}
spec:
  selector: {app: nobody}
  ports: [{port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec:
  clusterIP: None
  selector: {app: web}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: 8080}]
"#;

fn client(name: &str) -> String {
    format!(
        r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}}
"#
    )
}

/// Asks the agent of the node: status, what is said, and what is complained about.
fn ask(cluster: &Cluster, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(binary("coracle"));
    let run_dir = cluster.site.dir().join("n1-run");
    command
        .arg("net")
        .args(words)
        .env("CORACLE_RUN_DIR", run_dir);
    let output = process::run(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn expect(cluster: &Cluster, words: &[&str], status: i32, says: &[&str]) {
    wait::until(&format!("coracle net {words:?}"), PATIENCE, || {
        let (code, output, errors) = ask(cluster, words);
        let is_said = |part: &&str| output.contains(*part) || errors.contains(*part);
        match code == status && says.iter().all(is_said) {
            true => Ok(()),
            false => Err(format!("{code} instead of {status}:\n{output}\n{errors}")),
        }
    });
}

/// Whether the server answers a pod, by way of the Service.
fn reaches(kubectl: &Kubectl, pod: &str, address: &str) -> bool {
    let line =
        format!("exec {pod} -- timeout 2 wget -q -O /dev/null http://{address}:80/etc/passwd");
    kubectl.run(&line).code == 0
}

fn explain(mode: &str) {
    let mut cluster = Cluster::up(&["--proxy-mode", mode]);
    let kubectl = cluster.kubectl();
    let manifest = [WORLD, &client("friend"), &client("stranger")].concat();
    kubectl.apply(&manifest);
    for pod in ["web", "friend", "stranger"] {
        kubectl.pod_ready(pod);
    }
    let node = format!("asked of  node n1 ({mode})");
    let allowed = "allowed by default/friends spec.ingress[0]";
    let friend = ["default/friend", "svc/web"];
    expect(&cluster, &friend, 0, &[&node, allowed, "pod default/web"]);
    let stranger = ["default/stranger", "svc/default/web:80"];
    let denied = "denied: no rule of default/friends names it";
    expect(&cluster, &stranger, 3, &[denied, "It is dropped"]);
    let address = kubectl.ok("get service web -o jsonpath={.spec.clusterIP}");
    assert!(reaches(&kubectl, "friend", &address));
    assert!(!reaches(&kubectl, "stranger", &address));
    expect(
        &cluster,
        &["default/friend", "svc/nobody"],
        3,
        &["It is refused", "no endpoint"],
    );
    expect(&cluster, &["node", "svc/web"], 0, &["It arrives"]);
    let dns = ["default/friend", "svc/kube-system/kube-dns"];
    expect(
        &cluster,
        &dns,
        0,
        &["port 53/udp", "the node itself takes it"],
    );

    expect(
        &cluster,
        &["svc/web"],
        0,
        &["pod default/web, on this node", "as here"],
    );
    expect(&cluster, &["svc/peers"], 0, &["it is headless"]);
    expect(
        &cluster,
        &["default/web"],
        0,
        &["Service default/web port 80/tcp", "default/friends"],
    );
    expect(
        &cluster,
        &["netpol/friends"],
        0,
        &["pods with app=web", "pod default/friend"],
    );

    let (code, output, _) = ask(&cluster, &["default/stranger", "svc/web", "-o", "json"]);
    let answer: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        (code, &answer["verdict"]),
        (3, &"Dropped".into()),
        "{output}"
    );
    assert_eq!(
        answer["ends"][0]["ingress"]["policies"][0],
        "default/friends"
    );

    expect(&cluster, &["web"], 64, &["expected NAMESPACE/POD"]);
    expect(
        &cluster,
        &["default/friend", "default/web"],
        1,
        &["as :PORT"],
    );
    expect(
        &cluster,
        &["default/none"],
        1,
        &["kubectl get pod -n default none"],
    );
    if let Some(mut agent) = cluster.nodes[0].agent.take() {
        agent.stop();
    }
    expect(&cluster, &["svc/web"], 1, &["net.sock: does it run here"]);
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn the_node_explains_where_packets_go_over_iptables() {
    if is_root_or_skip() {
        explain("iptables");
    }
}

#[test]
fn the_node_explains_where_packets_go_over_nftables() {
    if is_root_or_skip() {
        explain("nftables");
    }
}

/// As with `coracle net ... | head -1`.
#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(binary("coracle"));
    let ended = command.arg("version").stdout(writer).output();
    let ended = ended.expect("coracle version");
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && complaint.is_empty(),
        "{ended:?}: {complaint}"
    );
}
