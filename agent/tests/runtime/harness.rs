//! A runtime of a test's own on its own ground, with busybox for an image.

#[path = "harness/residue.rs"]
mod residue;
#[path = "harness/stand_ins.rs"]
mod stand_ins;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use coracle_agent::runtime::*;
use coracle_ground::{Ground, is_root_or_skip};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub(crate) use stand_ins::{NoNetwork, OneImage};

/// Longest any step of a test takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A runtime with its directories.
pub(crate) struct Node {
    pub(crate) dir: Ground,
    pub(crate) runtime: Option<Arc<LocalRuntime>>,
    pub(crate) network: Arc<NoNetwork>,
    pub(crate) cgroup: String,
    image: ImageConfig,
    pods: AtomicU32,
}

/// `None`: not root, and that is allowed.
pub(crate) async fn node() -> Option<Node> {
    node_with(ImageConfig::default()).await
}

pub(crate) async fn node_with(image: ImageConfig) -> Option<Node> {
    if !is_root_or_skip() {
        return None;
    }
    let dir = Ground::new();
    lay_busybox(&dir.path().join("layer"));
    let cgroup = format!("/{}", dir.name());
    let mut node = Node {
        dir,
        runtime: None,
        network: Arc::default(),
        cgroup,
        image,
        pods: AtomicU32::new(0),
    };
    node.start().await;
    Some(node)
}

fn lay_busybox(layer: &Path) {
    for directory in ["bin", "etc", "tmp", "root"] {
        fs::create_dir_all(layer.join(directory)).unwrap();
    }
    fs::copy("/bin/busybox", layer.join("bin/busybox")).expect("Debian package busybox-static");
    for applet in [
        "sh", "cat", "echo", "sleep", "id", "ls", "stty", "head", "yes", "kill", "ps", "env",
        "pwd", "dd", "mknod", "hostname", "readlink", "touch", "tail", "grep", "ip", "unshare",
        "wc", "seq", "mount", "true", "setsid", "nc", "mkdir", "umount",
    ] {
        std::os::unix::fs::symlink("busybox", layer.join("bin").join(applet)).unwrap();
    }
    fs::write(
        layer.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000:web:/tmp:/bin/sh\n",
    )
    .unwrap();
    fs::write(
        layer.join("etc/group"),
        "root:x:0:\nweb:x:1000:\nextra:x:2000:web\n",
    )
    .unwrap();
}

/// Beside the test's own executable, or as `CORACLE_SHIM` says.
pub(crate) fn shim_path() -> PathBuf {
    let path = std::env::var_os("CORACLE_SHIM").map_or_else(
        || {
            std::env::current_exe()
                .unwrap()
                .parent()
                .unwrap()
                .parent()
                .unwrap()
                .join("coracle-shim")
        },
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: cargo build -p coracle-shim",
        path.display()
    );
    path
}

impl Node {
    pub(crate) fn layer(&self) -> PathBuf {
        self.dir.path().join("layer")
    }

    /// Starts an agent's runtime over what is there.
    pub(crate) async fn start(&mut self) {
        let config = RuntimeConfig {
            run_dir: self.dir.path().join("run"),
            root_dir: self.dir.path().join("root"),
            shim_path: shim_path(),
            network: self.network.clone(),
            images: Arc::new(OneImage {
                layers: vec![self.layer()],
                config: self.image.clone(),
            }),
            own_pods: self.own_pods(),
        };
        self.runtime = Some(LocalRuntime::start(config).await.unwrap());
    }

    /// All that there have been.
    fn own_pods(&self) -> OwnPods {
        let numbers = 0..self.pods.load(Ordering::Relaxed);
        OwnPods {
            cgroup_root: self.cgroup.clone(),
            uids: numbers.map(|n| PodUid(format!("uid-{n}"))).collect(),
        }
    }

    /// Drops the agent's side as SIGKILL does: no goodbye.
    pub(crate) fn crash(&mut self) {
        self.runtime = None;
    }

    pub(crate) fn runtime(&self) -> &LocalRuntime {
        self.runtime.as_ref().unwrap()
    }

    pub(crate) fn sandbox(&self) -> SandboxConfig {
        let number = self.pods.fetch_add(1, Ordering::Relaxed);
        let uid = format!("uid-{number}");
        SandboxConfig {
            pod: PodRef {
                namespace: "default".into(),
                name: format!("pod-{number}"),
                uid: PodUid(uid.clone()),
            },
            attempt: 0,
            hostname: format!("pod-{number}"),
            host_network: false,
            host_pid: false,
            host_ipc: false,
            share_process_namespace: false,
            user_namespace: false,
            runtime_handler: String::new(),
            port_mappings: vec![],
            dns: Default::default(),
            cgroup_parent: format!("{}/pod{uid}", self.cgroup),
            resources: Resources::default(),
            sysctls: Default::default(),
            log_directory: self.dir.path().join("logs").join(uid),
            labels: Default::default(),
            annotations: Default::default(),
        }
    }

    /// A sandbox with one running container.
    pub(crate) async fn run(&self, config: &ContainerConfig) -> (SandboxId, ContainerId) {
        self.run_in(&self.sandbox(), config).await
    }

    pub(crate) async fn run_in(
        &self,
        sandbox: &SandboxConfig,
        config: &ContainerConfig,
    ) -> (SandboxId, ContainerId) {
        let sandbox = self.runtime().run_pod_sandbox(sandbox).await.unwrap();
        let container = self
            .runtime()
            .create_container(&sandbox.id, config)
            .await
            .unwrap();
        self.runtime().start_container(&container).await.unwrap();
        (sandbox.id, container)
    }

    /// Runs a command to its end; `(exit code, log)`.
    pub(crate) async fn output(&self, config: &ContainerConfig) -> (i32, String) {
        let (_, container) = self.run(config).await;
        let (exit_code, _) = self.exited(&container).await;
        (exit_code, self.log(&container).await)
    }

    pub(crate) async fn status(&self, id: &ContainerId) -> ContainerStatus {
        let all = self.runtime().list_containers().await.unwrap();
        all.into_iter()
            .find(|container| &container.id == id)
            .expect("listed")
    }

    /// Waits for its end; `(exit code, reason)`.
    pub(crate) async fn exited(&self, id: &ContainerId) -> (i32, String) {
        let mut events = self.runtime().subscribe();
        let wait = async {
            loop {
                if let ContainerState::Exited {
                    exit_code, reason, ..
                } = self.status(id).await.state
                {
                    return (exit_code, reason);
                }
                let _ = events.recv().await;
            }
        };
        tokio::time::timeout(LIMIT, wait)
            .await
            .expect("container ends")
    }

    /// The log's text, without what CRI puts before it.
    pub(crate) async fn log(&self, id: &ContainerId) -> String {
        log_text(&self.status(id).await.log_path)
    }

    /// Waits until the log contains this.
    pub(crate) async fn logged(&self, id: &ContainerId, text: &str) {
        let path = self.status(id).await.log_path;
        eventually(&format!("log contains {text:?}"), || {
            log_text(&path).contains(text)
        })
        .await;
    }

    pub(crate) async fn exec(&self, id: &ContainerId, command: &str) -> ExecResult {
        let command = ["sh", "-c", command].map(str::to_owned);
        self.runtime().exec_sync(id, &command, LIMIT).await.unwrap()
    }

    /// Removes every sandbox, then checks that nothing is left.
    pub(crate) async fn finish(self) {
        self.remove_pods().await;
        self.assert_no_residue().await;
    }

    pub(crate) async fn remove_pods(&self) {
        let runtime = self.runtime();
        for sandbox in runtime.list_pod_sandboxes().await.unwrap() {
            runtime.stop_pod_sandbox(&sandbox.id).await.unwrap();
            runtime.remove_pod_sandbox(&sandbox.id).await.unwrap();
        }
        assert!(runtime.list_containers().await.unwrap().is_empty());
    }
}

pub(crate) fn log_text(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| {
            let mut fields = line.splitn(4, ' ');
            let (Some(time), Some(stream), Some(tag), Some(text)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                panic!("not a CRI log line: {line:?}");
            };
            assert!(
                time.ends_with('Z') && time.len() == 30 && ["stdout", "stderr"].contains(&stream),
                "{line:?}"
            );
            if tag == "F" {
                format!("{text}\n")
            } else {
                text.to_owned()
            }
        })
        .collect()
}

pub(crate) fn container(command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        name: "main".into(),
        attempt: 0,
        image: "busybox".into(),
        image_id: "busybox".into(),
        image_ref: String::new(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        args: vec![],
        env: vec![],
        working_dir: None,
        mounts: vec![],
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: Resources::default(),
        security: SecurityContext::default(),
        log_path: "main/0.log".into(),
        init: false,
        stop_signal: None,
        spec_hash: "hash".into(),
    }
}

pub(crate) fn shell(script: &str) -> ContainerConfig {
    container(&["sh", "-c", script])
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// PID of the sandbox's shim: the holder of its log.
pub(crate) fn shim_pid(node: &Node, sandbox: &SandboxId) -> i32 {
    let log = node
        .dir
        .path()
        .join("run/sandboxes")
        .join(&sandbox.0)
        .join("shim.log");
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    all.into_iter()
        .find(|pid| {
            fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|target| target == log)
                && fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|name| name.trim() == "coracle-shim")
        })
        .expect("a shim")
}

/// Starts a container, and ends its shim while no agent runs.
pub(crate) async fn shim_dies_alone(node: &mut Node) -> (SandboxId, ContainerId) {
    let (sandbox, id) = node.run(&container(&["sleep", "1000"])).await;
    let shim = shim_pid(node, &sandbox);
    node.crash();
    kill(Pid::from_raw(shim), Signal::SIGKILL).unwrap();
    eventually("it is dead", || {
        !Path::new(&format!("/proc/{shim}")).exists()
    })
    .await;
    (sandbox, id)
}

pub(crate) fn run_command(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
