//! Machines with a member of etcd and a server each: a cluster of several servers, and what can
//! happen to it.
//!
//! ```text
//!   NAME-m0 198.18.0.1     NAME-m1 198.18.0.2     NAME-m2 198.18.0.3     NAME-clients 198.18.0.100
//!   etcd :2379 :2380       etcd                   etcd
//!   coracle server :6443   coracle server         coracle server
//!   NAME-n0 198.18.0.50    NAME-n1 198.18.0.51    nodes, which know all servers
//! ```
//! A server names its own machine's member first, then the others. The first server makes the
//! cluster, the others join it.

mod nodes;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::{Signal, kill};

pub use self::nodes::Node;
use crate::{
    binary,
    faults::plan::{Fault, Part, Round, Way},
    kubectl::Kubectl,
    process::{Process, succeed},
    site::Site,
    tool, wait,
};

/// From where clients reach all servers.
pub const CLIENTS: &str = "clients";
const CLIENTS_LAST: u8 = 100;
/// How long a debug build may take to be ready on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(90);
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const API_PORT: u16 = 6443;

/// What a cluster is made of.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// How many machines.
    pub machines: u8,
    /// How many nodes besides.
    pub nodes: u8,
    /// More flags of each member of etcd.
    pub etcd_flags: Vec<String>,
    /// More flags of each server.
    pub server_flags: Vec<String>,
    /// `https` where members show certificates.
    pub scheme: Option<&'static str>,
}

/// One machine.
#[derive(Debug)]
pub struct Machine {
    /// Its host's name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// The last number of the address.
    pub last: u8,
    /// Its member of etcd, while it runs.
    pub etcd: Option<Process>,
    /// Its server, while it runs.
    pub server: Option<Process>,
}

/// The cluster; everything of it goes when this is dropped.
#[derive(Debug)]
pub struct Machines {
    /// The machines.
    pub all: Vec<Machine>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Flags may be changed between two starts.
    pub plan: Plan,
    /// The ground. Dropped last.
    pub site: Site,
}

impl Machines {
    /// Hosts, and nothing that runs on them.
    pub fn new(plan: Plan) -> Self {
        let mut site = Site::new();
        let all = (0..plan.machines).map(|number| {
            let name = format!("m{number}");
            let address = site.add_host(&name, number + 1);
            Machine {
                name,
                address,
                last: number + 1,
                etcd: None,
                server: None,
            }
        });
        let all = all.collect();
        site.add_host(CLIENTS, CLIENTS_LAST);
        // A sync costs nothing there, and a machine that loses its memory is another test.
        site.memory_dir("etcd");
        Self {
            all,
            nodes: Vec::new(),
            plan,
            site,
        }
    }

    /// A whole cluster: all members, all servers and all nodes.
    pub fn start(plan: Plan) -> Self {
        let mut machines = Self::new(plan);
        for number in 0..machines.all.len() {
            machines.start_etcd(number);
        }
        for number in 0..machines.all.len() {
            machines.start_server(number);
            machines.wait_ready(number);
        }
        machines.start_nodes();
        machines
    }

    /// The flags by which a server joins the first one's cluster; none if it is that one, or has.
    fn joining(&self, number: usize) -> Vec<String> {
        if number == 0 {
            return Vec::new();
        }
        self.joining_with(&self.server_data(number))
    }

    /// The same for one that has its files in `data`.
    fn joining_with(&self, data: &Path) -> Vec<String> {
        if data.join("server/joined.json").exists() {
            return Vec::new();
        }
        let mut token = Command::new(binary("coracle"));
        token.args(["token", "server", "--data-dir"]);
        let token = succeed(token.arg(self.server_data(0)));
        let first = self.api(0);
        ["--join", &first, "--token", token.trim()]
            .map(str::to_owned)
            .to_vec()
    }

    /// The address of a server.
    fn api(&self, number: usize) -> String {
        format!("https://{}:{API_PORT}", self.all[number].address)
    }

    /// Where a server keeps its files.
    pub fn server_data(&self, number: usize) -> PathBuf {
        self.site.subdir(&format!("m{number}-server"))
    }

    /// Where a member keeps its files.
    pub fn etcd_data(&self, number: usize) -> PathBuf {
        self.site.dir().join(format!("etcd/m{number}"))
    }

    /// The administrator's kubeconfig for one server.
    pub fn kubeconfig(&self, number: usize) -> PathBuf {
        self.server_data(number).join("admin.kubeconfig")
    }

    /// kubectl on the clients' host, for one server.
    pub fn kubectl(&self, number: usize) -> Kubectl {
        Kubectl::new(&self.site, CLIENTS, self.kubeconfig(number))
    }

    /// The client address of a member.
    pub fn url(&self, number: usize) -> String {
        let scheme = self.plan.scheme.unwrap_or("http");
        format!("{scheme}://{}:{CLIENT_PORT}", self.all[number].address)
    }

    /// Starts a member (again).
    pub fn start_etcd(&mut self, number: usize) {
        let machine = &self.all[number];
        let peer = |machine: &Machine| format!("http://{}:{PEER_PORT}", machine.address);
        let peers: Vec<String> = self
            .all
            .iter()
            .map(|machine| format!("{}={}", machine.name, peer(machine)))
            .collect();
        let mut command = self.site.command(&machine.name, tool("etcd"));
        for (flag, value) in [
            ("name", machine.name.clone()),
            ("data-dir", self.etcd_data(number).display().to_string()),
            ("listen-client-urls", self.url(number)),
            ("advertise-client-urls", self.url(number)),
            ("listen-peer-urls", peer(machine)),
            ("initial-advertise-peer-urls", peer(machine)),
            ("initial-cluster", peers.join(",")),
        ] {
            command.arg(format!("--{flag}={value}"));
        }
        command.args(&self.plan.etcd_flags);
        command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        let log = self.site.dir().join(format!("{}-etcd.log", machine.name));
        self.all[number].etcd = Some(Process::start(command, &log));
    }

    /// Starts a server (again).
    pub fn start_server(&mut self, number: usize) {
        let mut command = self.server_command(number, &self.server_data(number));
        command.args(self.joining(number));
        let log = self.server_log(number);
        self.all[number].server = Some(Process::start(command, &log));
    }

    /// Where a server logs.
    pub fn server_log(&self, number: usize) -> PathBuf {
        self.site.dir().join(format!("m{number}-server.log"))
    }

    /// The command of a server on a machine, with files in `data`.
    pub fn server_command(&self, number: usize, data: &Path) -> Command {
        let machine = &self.all[number];
        let count = self.all.len();
        let urls: Vec<String> = (number..number + count)
            .map(|next| self.url(next % count))
            .collect();
        let mut command = self.named_host(&machine.name);
        command.arg("server").arg("--data-dir").arg(data);
        command.args(["--bind", &format!("{}:{API_PORT}", machine.address)]);
        command.args(["--store", &format!("etcd={}", urls.join(","))]);
        command.args(&self.plan.server_flags);
        command
    }

    /// `coracle` on a host that calls itself so: servers are told apart by that.
    fn named_host(&self, name: &str) -> Command {
        let mut command = self.site.command(name, "unshare");
        let script = "hostname \"$0\" && exec \"$@\"";
        command.args(["--uts", "sh", "-c", script, name]);
        command.arg(binary("coracle"));
        command
    }

    /// Whether a server says that it is ready.
    pub fn is_ready(&self, number: usize) -> Result<(), String> {
        let outcome = self
            .kubectl(number)
            .run("--request-timeout=5s get --raw /readyz");
        match &*outcome.stdout {
            "ok" => Ok(()),
            _ => Err(format!("{outcome:?}")),
        }
    }

    /// Waits until a server is ready.
    pub fn wait_ready(&self, number: usize) {
        wait::until(&format!("server {number} is ready"), START_DEADLINE, || {
            self.is_ready(number)
        });
    }

    /// Begins a round.
    pub fn fail(&mut self, round: &Round) {
        match round.fault {
            Fault::Kill => self.each(round, |process| {
                process.kill();
            }),
            Fault::Stop => self.each(round, |process| signal(process, Signal::SIGSTOP)),
            Fault::Cut(way) => self.filter("-A", round, way),
        }
    }

    /// Ends a round: what was killed is started, what stood still goes on.
    pub fn mend(&mut self, round: &Round) {
        match round.fault {
            Fault::Kill => {
                if round.part != Part::Server {
                    self.start_etcd(round.machine);
                }
                if round.part != Part::Etcd {
                    self.start_server(round.machine);
                }
            }
            Fault::Stop => self.each(round, |process| signal(process, Signal::SIGCONT)),
            Fault::Cut(way) => self.filter("-D", round, way),
        }
    }

    fn each(&mut self, round: &Round, act: impl Fn(&mut Process)) {
        let machine = &mut self.all[round.machine];
        if round.part != Part::Server {
            machine.etcd.as_mut().into_iter().for_each(&act);
        }
        if round.part != Part::Etcd {
            machine.server.as_mut().into_iter().for_each(&act);
        }
    }

    /// Adds or deletes the rules that cut a part off: of a server what clients ask, of a member of
    /// etcd what members say to each other, of a machine everything.
    fn filter(&self, verb: &str, round: &Round, way: Way) {
        let ports = match round.part {
            Part::Server => vec![Some(API_PORT)],
            Part::Etcd => vec![Some(PEER_PORT)],
            Part::Machine => vec![None],
        };
        let chains = [("INPUT", "-i", Way::In), ("OUTPUT", "-o", Way::Out)];
        for (chain, interface, direction) in chains {
            if way != Way::Both && way != direction {
                continue;
            }
            for port in &ports {
                let rule = format!("iptables -w {verb} {chain} {interface} eth0");
                let rules = match port {
                    None => vec![rule],
                    Some(port) => ["--sport", "--dport"]
                        .map(|end| format!("{rule} -p tcp {end} {port}"))
                        .to_vec(),
                };
                for rule in rules {
                    let words: Vec<&str> = rule.split(' ').chain(["-j", "DROP"]).collect();
                    self.site.within(&self.all[round.machine].name, &words);
                }
            }
        }
    }

    /// Waits until every server is ready, and lets none have ended by itself.
    pub fn wait_all_ready(&mut self) {
        for number in 0..self.all.len() {
            let ended = self.all[number].server.as_mut().and_then(Process::ended);
            assert!(
                ended.is_none(),
                "server {number} has ended by itself: {ended:?}"
            );
            self.wait_ready(number);
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.reset_nodes();
        // All at once, and not in order: nothing of them is looked at any more.
        for machine in &mut self.all {
            for process in [&mut machine.server, &mut machine.etcd]
                .into_iter()
                .flatten()
            {
                process.kill();
            }
        }
    }
}

fn signal(process: &mut Process, signal: Signal) {
    kill(process.pid(), signal).expect("the process is there");
}
