//! Several servers on one etcd, and a node that knows them all.

use std::{net::Ipv4Addr, process::Command, time::Duration};

use crate::{
    binary, cluster,
    kubectl::Kubectl,
    process::{Process, succeed},
    site::Site,
    tool, wait,
};

/// How long a debug build may take to be ready on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// Where etcd is.
const ETCD: &str = "http://198.18.0.100:2379";
/// Asks for whose controllers work.
pub const HOLDER: &str =
    "get lease kube-controller-manager -n kube-system -o jsonpath={.spec.holderIdentity}";
/// The node's name, and its host's.
pub const NODE: &str = "n1";

/// A server and its host.
#[derive(Debug)]
pub struct Server {
    host: String,
    address: String,
    /// The process.
    pub process: Process,
}

/// All of them; everything goes when this is dropped.
#[derive(Debug)]
pub struct Several {
    /// In the order of their addresses, 198.18.0.1 and so on.
    pub servers: Vec<Server>,
    agent: Option<Process>,
    _etcd: Process,
    site: Site,
}

impl Several {
    /// So many servers, and a node that is Ready.
    pub fn start(count: u8) -> Self {
        let mut site = Site::new();
        site.add_host("etcd", 100);
        let mut etcd = site.command("etcd", tool("etcd"));
        etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        etcd.arg("--data-dir").arg(site.subdir("etcd-data"));
        etcd.args([
            "--listen-client-urls",
            ETCD,
            "--advertise-client-urls",
            ETCD,
        ]);
        let etcd = Process::start(etcd, &site.dir().join("etcd.log"));
        let mut several = Self {
            servers: Vec::new(),
            agent: None,
            _etcd: etcd,
            site,
        };
        for number in 1..=count {
            several.add_server(number);
        }
        several.site.add_host(NODE, 50);
        cluster::import(&several.site, NODE);
        several.start_agent();
        let kubectl = several.kubectl(0);
        wait::until("the node is Ready", START_DEADLINE, || {
            let nodes = kubectl.run("get nodes --no-headers");
            let is_ready = nodes.stdout.contains(" Ready ");
            if is_ready { Ok(()) } else { Err(nodes) }
        });
        several
    }

    /// The second and all further ones get the authorities of the first.
    fn add_server(&mut self, number: u8) {
        let host = format!("s{number}");
        let address = self.site.add_host(&host, number);
        let data = self.site.subdir(&format!("{host}-data"));
        if number > 1 {
            let pki = self.site.dir().join("s1-data/server/pki");
            std::fs::create_dir_all(data.join("server")).expect("make a directory");
            succeed(
                Command::new("cp")
                    .arg("-a")
                    .args([pki, data.join("server/pki")]),
            );
        }
        let process = self.server_process(&host, &address);
        self.servers.push(Server {
            host,
            address,
            process,
        });
        self.wait_api(self.servers.len() - 1);
    }

    fn server_process(&self, host: &str, address: &str) -> Process {
        // Servers are told apart by their host names.
        let script = format!("hostname {host} && exec \"$0\" \"$@\"");
        let mut server = self.site.command(host, "unshare");
        server.args(["--uts", "sh", "-c", &script]);
        server
            .arg(binary("coracle"))
            .args(["server", "--bind", &format!("{address}:6443")]);
        server.arg("--data-dir");
        server.arg(self.site.subdir(&format!("{host}-data")));
        server.args(["--store", &format!("etcd={ETCD}")]);
        Process::start(server, &self.site.dir().join(format!("{host}.log")))
    }

    /// Starts a server again.
    pub fn start_server(&mut self, index: usize) {
        let Server { host, address, .. } = &self.servers[index];
        self.servers[index].process = self.server_process(host, address);
        self.wait_api(index);
    }

    fn start_agent(&mut self) {
        let mut token = self.site.command("s1", binary("coracle"));
        token.args(["token", "create", "--data-dir"]);
        let token = succeed(token.arg(self.site.subdir("s1-data")));
        let servers = self.servers.iter();
        let servers: Vec<_> = servers
            .map(|server| format!("https://{}:6443", server.address))
            .collect();
        let mut agent = self.site.command(NODE, binary("coracle"));
        agent.args([
            "agent",
            "--server",
            &servers.join(","),
            "--token",
            token.trim(),
        ]);
        agent.args(cluster::node_args(&self.site, NODE, "198.18.0.50"));
        let log = self.site.dir().join("agent.log");
        self.agent = Some(Process::start(agent, &log));
    }

    fn wait_api(&self, index: usize) {
        let kubectl = self.kubectl(index);
        wait::until("the API server is ready", START_DEADLINE, || {
            let outcome = kubectl.run("get --raw /readyz");
            let is_ready = outcome.stdout == "ok";
            if is_ready { Ok(()) } else { Err(outcome) }
        });
    }

    /// kubectl with a server.
    pub fn kubectl(&self, index: usize) -> Kubectl {
        let host = &self.servers[index].host;
        let data = self.site.dir().join(format!("{host}-data"));
        Kubectl::new(&self.site, host, data.join("admin.kubeconfig"))
    }

    /// The server whose controllers work, if its Lease is known to name one.
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find_map(|index| self.leader_by(&self.kubectl(index)))
    }

    /// The same by what one server says.
    pub fn leader_by(&self, kubectl: &Kubectl) -> Option<usize> {
        let holder = kubectl.run(HOLDER).stdout;
        let mut servers = self.servers.iter();
        servers.position(|server| holder.split('_').next() == Some(&server.host))
    }

    /// What the agent has logged.
    pub fn agent_log(&self) -> String {
        self.agent
            .as_ref()
            .map_or_else(String::new, Process::output)
    }

    /// How many connections the node has to each server's API.
    pub fn connections(&self) -> Vec<usize> {
        let table = self.site.within(NODE, &["cat", "/proc/net/tcp"]);
        let count = |server: &Server| {
            let address: Ipv4Addr = server.address.parse().expect("an address");
            // As the kernel writes it, in the machine's order of bytes; 01: established.
            let word = u32::from_ne_bytes(address.octets());
            let there = format!(" {word:08X}:{:04X} 01 ", 6443);
            table.lines().filter(|line| line.contains(&there)).count()
        };
        self.servers.iter().map(count).collect()
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        drop(self.agent.take());
        let left = cluster::reset(&self.site, NODE);
        if !left.is_empty() {
            eprintln!("left on {NODE} after reset:\n{}", left.join("\n"));
        }
    }
}
