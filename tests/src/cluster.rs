//! Clusters of the real binaries.

use std::{process::Command, time::Duration};

use nix::unistd::Pid;

use crate::{
    binary, image_archive,
    kubectl::Kubectl,
    process::{Process, succeed},
    registry::Registry,
    residue,
    session::Stage,
    site::Site,
    wait,
};

/// How long a debug build may take to be ready on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A node: its host, its directories, its agent.
#[derive(Debug)]
pub struct Node {
    /// The host's name, and the node's.
    pub name: String,
    /// The host's address.
    pub address: String,
    /// The last number of the address: names the port on the hub.
    pub last: u8,
    /// The running agent (or `coracle up`).
    pub agent: Option<Process>,
    args: Vec<String>,
}

/// A cluster; everything of it goes when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Nodes with their agents. The first is the server's own with `up`.
    pub nodes: Vec<Node>,
    /// The control plane, when it has a process of its own.
    pub server: Option<Process>,
    /// Where the nodes of a multi-node cluster pull from.
    pub registry: Option<Registry>,
    /// Where the control plane runs.
    pub server_host: String,
    server_args: Vec<String>,
    /// What the server's `--store` says, if anything, from its next start on.
    pub store: Option<String>,
    /// The ground. Dropped last.
    pub site: Site,
}

impl Cluster {
    /// `coracle up` on one host, with the test images imported.
    pub fn up(extra: &[&str]) -> Self {
        let mut site = Site::new();
        let address = site.add_host("n1", 1);
        let mut args = vec![
            "up".to_owned(),
            "--bind".to_owned(),
            format!("{address}:6443"),
        ];
        args.extend(node_args(&site, "n1", &address));
        args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        let node = Node {
            name: "n1".to_owned(),
            address,
            last: 1,
            agent: None,
            args,
        };
        let mut cluster = Self {
            nodes: vec![node],
            server: None,
            registry: None,
            server_host: "n1".to_owned(),
            server_args: Vec::new(),
            store: None,
            site,
        };
        cluster.import("n1");
        cluster.start_agent(0);
        cluster.wait_ready(1);
        cluster
    }

    /// A server and `count` nodes that join by token and pull through `registries`, all on hosts of
    /// their own.
    pub fn server_and_nodes(count: u8, server_extra: &[&str]) -> Self {
        let cluster = Self::server_and_nodes_with(count, server_extra, |_, _| Vec::new());
        cluster.wait_ready(usize::from(count));
        cluster
    }

    /// The same with more words for the agent of each node. Waits for none of them.
    pub fn server_and_nodes_with(
        count: u8,
        server_extra: &[&str],
        node_extra: impl Fn(&Site, &str) -> Vec<String>,
    ) -> Self {
        let mut site = Site::new();
        let address = site.add_host("server", 1);
        let data = site.subdir("server-data");
        let mut server_args: Vec<String> = [
            "server",
            "--bind",
            &format!("{address}:6443"),
            "--data-dir",
            &data.to_string_lossy(),
        ]
        .map(str::to_owned)
        .to_vec();
        server_args.extend(server_extra.iter().map(|arg| (*arg).to_owned()));
        let mut cluster = Self {
            nodes: Vec::new(),
            server: None,
            registry: None,
            server_host: "server".to_owned(),
            server_args,
            store: None,
            site,
        };
        cluster.start_server();
        cluster.registry = Some(Registry::start(&cluster.site, "server", &address));
        let token = cluster.token();
        for k in 1..=count {
            let name = format!("n{k}");
            let address = cluster.site.add_host(&name, k + 1);
            let mut args = [
                "agent",
                "--server",
                "https://198.18.0.1:6443",
                "--token",
                &token,
            ]
            .map(str::to_owned)
            .to_vec();
            args.extend(node_args(&cluster.site, &name, &address));
            let registries = crate::workspace().join("examples/node/registries.yaml");
            args.extend([
                "--registries".to_owned(),
                registries.to_string_lossy().into_owned(),
            ]);
            args.extend(node_extra(&cluster.site, &name));
            cluster.nodes.push(Node {
                name,
                address,
                last: k + 1,
                agent: None,
                args,
            });
            cluster.start_agent(cluster.nodes.len() - 1);
        }
        cluster
    }

    /// A join token, made by the real command.
    pub fn token(&self) -> String {
        let data = self.site.subdir("server-data");
        let mut command = self.site.command(&self.server_host, binary("coracle"));
        succeed(command.args(["token", "create", "--data-dir"]).arg(data))
            .trim()
            .to_owned()
    }

    /// Starts the server process (again).
    pub fn start_server(&mut self) {
        let mut command = self.site.command(&self.server_host, binary("coracle"));
        command.args(&self.server_args);
        command.args(self.store.iter().flat_map(|store| ["--store", store]));
        self.server = Some(Process::start(command, &self.site.dir().join("server.log")));
        self.wait_api();
    }

    /// Starts the agent of a node (again).
    pub fn start_agent(&mut self, index: usize) {
        let node = &self.nodes[index];
        let mut command = self.site.command(&node.name, binary("coracle"));
        command.args(&node.args);
        let log = self.site.dir().join(format!("{}.log", node.name));
        self.nodes[index].agent = Some(Process::start(command, &log));
    }

    fn wait_api(&self) {
        let kubectl = self.kubectl();
        wait::until("the API server is ready", START_DEADLINE, || {
            let outcome = kubectl.run("get --raw /readyz");
            if outcome.stdout == "ok" {
                Ok(())
            } else {
                Err(outcome)
            }
        });
    }

    /// Waits until `count` nodes are Ready.
    pub fn wait_ready(&self, count: usize) {
        self.wait_api();
        let kubectl = self.kubectl();
        wait::until("nodes are Ready", START_DEADLINE, || {
            let ready = self.ready_nodes(&kubectl);
            if ready.len() == count {
                Ok(())
            } else {
                Err(ready)
            }
        });
    }

    /// Names of the nodes that are Ready.
    pub fn ready_nodes(&self, kubectl: &Kubectl) -> Vec<String> {
        let outcome = kubectl.run("get nodes --no-headers");
        let rows = outcome
            .stdout
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.get(1) == Some(&"Ready"))
            .map(|row| row[0].to_owned())
            .collect()
    }

    /// kubectl on the server's host.
    pub fn kubectl(&self) -> Kubectl {
        let dir = if self.server_args.is_empty() {
            "n1-data"
        } else {
            "server-data"
        };
        Kubectl::new(
            &self.site,
            &self.server_host,
            self.site.dir().join(dir).join("admin.kubeconfig"),
        )
    }

    /// A place for a session: a directory, a namespace `name`, a kubeconfig that says so, and the
    /// clients in `PATH`, each under the name it is called by.
    pub fn stage(
        &self,
        name: &str,
        client: &str,
        version: &str,
        clients: &[(&str, &str)],
    ) -> Stage {
        let dir = self.site.subdir(&format!("stage-{name}"));
        let bin = self.site.subdir(&format!("stage-{name}/bin"));
        for (called, tool) in clients {
            std::os::unix::fs::symlink(crate::tool(tool), bin.join(called))
                .expect("link the client");
        }
        let kubectl = self.kubectl();
        kubectl.ok(&format!("create namespace {name}"));
        let config = dir.join("kubeconfig");
        std::fs::copy(kubectl.kubeconfig(), &config).expect("copy the kubeconfig");
        let set = ["config", "set-context", "--current", "--namespace", name];
        succeed(
            Command::new(crate::tool("kubectl"))
                .arg("--kubeconfig")
                .arg(&config)
                .args(set),
        );
        let environment = [
            ("NS", name.to_owned()),
            ("KUBECONFIG", config.to_string_lossy().into_owned()),
        ];
        Stage {
            client: client.to_owned(),
            version: version.to_owned(),
            within: format!("/run/netns/{}", self.site.namespace(&self.server_host)),
            bin,
            dir,
            environment: environment
                .map(|(key, value)| (key.to_owned(), value))
                .to_vec(),
        }
    }

    /// Imports the test images on a host.
    pub fn import(&self, host: &str) {
        import(&self.site, host);
    }

    /// The node on which a pod runs.
    pub fn node(&self, name: &str) -> &Node {
        self.nodes
            .iter()
            .find(|node| node.name == name)
            .unwrap_or_else(|| panic!("there is no node {name}"))
    }

    /// PID of a node's agent.
    pub fn agent_pid(&self, index: usize) -> Pid {
        self.nodes[index]
            .agent
            .as_ref()
            .expect("the agent runs")
            .pid()
    }

    /// Ends a node in order, resets it, and says what is left of it.
    pub fn reset_node(&mut self, index: usize) -> Vec<String> {
        if let Some(mut agent) = self.nodes[index].agent.take() {
            agent.stop();
        }
        reset(&self.site, &self.nodes[index].name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            let left = self.reset_node(index);
            if !left.is_empty() {
                eprintln!(
                    "left on {} after reset:\n{}",
                    self.nodes[index].name,
                    left.join("\n")
                );
            }
        }
    }
}

/// Imports the test images on a host.
pub(crate) fn import(site: &Site, host: &str) {
    import_images(site, host, &["nginx", "busybox"]);
}

/// Imports some of them.
pub(crate) fn import_images(site: &Site, host: &str, images: &[&str]) {
    for image in images {
        let data = site.subdir(&format!("{host}-data"));
        let mut command = Command::new(binary("coracle"));
        succeed(
            command
                .args(["image", "import", "--data-dir"])
                .arg(data)
                .arg(image_archive(image)),
        );
    }
}

/// Resets a node whose agent has ended, and says what is left of it.
pub(crate) fn reset(site: &Site, name: &str) -> Vec<String> {
    let mut command = site.command(name, binary("coracle"));
    command.arg("reset").args(dirs(site, name));
    command.args(["--node-name", name, "--cgroup-root", &site.cgroup(name)]);
    let output = crate::process::run(&mut command);
    let mut left = residue::find(site, name);
    left.extend(residue::node_cgroups(site, name));
    if !output.status.success() {
        left.push(format!(
            "coracle reset: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    left
}

fn dirs(site: &Site, host: &str) -> Vec<String> {
    let path = |name: String| -> String { site.subdir(&name).to_string_lossy().into_owned() };
    vec![
        "--data-dir".to_owned(),
        path(format!("{host}-data")),
        "--run-dir".to_owned(),
        path(format!("{host}-run")),
    ]
}

pub(crate) fn node_args(site: &Site, name: &str, address: &str) -> Vec<String> {
    let mut args = dirs(site, name);
    for (flag, value) in [
        ("--node-name", name),
        ("--node-ip", address),
        ("--cgroup-root", &site.cgroup(name)),
    ] {
        args.extend([flag.to_owned(), value.to_owned()]);
    }
    // How full this machine's disk is must not matter.
    args.extend(["--eviction-hard".to_owned(), String::new()]);
    args
}
