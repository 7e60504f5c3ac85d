//! Nodes beside the machines: each on a host of its own, with an agent that knows all servers.

use super::{API_PORT, Machines};
use crate::{
    binary, cluster,
    process::{Process, succeed},
    wait,
};

/// The last number of the first one's address.
const FIRST: u8 = 50;

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its name, and its host's.
    pub name: String,
    /// Its agent, while it runs.
    pub agent: Option<Process>,
}

impl Machines {
    /// Starts all nodes of the plan, and waits until they are Ready.
    pub(super) fn start_nodes(&mut self) {
        for number in 0..self.plan.nodes {
            let name = format!("n{number}");
            let address = self.site.add_host(&name, FIRST + number);
            cluster::import_images(&self.site, &name, &["busybox"]);
            let agent = Some(self.agent(&name, &address));
            self.nodes.push(Node { name, agent });
        }
        let count = self.nodes.len();
        if count == 0 {
            return;
        }
        let kubectl = self.kubectl(0);
        wait::until("the nodes are Ready", super::START_DEADLINE, || {
            let nodes = kubectl.run("get nodes --no-headers");
            let ready = nodes.stdout.matches(" Ready ").count();
            if ready == count { Ok(()) } else { Err(nodes) }
        });
    }

    fn agent(&self, name: &str, address: &str) -> Process {
        let mut token = self.site.command(&self.all[0].name, binary("coracle"));
        token.args(["token", "create", "--data-dir"]);
        let token = succeed(token.arg(self.server_data(0)));
        let servers: Vec<String> = (0..self.all.len()).map(|number| self.api(number)).collect();
        let mut agent = self.site.command(name, binary("coracle"));
        agent.args(["agent", "--server", &servers.join(",")]);
        agent.args(["--token", token.trim()]);
        agent.args(cluster::node_args(&self.site, name, address));
        let log = self.site.dir().join(format!("{name}.log"));
        Process::start(agent, &log)
    }

    /// Starts `coracle up` on a host of its own, the last of whose address's numbers is `last`: it
    /// joins the servers if it has not, and is a node of theirs.
    pub fn start_up(&mut self, name: &str, last: u8) {
        let known = self.nodes.iter().position(|node| node.name == name);
        let index = known.unwrap_or_else(|| {
            self.site.add_host(name, last);
            cluster::import_images(&self.site, name, &["busybox"]);
            let (name, agent) = (name.to_owned(), None);
            self.nodes.push(Node { name, agent });
            self.nodes.len() - 1
        });
        let address = format!("198.18.0.{last}");
        let mut up = self.named_host(name);
        up.arg("up");
        up.args(["--bind", &format!("{address}:{API_PORT}")]);
        up.args(cluster::node_args(&self.site, name, &address));
        let data = self.site.subdir(&format!("{name}-data"));
        up.args(self.joining_with(&data));
        let log = self.site.dir().join(format!("{name}.log"));
        self.nodes[index].agent = Some(Process::start(up, &log));
    }

    /// Ends them, and what runs on them.
    pub(super) fn reset_nodes(&mut self) {
        let nodes: Vec<Node> = self.nodes.drain(..).collect();
        let mut left = Vec::new();
        for Node { name, agent } in nodes {
            drop(agent);
            // Of all nodes, also of those after it: what counts is what the last one says.
            left = cluster::reset(&self.site, &name);
        }
        let own = format!("mount {}", self.site.dir().join("etcd").display());
        left.retain(|found| *found != own);
        if !left.is_empty() {
            eprintln!("left on the nodes after reset:\n{}", left.join("\n"));
        }
    }
}
