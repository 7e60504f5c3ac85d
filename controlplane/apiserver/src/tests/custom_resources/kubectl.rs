//! The real kubectl on a kind that came at run time.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use serde_json::json;

use super::{served, widgets, within};
use crate::{
    custom_resources,
    testing::{self, Listening},
};

/// kubectl and a directory for what it keeps.
struct Kubectl {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Kubectl {
    /// `None` (said aloud) where there is none: `make deps` installs it.
    fn of(listening: &Listening) -> Option<Self> {
        let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        let program = std::env::var_os("CORACLE_TOOLS")
            .map_or(target, PathBuf::from)
            .join("kubectl");
        if !program.exists() {
            assert!(
                std::env::var_os("REQUIRE_ROOT").is_none(),
                "{} is missing",
                program.display()
            );
            eprintln!("skipped: no {}", program.display());
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let url = format!("https://{}", listening.address);
        let text = listening.server.state.config.pki.admin_kubeconfig(&url);
        std::fs::write(dir.path().join("kubeconfig"), text).unwrap();
        Some(Self { program, dir })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        let at = |name: &str| self.dir.path().join(name);
        command
            .arg("--kubeconfig")
            .arg(at("kubeconfig"))
            .arg("--cache-dir")
            .arg(at("cache"));
        command
            .args(line.split_whitespace())
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path());
        command
    }

    /// Runs a line of words; its standard output if it ends well, else what it complains of.
    async fn run(self: &Arc<Self>, line: &str) -> Result<String, String> {
        let mut command = self.command(line);
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output {
            status,
            stdout,
            stderr,
        } = run.await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if status.success() {
            Ok(text(stdout))
        } else {
            Err(text(stderr))
        }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}

fn manifest(size: u32, more: &str) -> String {
    format!(
        "apiVersion: example.org/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: {size}\n{more}"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_uses_a_kind_that_came_at_run_time() {
    let (server, _admin) = served().await;
    let listening = testing::listen(Arc::clone(&server)).await;
    let Some(kubectl) = Kubectl::of(&listening).map(Arc::new) else {
        return;
    };
    let ok = async |line: &str| {
        kubectl
            .run(line)
            .await
            .unwrap_or_else(|error| panic!("kubectl {line}: {error}"))
    };

    kubectl.write("a.yaml", &manifest(1, ""));
    assert_eq!(
        ok("create -f a.yaml").await,
        "widget.example.org/a created\n"
    );
    let table = ok("get wd").await;
    let words: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        (&words[0], &words[1][..2]),
        (&vec!["NAME", "SIZE", "AGE"], &["a", "1"][..]),
        "{table}"
    );

    let mut watching = kubectl
        .command("get widgets -w -o name")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let (send, mut watched) = tokio::sync::mpsc::unbounded_channel();
    let forward = tokio::task::spawn_blocking(move || {
        lines.for_each(|line| send.send(line).unwrap_or_default())
    });
    assert_eq!(
        within(watched.recv()).await.unwrap(),
        "widget.example.org/a"
    );

    kubectl.write("a.yaml", &manifest(2, "  mode: slow\n"));
    assert_eq!(
        ok("apply -f a.yaml").await,
        "widget.example.org/a configured\n"
    );
    assert_eq!(
        within(watched.recv()).await.unwrap(),
        "widget.example.org/a"
    );
    watching.kill().unwrap();
    watching.wait().unwrap();
    forward.await.unwrap();
    assert_eq!(
        ok("apply -f a.yaml").await,
        "widget.example.org/a unchanged\n"
    );
    assert_eq!(
        ok("apply --server-side --force-conflicts -f a.yaml").await,
        "widget.example.org/a serverside-applied\n"
    );
    assert_eq!(
        ok("get widget a -o jsonpath={.spec}").await,
        r#"{"mode":"slow","size":2}"#
    );
    assert!(
        ok("explain widgets.spec.size")
            .await
            .contains("How large it is.")
    );
    custom_resources::serve(
        &server.state,
        widgets(json!({"colour": {"type": "string"}})),
    )
    .await
    .unwrap();
    kubectl.write("a.yaml", &manifest(2, "  mode: slow\n  colour: red\n"));
    assert_eq!(
        ok("apply -f a.yaml").await,
        "widget.example.org/a configured\n"
    );
    assert!(ok("explain widgets.spec").await.contains("colour"));
    assert_eq!(
        ok("delete widget a").await,
        "widget.example.org \"a\" deleted from default namespace\n"
    );
    custom_resources::withdraw(&server.state, "example.org", "widgets").await;
    let gone = kubectl.run("get widgets").await.unwrap_err();
    assert!(gone.contains("the server"), "{gone}");
}
