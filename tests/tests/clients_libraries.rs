//! Client libraries: Python's `kubernetes` and Rust's `kube`, each as a program of its own on a
//! cluster of the real binaries. Tables go to `target/clients/`.

use std::{path::Path, process::Command, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    matrix::{self, Row},
    process::run,
    session::Stage,
    tool, workspace,
};

#[test]
fn python_and_rust_libraries_pass() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&[]);
    let python = cluster.stage("python", "Python kubernetes 37", "37.0", &[]);
    let rust = cluster.stage("rust", "Rust kube 5", "5.0", &[]);
    let (python_rows, rust_rows) = std::thread::scope(|scope| {
        let python = scope.spawn(|| {
            let mut command = within(&python, Path::new("/usr/bin/python3"));
            command.arg(workspace().join("tests/clients/python/client.py"));
            rows(
                &python.client,
                command.env("PYTHONPATH", tool("python-kubernetes")),
            )
        });
        let rust = scope.spawn(|| {
            rows(
                &rust.client,
                &mut within(&rust, Path::new(env!("CARGO_BIN_EXE_kube_client"))),
            )
        });
        (
            python.join().expect("it does not panic"),
            rust.join().expect("it does not panic"),
        )
    });
    let published = std::panic::catch_unwind(|| matrix::publish("python", &python_rows));
    matrix::publish("rust", &rust_rows);
    published.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A program inside the cluster's network, with nothing of this machine's proxies.
fn within(stage: &Stage, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", stage.within))
        .args(["timeout", "300"])
        .arg(program)
        .current_dir(&stage.dir);
    command
        .envs(stage.environment.iter().cloned())
        .env("HOME", &stage.dir);
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(name);
    }
    command
}

/// Runs a program that prints rows: `pass` or `fail`, the row's name, and what there is to say.
fn rows(client: &str, command: &mut Command) -> Vec<Row> {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<Row> = said.lines().filter_map(|line| row(client, line)).collect();
    if !output.status.success() {
        let why = format!(
            "{:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        rows.push(Row {
            command: "the program".to_owned(),
            client: client.to_owned(),
            result: Err(why),
            took: Duration::ZERO,
        });
    }
    rows
}

fn row(client: &str, line: &str) -> Option<Row> {
    let mut parts = line.splitn(3, '\t');
    let (verdict, command, said) = (
        parts.next()?,
        parts.next()?,
        parts.next().unwrap_or_default(),
    );
    let result = match verdict {
        "pass" if said.is_empty() => Ok("pass".to_owned()),
        "pass" => Ok(format!("pass; {said}")),
        _ => Err(serde_json::from_str(said).unwrap_or_else(|_| said.to_owned())),
    };
    Some(Row {
        command: command.to_owned(),
        client: client.to_owned(),
        result,
        took: Duration::ZERO,
    })
}
