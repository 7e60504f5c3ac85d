//! The policies of `examples/policies` on a cluster, as users install them.

use coracle_tests::{cluster::Cluster, is_root_or_skip, kubectl::PATIENCE, wait, workspace};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {sidecar: LABEL}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: docker.io/library/busybox:latest
    imagePullPolicy: IfNotPresent
    command: [sleep, infinity]
    securityContext: {privileged: PRIVILEGED}
";

fn pod(name: &str, sidecar: &str, is_privileged: bool) -> String {
    POD.replace("NAME", name)
        .replace("LABEL", sidecar)
        .replace("PRIVILEGED", &is_privileged.to_string())
}

#[test]
fn policies_of_the_examples_hold_on_a_cluster() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    let examples = workspace().join("examples/policies");
    kubectl.ok(&format!("apply -f {}", examples.display()));
    let privileged = pod("root", "none", true);
    let refused = wait::until("a privileged pod is refused", PATIENCE, || {
        let tried = kubectl.apply_text(&["create", "--dry-run=server"], &privileged);
        match tried.code {
            0 => Err("it is not"),
            _ => Ok(tried.stderr),
        }
    });
    let why = "denied request: privileged containers are not allowed: c";
    assert!(refused.contains(why), "{refused}");
    wait::until("a sidecar is added", PATIENCE, || {
        let tried = kubectl.apply_text(
            &["create", "--dry-run=server", "-o", "yaml"],
            &pod("meshed", "wanted", false),
        );
        match tried.stdout.contains("sidecar-added") {
            true => Ok(()),
            false => Err(tried.stdout + &tried.stderr),
        }
    });
    kubectl.apply(&pod("meshed", "wanted", false));
    kubectl.pod_ready("meshed");
    let names = "get pod meshed -o jsonpath={.metadata.labels.sidecar-added}/{.spec.initContainers[0].name}";
    assert_eq!(kubectl.ok(names).trim(), "yes/sidecar");
    kubectl.ok("create configmap required-labels --from-literal=team=");
    let deployment =
        "create deployment web --image=docker.io/library/nginx:latest --dry-run=server";
    let refused = kubectl.run(deployment);
    assert!(
        refused
            .stderr
            .contains("denied request: labels are missing: team"),
        "{}",
        refused.stderr
    );
    kubectl.ok("delete configmap required-labels");
    kubectl.ok(deployment);
}
