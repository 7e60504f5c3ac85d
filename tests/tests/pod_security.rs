//! Pod Security as users know it, by kubectl on a cluster whose administrator has chosen a default.

use std::{fs, process::Command};

use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::run,
    wait,
};

const CONFIG: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  path: pod-security.yaml
";
const POD_SECURITY: &str = "
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults:
  enforce: baseline
exemptions:
  namespaces: [kube-system]
";
const NAMESPACES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: loose, labels: {pod-security.kubernetes.io/enforce: privileged}}
";
/// Of a pod with one container `c` without any context, to `restricted`.
const PLAIN: &str = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
    unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
    runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
    seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
const PRIVILEGED: &str =
    "privileged (container \"c\" must not set securityContext.privileged=true)";
/// What `restricted` asks for, and a user to be.
const GOOD: &str = "{runAsUser: 1000, runAsNonRoot: true, allowPrivilegeEscalation: false, \
    capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}";

fn spec(context: &str) -> String {
    format!(
        "{{terminationGracePeriodSeconds: 0, containers: [{{name: c, image: busybox, imagePullPolicy: IfNotPresent, \
         command: [sleep, \"3600\"], securityContext: {context}}}]}}"
    )
}

fn pod(namespace: &str, name: &str, context: &str) -> String {
    let spec = spec(context);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n"
    )
}

fn deployment(context: &str) -> String {
    let spec = spec(context);
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: strict}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n  \
         template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {spec}\n"
    )
}

/// Applies what is let in; what is said beside.
#[test]
fn a_namespace_keeps_pods_out_and_says_why() {
    if !is_root_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("admission.yaml");
    fs::write(&config, CONFIG).expect("written");
    fs::write(directory.path().join("pod-security.yaml"), POD_SECURITY).expect("written");
    let argument = format!("--admission-control-config-file={}", config.display());
    let cluster = Cluster::up(&[&argument]);
    let kubectl = cluster.kubectl();
    kubectl.apply(NAMESPACES);
    pods_are_refused(&kubectl);
    who_makes_them_is_warned(&kubectl);
    whoever_asks_for_more_is_told(&kubectl);
    what_is_not_understood_stops_a_server(&config);
}

fn pods_are_refused(kubectl: &Kubectl) {
    for (namespace, context, level, details) in [
        (
            "strict",
            "{privileged: true}",
            "restricted",
            format!("{PRIVILEGED}, {PLAIN}"),
        ),
        ("strict", "{}", "restricted", PLAIN.to_owned()),
        (
            "default",
            "{privileged: true}",
            "baseline",
            PRIVILEGED.to_owned(),
        ),
    ] {
        let refused = kubectl.apply_text(&["apply"], &pod(namespace, "p", context));
        let expect = format!(
            "pods \"p\" is forbidden: violates PodSecurity \"{level}:latest\": {details}\n"
        );
        let begins = "Error from server (Forbidden): error when creating \"";
        let is_said = refused.stderr.starts_with(begins) && refused.stderr.ends_with(&expect);
        assert!(refused.code == 1 && is_said, "{expect}: {refused:?}");
    }
    // The cluster's own namespace goes on as it was, and so does one that says so.
    for (namespace, name) in [("kube-system", "own"), ("loose", "b"), ("loose", "a")] {
        assert_eq!(
            kubectl.apply(&pod(namespace, name, "{privileged: true}")),
            ""
        );
    }
    kubectl.ok("wait -n kube-system --for=condition=Ready pod/own --timeout=120s");
}

fn who_makes_them_is_warned(kubectl: &Kubectl) {
    let said = kubectl.apply(&deployment("{}"));
    let would = format!("Warning: would violate PodSecurity \"restricted:latest\": {PLAIN}\n");
    assert_eq!(said, would);
    wait::until("the ReplicaSet says why it has no pods", PATIENCE, || {
        let events = kubectl.ok("get events -n strict -o jsonpath={.items[*].message}");
        let is_said = events.contains("is forbidden: violates PodSecurity \"restricted:latest\"");
        is_said.then_some(()).ok_or(events)
    });
    assert_eq!(kubectl.ok("get pods -n strict -o name"), "");
    assert_eq!(kubectl.apply(&deployment(GOOD)), "");
    kubectl.ok("rollout status -n strict deployment/web --timeout=120s");
    let pod = kubectl.ok("get pods -n strict -o name");
    let debug = format!(
        "debug -n strict {} --image=busybox --profile=sysadmin",
        pod.trim()
    );
    let refused = kubectl.run(&debug);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("violates PodSecurity \"restricted:latest\": privileged ("),
        "{refused:?}"
    );
}

fn whoever_asks_for_more_is_told(kubectl: &Kubectl) {
    let label = "label --dry-run=server --overwrite ns loose pod-security.kubernetes.io/enforce";
    let told = kubectl.run(&format!("{label}=baseline"));
    let expect = "Warning: existing pods in namespace \"loose\" violate the new PodSecurity enforce level \"baseline:latest\"\n\
        Warning: a (and 1 other pod): privileged\n";
    assert_eq!((told.code, told.stderr.as_str()), (0, expect));
    assert_eq!(told.stdout, "namespace/loose labeled (server dry run)\n");
    let labels = kubectl.ok("get ns loose -o jsonpath={.metadata.labels}");
    assert!(labels.contains("\"privileged\""), "{labels}");
    let refused = kubectl.run(&format!("{label}=strict"));
    let expect = "The Namespace \"loose\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: \
        Invalid value: \"strict\": must be one of privileged, baseline, restricted\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (1, expect));
}

fn what_is_not_understood_stops_a_server(config: &std::path::Path) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(
        config.with_file_name("pod-security.yaml"),
        POD_SECURITY.replace("baseline", "strict"),
    )
    .expect("written");
    let mut command = Command::new(binary("coracle"));
    command
        .args(["server", "--bind=127.0.0.1:0", "--data-dir"])
        .arg(directory.path());
    command.arg("--admission-control-config-file").arg(config);
    let refused = run(&mut command);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{said}");
    let expect = "defaults.enforce: Invalid value: \"strict\": must be one of privileged, baseline, restricted";
    assert!(
        said.contains("--admission-control-config-file") && said.contains(expect),
        "{said}"
    );
}
