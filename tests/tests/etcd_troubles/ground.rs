//! What each trouble is looked at with: kubectl, the server's last word, etcd past the server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use coracle_tests::{
    kubectl::{Outcome, PATIENCE},
    machines::{CLIENTS, Machines, Plan},
    process::{run, succeed},
    wait,
};
use serde_json::{Value, json};

/// Seconds that a command that cannot succeed may take.
const REFUSED: &str = "90";

pub(super) fn plan(etcd_flags: &[String]) -> Plan {
    Plan {
        machines: 1,
        etcd_flags: etcd_flags.to_vec(),
        ..Plan::default()
    }
}

/// kubectl, which waits no longer than that for an answer.
pub(super) fn said(machines: &Machines, line: &str) -> Outcome {
    machines
        .kubectl(0)
        .run(&format!("--request-timeout=15s {line}"))
}

/// A ConfigMap to be made.
pub(super) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// The first answer to an administrator who lists ConfigMaps or makes one; kubectl shows the last.
pub(super) fn answered(machines: &Machines, body: Option<&Value>) -> Value {
    let pki = machines.server_data(0).join("server/pki");
    let file = |name: &str| pki.join(name).display().to_string();
    let mut command = machines.site.command(CLIENTS, "curl");
    command.args(["-sS", "--noproxy", "*", "--max-time", "60"]);
    command.args(["--cacert", &file("ca.crt")]);
    command.args(["--cert", &file("admin.crt"), "--key", &file("admin.key")]);
    if let Some(body) = body {
        command.args(["-H", "Content-Type: application/json"]);
        command.args(["-d", &body.to_string()]);
    }
    command.arg("https://198.18.0.1:6443/api/v1/namespaces/default/configmaps");
    let answer = succeed(&mut command);
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Makes an object, as soon as that can be done again.
pub(super) fn make(machines: &Machines, name: &str) {
    wait::until(&format!("{name} is made"), PATIENCE, || {
        let outcome = said(machines, &format!("create configmap {name}"));
        let is_made = outcome.code == 0 || outcome.stderr.contains("already exists");
        if is_made { Ok(()) } else { Err(outcome) }
    });
}

/// What a user reads: one line, with this in it.
pub(super) fn is_sentence(outcome: &Outcome, expected: &str) {
    let lines: Vec<&str> = outcome
        .stderr
        .lines()
        .filter(|line| !line.is_empty())
        .collect();
    eprintln!("{}", outcome.stderr.trim_end());
    assert!(
        outcome.code != 0 && lines.len() == 1 && lines[0].contains(expected),
        "{outcome:?}"
    );
}

/// Names of the objects that the test made.
pub(super) fn names(machines: &Machines) -> Vec<String> {
    let all = wait::until("objects are listed", PATIENCE, || {
        let outcome = said(
            machines,
            "get configmaps -o jsonpath={.items[*].metadata.name}",
        );
        if outcome.code == 0 {
            Ok(outcome.stdout)
        } else {
            Err(outcome)
        }
    });
    let mut names: Vec<String> = all.split_whitespace().map(str::to_owned).collect();
    names.retain(|name| name != "kube-root-ca.crt");
    names
}

/// A controller works: it puts a service account into each namespace.
pub(super) fn controllers_work(machines: &Machines, namespace: &str) {
    wait::until("the namespace is made", PATIENCE, || {
        let outcome = said(machines, &format!("create namespace {namespace}"));
        let is_made = outcome.code == 0 || outcome.stderr.contains("already exists");
        if is_made { Ok(()) } else { Err(outcome) }
    });
    wait::until("a controller works", PATIENCE, || {
        let outcome = said(
            machines,
            &format!("get serviceaccount default -n {namespace}"),
        );
        if outcome.code == 0 {
            Ok(())
        } else {
            Err(outcome)
        }
    });
}

pub(super) fn server_runs(machines: &mut Machines) {
    let server = machines.all[0].server.as_mut().expect("it was started");
    assert!(server.ended().is_none(), "{}", server.output());
}

/// How a server ends that cannot start with the files in `data`.
pub(super) fn refused(machines: &Machines, data: &Path, expected: &str) {
    let server = machines.server_command(0, data);
    let mut command = Command::new("timeout");
    command
        .arg(REFUSED)
        .arg(server.get_program())
        .args(server.get_args());
    let output = run(&mut command);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or_default();
    eprintln!("{last}");
    let is_told = last.starts_with("coracle: ") && last.contains(expected);
    assert!(
        output.status.code() == Some(1) && is_told,
        "{:?}: {stderr}",
        output.status
    );
}

/// A call of etcd's gateway: past the server.
pub(super) fn etcd(machines: &Machines, path: &str, body: &Value) -> Value {
    let url = format!("{}/v3/{path}", machines.url(0));
    let line = [
        "curl",
        "-sS",
        "--noproxy",
        "*",
        "-d",
        &body.to_string(),
        &url,
    ];
    let answer = machines.site.within(&machines.all[0].name, &line);
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
}

/// Certificates in a directory: an authority `ca`, and `server` and `client` of it.
pub(super) fn certificates(dir: &Path) -> PathBuf {
    std::fs::create_dir_all(dir).expect("make it");
    let config = dir.join("openssl.cnf");
    std::fs::write(&config, "[req]\ndistinguished_name = name\n[name]\n").expect("write it");
    for (name, is_authority) in [("ca", true), ("server", false), ("client", false)] {
        let mut command = Command::new("openssl");
        command.current_dir(dir);
        command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
        command.args([
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-config",
            "openssl.cnf",
        ]);
        command.args([
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &format!("{name}.key"),
        ]);
        command.args(["-out", &format!("{name}.pem"), "-addext"]);
        if is_authority {
            command.arg("basicConstraints=critical,CA:TRUE");
        } else {
            command.args([
                "basicConstraints=critical,CA:FALSE",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
            ]);
            command.args(["-addext", "subjectAltName=IP:198.18.0.1,IP:127.0.0.1"]);
        }
        succeed(&mut command);
    }
    dir.to_owned()
}

pub(super) fn server_flags(ca: &Path, client: &Path) -> Vec<String> {
    let flag = |name: &str, file: PathBuf| [name.to_owned(), file.display().to_string()];
    [
        flag("--etcd-cacert", ca.join("ca.pem")),
        flag("--etcd-cert", client.join("client.pem")),
        flag("--etcd-key", client.join("client.key")),
    ]
    .concat()
}
