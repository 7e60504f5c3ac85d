//! A kind of two versions that a webhook turns into one another, on a cluster of the real binaries:
//! kubectl, new and old, reads and writes both; the webhook goes and comes, and the server is
//! killed while it waits for it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::{Process, succeed},
    wait,
};
use serde_json::{Value, json};

const GROUP: &str = "conversion.example.org";
const PORT: &str = "9443";
const ADDRESS: &str = "198.18.0.1";
const PYTHON: &str = "/usr/bin/python3";
/// Besides the newest.
const OLDER: [&str; 2] = ["1.35", "1.29"];

#[test]
fn an_operators_webhook_converts_versions() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(0, &[]);
    let files = Files::of(&cluster);
    let webhook = files.start(&cluster, "0");
    let kubectl = cluster.kubectl();
    kubectl.apply(&definition(&files).to_string());
    kubectl.ok(&format!(
        "wait --for=condition=established --timeout=30s crd/ends.{GROUP}"
    ));
    both_versions_are_read_and_written(&kubectl);
    for version in OLDER {
        both_versions_are_read_and_written(&kubectl.version(version));
    }
    a_webhook_that_is_down_is_in_nobodys_way(&cluster, &kubectl, webhook, &files);
    a_server_that_is_killed_asks_again(&mut cluster, &files);
}

/// What the webhook is made of.
struct Files {
    script: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    dir: PathBuf,
}

impl Files {
    fn of(cluster: &Cluster) -> Self {
        let dir = cluster.site.subdir("converter");
        let script = "tests/tests/conversion/converter.py";
        let files = Self {
            script: coracle_tests::workspace().join(script),
            certificate: dir.join("tls.crt"),
            key: dir.join("tls.key"),
            dir,
        };
        let name = format!("subjectAltName=IP:{ADDRESS}");
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt"]);
        command.args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]);
        command.args(["-subj", "/CN=converter", "-addext", &name, "-keyout"]);
        command.arg(&files.key).arg("-out").arg(&files.certificate);
        succeed(&mut command);
        files
    }

    /// One that takes so many seconds for an answer.
    fn start(&self, cluster: &Cluster, seconds: &str) -> Process {
        let mut command = cluster.site.command(&cluster.server_host, PYTHON);
        command.arg(&self.script).args([ADDRESS, PORT]);
        command.arg(&self.certificate).arg(&self.key).arg(seconds);
        // A log of its own.
        let runs = std::fs::read_dir(&self.dir).map_or(0, Iterator::count);
        let webhook = Process::start(command, &self.dir.join(format!("run-{runs}.log")));
        wait::until("the webhook listens", PATIENCE, || {
            let said = webhook.output();
            said.contains("listening").then_some(()).ok_or(said)
        });
        webhook
    }
}

fn definition(files: &Files) -> Value {
    let version = |name: &str, fields: &[&str]| {
        let texts = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!({"type": "string"})));
        let spec = json!({"type": "object", "required": fields,
            "properties": texts.collect::<serde_json::Map<_, _>>()});
        json!({"name": name, "served": true, "storage": name == "v1",
            "additionalPrinterColumns": [{"name": "To", "type": "string",
                "jsonPath": format!(".spec.{}", fields[0])}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("ends.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "ends", "kind": "End"},
            "versions": [version("v1", &["hostPort"]), version("v2", &["host", "port"])],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{ADDRESS}:{PORT}/convert"),
                    "caBundle": encoded(&files.certificate)}}}},
    })
}

fn encoded(file: &Path) -> String {
    let mut command = Command::new("base64");
    succeed(command.arg("-w0").arg(file))
}

fn end(version: &str, spec: Value) -> String {
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "End", "metadata": {"name": "a"},
        "spec": spec})
    .to_string()
}

fn both_versions_are_read_and_written(kubectl: &Kubectl) {
    let of = |version: &str, path: &str| {
        kubectl.ok(&format!(
            "get ends.{version}.{GROUP} a -o jsonpath={{.spec.{path}}}"
        ))
    };
    kubectl.apply(&end("v1", json!({"hostPort": "h:1"})));
    assert_eq!(
        (of("v2", "host"), of("v2", "port")),
        ("h".to_owned(), "1".to_owned())
    );
    kubectl.apply(&end("v2", json!({"host": "g", "port": "2"})));
    assert_eq!(of("v1", "hostPort"), "g:2");
    let server_side = ["apply", "--server-side", "--force-conflicts"];
    let applied = kubectl.apply_text(&server_side, &end("v2", json!({"host": "f", "port": "3"})));
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(of("v1", "hostPort"), "f:3");
    let table = kubectl.ok(&format!("get ends.v2.{GROUP}"));
    assert!(table.contains('f') && !table.contains("f:3"), "{table}");
    // It watches.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            kubectl.ok(&format!(
                "wait --for=jsonpath={{.spec.port}}=4 --timeout=30s ends.v2.{GROUP}/a"
            ))
        });
        kubectl.apply(&end("v1", json!({"hostPort": "f:4"})));
        waiting.join().expect("it comes");
    });
    kubectl.ok(&format!("delete ends.v2.{GROUP} a"));
}

fn a_webhook_that_is_down_is_in_nobodys_way(
    cluster: &Cluster,
    kubectl: &Kubectl,
    mut webhook: Process,
    files: &Files,
) {
    kubectl.ok("create namespace passing");
    let mut passing: Value =
        serde_json::from_str(&end("v1", json!({"hostPort": "h:1"}))).expect("JSON");
    passing["metadata"]["namespace"] = "passing".into();
    kubectl.apply(&passing.to_string());
    kubectl.apply(&end("v1", json!({"hostPort": "h:1"})));
    webhook.kill();
    let refused = kubectl.run(&format!("get ends.v2.{GROUP}"));
    let told = format!("conversion webhook for {GROUP}/v1, Kind=End failed: Post");
    assert!(
        refused.code != 0 && refused.stderr.contains(&told),
        "{refused:?}"
    );
    kubectl.ok(&format!("get ends.v1.{GROUP} a"));
    kubectl.apply(&end("v1", json!({"hostPort": "h:2"})));
    kubectl.ok("delete namespace passing --timeout=60s");
    let _again = files.start(cluster, "0");
    let port = kubectl.ok(&format!("get ends.v2.{GROUP} a -o jsonpath={{.spec.port}}"));
    assert_eq!(port, "2");
}

fn a_server_that_is_killed_asks_again(cluster: &mut Cluster, files: &Files) {
    let kubectl = cluster.kubectl();
    // What was converted already is not asked for again.
    kubectl.apply(&end("v1", json!({"hostPort": "h:3"})));
    let webhook = files.start(cluster, "3");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| kubectl.run(&format!("get ends.v2.{GROUP}")));
        wait::until("the webhook is asked", Duration::from_secs(20), || {
            let said = webhook.output();
            said.contains("asked").then_some(()).ok_or(said)
        });
        cluster.server.as_mut().expect("a server").kill();
        drop(asking.join());
    });
    cluster.start_server();
    let port = kubectl.ok(&format!("get ends.v2.{GROUP} a -o jsonpath={{.spec.port}}"));
    assert_eq!(port, "3");
    kubectl.ok(&format!("delete crd ends.{GROUP} --timeout=60s"));
}
