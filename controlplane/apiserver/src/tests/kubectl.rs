//! The real kubectl against a server that listens.

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use crate::testing::Listening;

/// kubectl and a directory for what it keeps.
pub(super) struct Kubectl {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Kubectl {
    /// `None` (said aloud) where there is none: `make deps` installs it.
    pub(super) fn of(listening: &Listening) -> Option<Self> {
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

    pub(super) fn command(&self, line: &str) -> Command {
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
    pub(super) async fn run(self: &Arc<Self>, line: &str) -> Result<String, String> {
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

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}

/// Runs a line that ends well; its output.
pub(super) async fn ok(kubectl: &Arc<Kubectl>, line: &str) -> String {
    let ran = kubectl.run(line).await;
    ran.unwrap_or_else(|error| panic!("kubectl {line}: {error}"))
}

/// The words of a table's heads and of its first row.
pub(super) fn words(table: &str) -> (Vec<&str>, Vec<&str>) {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect());
    (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    )
}
