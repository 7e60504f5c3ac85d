//! Client libraries: Python's `kubernetes` and `kopf`, Rust's `kube`, each as a program of its own
//! on a cluster of the real binaries. Tables go to `target/clients/`.

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
    let operator = cluster.stage("operator", "Python kopf 1.45", "1.45", &[]);
    let rust = cluster.stage("rust", "Rust kube 5", "5.0", &[]);
    let programs = [
        (
            "python",
            script(&python, "client.py", &["python-kubernetes"]),
        ),
        (
            "operator",
            script(
                &operator,
                "operator.py",
                &["python-kopf", "python-kubernetes"],
            ),
        ),
        (
            "rust",
            within(&rust, Path::new(env!("CARGO_BIN_EXE_kube_client"))),
        ),
    ];
    let stages = [&python, &operator, &rust];
    let played: Vec<_> = std::thread::scope(|scope| {
        let threads = programs.into_iter().zip(stages);
        let threads = threads.map(|((name, mut command), stage)| {
            (name, scope.spawn(move || rows(&stage.client, &mut command)))
        });
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter();
        ended
            .map(|(name, thread)| (name, thread.join().expect("it does not panic")))
            .collect()
    });
    // Each is told, also after one that failed.
    let published: Vec<_> = played
        .iter()
        .map(|(name, rows)| std::panic::catch_unwind(|| matrix::publish(name, rows)))
        .collect();
    if let Some(failed) = published.into_iter().find_map(Result::err) {
        std::panic::resume_unwind(failed);
    }
}

/// A program in Python with packages of its own.
fn script(stage: &Stage, name: &str, packages: &[&str]) -> Command {
    let mut command = within(stage, Path::new("/usr/bin/python3"));
    let packages = packages.iter().map(|package| tool(package));
    let path = std::env::join_paths(packages).expect("no path has a colon");
    command
        .arg(workspace().join("tests/clients/python").join(name))
        .env("PYTHONPATH", path);
    command
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
