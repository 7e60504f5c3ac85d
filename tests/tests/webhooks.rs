//! Admission webhooks as users have them: a program in a pod, behind a Service, reached by a server
//! that has no way to pods but through their node.

use std::{fs, process::Command};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait, workspace,
};
use serde_json::json;

const IMAGE: &str = "busybox";
/// What programs of this machine need besides themselves.
const LIBRARIES: &str = "/lib/x86_64-linux-gnu";

/// A certificate for the Service, which is its own authority, as `openssl req -x509` makes it.
fn certificate(directory: &std::path::Path) -> (String, String) {
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args([
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=sidecar-injector.webhook.svc",
        ])
        .args(["-addext", "subjectAltName=DNS:sidecar-injector.webhook.svc"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let read = |path| fs::read_to_string(path).expect("written");
    (read(certificate), read(key))
}

/// `examples/webhook/sidecar-injector.yaml`, with the program of the tests in the place of an
/// image's.
fn install(kubectl: &Kubectl, directory: &std::path::Path) {
    let (certificate, key) = certificate(directory);
    kubectl.ok("create namespace webhook");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "sidecar-injector", "namespace": "webhook"},
        "stringData": {"tls.crt": certificate, "tls.key": key}});
    kubectl.apply(&secret.to_string());
    let program = binary("webhook");
    let (folder, name) = (program.parent().expect("a folder"), "webhook");
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let host = |name: &str, path: &str| json!({"name": name, "hostPath": {"path": path}});
    let command = [
        "/libraries/ld-linux-x86-64.so.2",
        "--library-path",
        "/libraries",
    ];
    let args = [
        &format!("/program/{name}"),
        "0.0.0.0:8443",
        "/tls/tls.crt",
        "/tls/tls.key",
    ];
    let container = json!({"name": "webhook", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": command, "args": args, "ports": [{"containerPort": 8443}],
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        "volumeMounts": [mount("libraries", "/libraries"), mount("program", "/program"), mount("tls", "/tls")]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container], "volumes": [
        host("libraries", LIBRARIES), host("program", &folder.to_string_lossy()),
        {"name": "tls", "secret": {"secretName": "sidecar-injector"}}]}}}});
    let example = fs::read_to_string(workspace().join("examples/webhook/sidecar-injector.yaml"));
    let bundle = BASE64_STANDARD.encode(certificate_of(kubectl));
    let example = example.expect("the example").replace("CA_BUNDLE", &bundle);
    kubectl.apply(&example);
    kubectl.ok_args(&[
        "-n",
        "webhook",
        "patch",
        "deployment",
        "sidecar-injector",
        "--type=strategic",
        "-p",
        &patch.to_string(),
    ]);
    kubectl.ok("-n webhook rollout status deployment/sidecar-injector --timeout=90s");
}

fn certificate_of(kubectl: &Kubectl) -> Vec<u8> {
    let encoded =
        kubectl.ok("-n webhook get secret sidecar-injector -o jsonpath={.data.tls\\.crt}");
    BASE64_STANDARD.decode(encoded.trim()).expect("base64")
}

fn pod(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: meshed, labels: {labels}}}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, \
         command: [sleep, \"3600\"]}}\n"
    )
}

#[test]
fn a_sidecar_comes_into_pods_and_labels_are_asked_for() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::server_and_nodes(1, &[]);
    let kubectl = cluster.kubectl();
    let directory = tempfile::tempdir().expect("a directory");
    install(&kubectl, directory.path());
    kubectl.apply(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: meshed, labels: {mesh: \"on\"}}\n",
    );
    wait::until("the sidecar is injected", PATIENCE, || {
        let made = kubectl.apply_text(
            &[
                "create",
                "--dry-run=server",
                "-o",
                "jsonpath={.spec.containers[*].name}",
            ],
            &pod("try", "{team: a}"),
        );
        if made.code == 0 && made.stdout.trim() == "main sidecar" {
            Ok(())
        } else {
            Err(format!("{made:?}"))
        }
    });
    the_pod_runs_with_it(&kubectl);
    who_does_not_say_is_refused(&kubectl);
    a_webhook_that_is_gone_counts_as_its_policy_says(&kubectl);
}

fn the_pod_runs_with_it(kubectl: &Kubectl) {
    kubectl.apply(&pod("one", "{team: a}"));
    kubectl.ok("-n meshed wait --for=condition=Ready pod/one --timeout=60s");
    let said = kubectl.ok("-n meshed logs one -c sidecar");
    assert_eq!(said.trim(), "beside");
    // Elsewhere nobody is asked.
    kubectl.apply(&pod("other", "{team: a}").replace("meshed", "default"));
    let names = kubectl.ok("get pod other -o jsonpath={.spec.containers[*].name}");
    assert_eq!(names.trim(), "main");
}

fn who_does_not_say_is_refused(kubectl: &Kubectl) {
    let refused = kubectl.apply_text(&["create"], &pod("two", "{}"));
    let message = "admission webhook \"labels.sidecar-injector.example.org\" denied the request: a label \"team\" must say whose it is";
    assert!(
        refused.code != 0 && refused.stderr.contains(message),
        "{refused:?}"
    );
    let refused = kubectl.run("-n meshed label pod one team-");
    assert!(
        refused.code != 0 && refused.stderr.contains(message),
        "{refused:?}"
    );
}

fn a_webhook_that_is_gone_counts_as_its_policy_says(kubectl: &Kubectl) {
    kubectl.ok("-n webhook scale deployment sidecar-injector --replicas=0");
    wait::until("it is gone", PATIENCE, || {
        let refused = kubectl.apply_text(&["create"], &pod("three", "{team: a}"));
        let message = "failed calling webhook \"inject.sidecar-injector.example.org\": failed to call webhook: Post \
                       \"https://sidecar-injector.webhook.svc:443/inject?timeout=5s\": ";
        let is_told = refused.code != 0
            && refused.stderr.contains(message)
            && refused
                .stderr
                .contains("no endpoints available for service \"sidecar-injector\"");
        if is_told {
            Ok(())
        } else {
            let _ = kubectl.run("-n meshed delete pod three --wait=false");
            Err(format!("{refused:?}"))
        }
    });
    kubectl.ok("create configmap nobody-is-held-up");
    let webhooks = "patch mutatingwebhookconfiguration sidecar-injector --type=json -p";
    let ignore = r#"[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
    let args: Vec<&str> = webhooks.split(' ').chain([ignore]).collect();
    kubectl.ok_args(&args);
    kubectl.ok("delete validatingwebhookconfiguration sidecar-injector");
    wait::until("it is done without", PATIENCE, || {
        let made = kubectl.apply_text(&["create"], &pod("four", "{}"));
        if made.code == 0 {
            Ok(())
        } else {
            Err(format!("{made:?}"))
        }
    });
    let names = kubectl.ok("-n meshed get pod four -o jsonpath={.spec.containers[*].name}");
    assert_eq!(names.trim(), "main");
}
