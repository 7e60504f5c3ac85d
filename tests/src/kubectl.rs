//! The real kubectl on a test's cluster.

use std::{path::PathBuf, process::Command, time::Duration};

use serde_json::Value;

use crate::{
    process::{run, succeed},
    site::Site,
    tool, wait,
};

/// How long ordinary things may take on a busy two-core machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl with a kubeconfig, inside a host's namespace.
#[derive(Debug, Clone)]
pub struct Kubectl {
    namespace_file: String,
    kubeconfig: PathBuf,
    cache: PathBuf,
    program: String,
}

/// How a kubectl ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Kubectl {
    /// kubectl as seen from `host`.
    pub fn new(site: &Site, host: &str, kubeconfig: PathBuf) -> Self {
        let namespace_file = format!("--net=/run/netns/{}", site.namespace(host));
        Self {
            namespace_file,
            kubeconfig,
            cache: site.subdir("kube-cache"),
            program: "kubectl".to_owned(),
        }
    }

    /// The same in another version, such as `1.29`.
    pub fn version(&self, version: &str) -> Self {
        Self {
            program: format!("kubectl-{version}"),
            ..self.clone()
        }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// The command, to be started as one likes.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(&self.namespace_file)
            .arg(tool(&self.program))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig);
        command.arg("--cache-dir").arg(&self.cache).args(args);
        command
    }

    /// Runs a line of words to its successful end; returns standard output.
    pub fn ok(&self, line: &str) -> String {
        self.ok_args(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// As [`Kubectl::ok`], for arguments with spaces.
    pub fn ok_args(&self, args: &[&str]) -> String {
        succeed(&mut self.command(args))
    }

    /// Runs a line of words to its end, however it ends.
    pub fn run(&self, line: &str) -> Outcome {
        let output = run(&mut self.command(&line.split_whitespace().collect::<Vec<_>>()));
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Applies a manifest given as text; returns what kubectl warned of.
    ///
    /// # Panics
    /// If it is refused.
    pub fn apply(&self, manifest: &str) -> String {
        let applied = self.apply_text(&["apply"], manifest);
        assert_eq!(applied.code, 0, "{manifest}: {applied:?}");
        applied.stderr
    }

    /// Applies a manifest given as text; returns how it ended.
    pub fn apply_text(&self, verb: &[&str], manifest: &str) -> Outcome {
        let path = self
            .cache
            .join(format!("manifest-{:x}.yaml", crc(manifest)));
        std::fs::write(&path, manifest).expect("write the manifest");
        let mut args = verb.to_vec();
        let path = path.to_string_lossy().into_owned();
        args.extend(["-f", &path]);
        let output = run(&mut self.command(&args));
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// `get ... -o json`.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {line} -o json"))).expect("kubectl prints JSON")
    }

    /// Names of the objects that `get LINE` finds.
    pub fn names(&self, line: &str) -> Vec<String> {
        let names = self.ok(&format!(
            "get {line} -o jsonpath={{.items[*].metadata.name}}"
        ));
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// Waits until the Deployment is rolled out.
    pub fn rolled_out(&self, deployment: &str) {
        self.ok(&format!(
            "rollout status deployment/{deployment} --timeout=90s"
        ));
    }

    /// Waits until a pod is Ready.
    pub fn pod_ready(&self, pod: &str) {
        self.ok(&format!(
            "wait --for=condition=Ready pod/{pod} --timeout=60s"
        ));
    }

    /// Waits until `get LINE` finds exactly `count` objects.
    pub fn count_is(&self, line: &str, count: usize) -> Vec<String> {
        wait::until(&format!("{count} of {line}"), PATIENCE, || {
            let names = self.names(line);
            if names.len() == count {
                Ok(names)
            } else {
                Err(names)
            }
        })
    }
}

/// Tells manifests apart in file names.
fn crc(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
