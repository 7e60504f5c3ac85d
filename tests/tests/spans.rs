//! What `coracle up` tells of its spans: the whole way of one pod, from its POST to its end.

use std::{collections::BTreeSet, fs};

use coracle_tests::{cluster::Cluster, is_root_or_skip, kubectl::PATIENCE, spans, wait};

/// Every span that a pod passes from its POST to its end, with what is around it and whose request
/// it is or is within.
const WAY: [(&str, Option<&str>); 21] = [
    ("KubernetesAPI", Some("create pods")),
    ("KubernetesAPI/admission", Some("create pods")),
    ("KubernetesAPI/commit", Some("create pods")),
    ("Scheduling", None),
    ("Binding", None),
    ("Binding/KubernetesAPI", Some("create pods/binding")),
    ("Binding/KubernetesAPI/commit", Some("create pods/binding")),
    ("syncPod", None),
    ("syncPod/volumes", None),
    ("syncPod/EnsureImageExists", None),
    ("syncPod/RunPodSandbox", None),
    ("syncPod/RunPodSandbox/cgroup", None),
    ("syncPod/RunPodSandbox/shim", None),
    ("syncPod/RunPodSandbox/network", None),
    ("syncPod/CreateContainer", None),
    ("syncPod/StartContainer", None),
    ("probe", None),
    ("PatchPodStatus", None),
    ("PatchPodStatus/KubernetesAPI", Some("patch pods/status")),
    (
        "PatchPodStatus/KubernetesAPI/commit",
        Some("patch pods/status"),
    ),
    ("syncTerminatingPod", None),
];

const POD: &str = r#"{
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "traced"},
    "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
        "name": "c", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "1000000"], "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}
    }]}
}"#;

#[test]
fn a_pods_way_is_told_from_its_request_to_its_end() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&["-v", "--log-format", "json"]);
    let kubectl = cluster.kubectl();
    let manifest = cluster.site.dir().join("traced.json");
    fs::write(&manifest, POD).expect("write the manifest");
    kubectl.ok(&format!("apply -f {}", manifest.display()));
    kubectl.ok("wait --for=condition=Ready pod/traced --timeout=60s");
    kubectl.ok("delete pod traced");
    // Some close after the answers that kubectl waits for.
    wait::until("the pod's way is told", PATIENCE, || {
        let log = cluster.nodes[0].agent.as_ref().expect("it runs").output();
        let spans = spans::closed(&log);
        let of_pod = spans.iter().filter(|span| match span.request() {
            Some(request) => {
                request == "create pods" || span.text("object") == Some("default/traced")
            }
            None => span.text("pod") == Some("default/traced"),
        });
        let told: BTreeSet<_> = of_pod.map(|span| (span.path(), span.request())).collect();
        let wanted = WAY.map(|(path, request)| (path.to_owned(), request.map(str::to_owned)));
        let missing: Vec<_> = wanted
            .into_iter()
            .filter(|stage| !told.contains(stage))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err((missing, told))
        }
    });
}
