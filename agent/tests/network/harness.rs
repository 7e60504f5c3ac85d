//! Nodes and pods as namespaces, servers in them, and waiting for conditions.

mod conversation;
mod plans;
mod pods;
mod rules;
mod servers;

use std::{
    io::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use coracle_agent::{
    informers::{Informers, Nodes},
    network::{
        cni::{CniConfig, CniNetwork},
        routes::{self, RoutesConfig, Source},
    },
    proxy::ProxyConfig,
};
use coracle_client::pulse::Pulse;
use coracle_ground::{Ground, is_root_or_skip};
use coracle_netfilter::ProxyMode;
use coracle_netns::NetNs;
use coracle_telemetry::Tasks;
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) use conversation::{Conversation, echo};
pub(crate) use plans::plan;
pub(crate) use pods::Pod;
pub(crate) use servers::{Server, ask, ask_udp, serve};

use crate::fake_api::FakeApi;

pub(crate) const CLUSTER_CIDR: &str = "10.244.0.0/16";
pub(crate) const SERVICE_CIDR: &str = "10.96.0.0/16";

/// A directory with namespace pins; both are gone with it.
pub(crate) struct Lab {
    pub(crate) dir: PathBuf,
    pub(crate) api: FakeApi,
    mode: ProxyMode,
    _ground: Ground,
}

/// `None`, after saying so, where namespaces cannot be made.
pub(crate) fn lab(name: &str) -> Option<Lab> {
    lab_by(ProxyMode::Iptables, name)
}

/// The same, with nodes on which this engine keeps Services.
pub(crate) fn lab_by(mode: ProxyMode, name: &str) -> Option<Lab> {
    if !is_root_or_skip() {
        return None;
    }
    let ground = Ground::named(&format!("{name}-{mode:?}"));
    let dir = ground.path().to_owned();
    std::fs::create_dir_all(dir.join("ns")).unwrap();
    Some(Lab {
        dir,
        api: FakeApi::default(),
        mode,
        _ground: ground,
    })
}

/// Into the test's output.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Lab {
    /// Puts these nodes into the API: each learns the way to the others' pods.
    pub(crate) fn register(&self, nodes: &[&Node]) {
        for node in nodes {
            self.api.put(
                "nodes",
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name},
                    "spec": {"podCIDR": node.pod_cidr(), "podCIDRs": [node.pod_cidr()]},
                    "status": {"addresses": [{"type": "InternalIP", "address": node.address.to_string()}]}}),
            );
        }
    }

    /// Node `n<number>` with address 198.18.0.<number> on `eth0` and podCIDR 10.244.<number>.0/24.
    /// All nodes hang on one bridge in a namespace of their own.
    pub(crate) fn node(&self, number: u8) -> Node {
        self.node_in(0, number)
    }

    /// Node `n<number>` as [`Lab::node`] makes it, but with address 198.18.1.<number>.
    pub(crate) fn far_node(&self, number: u8) -> Node {
        self.node_in(1, number)
    }

    /// The switch routes between the subnets, of what it knows: not of pods.
    pub(crate) fn join_subnets(&self, nodes: &[&Node]) {
        let switch = NetNs::open(&self.dir.join("ns/switch")).unwrap();
        switch
            .run(|| {
                std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
                for subnet in [0, 1] {
                    ip(&[
                        "addr",
                        "add",
                        &format!("198.18.{subnet}.254/24"),
                        "dev",
                        "sw",
                    ]);
                }
            })
            .unwrap();
        for node in nodes {
            let gateway = format!("198.18.{}.254", node.address.octets()[2]);
            node.ns
                .run(|| ip(&["route", "add", "default", "via", &gateway]))
                .unwrap();
        }
    }

    fn node_in(&self, subnet: u8, number: u8) -> Node {
        let switch = self.dir.join("ns/switch");
        let switch = if switch.exists() {
            NetNs::open(&switch).unwrap()
        } else {
            let switch = NetNs::create(&switch).unwrap();
            switch
                .run(|| ip(&["link", "add", "sw", "up", "type", "bridge"]))
                .unwrap();
            switch
        };
        let name = format!("n{number}");
        let ns = NetNs::create(&self.dir.join("ns").join(&name)).unwrap();
        let file = self.dir.join("ns").join(&name);
        switch
            .run(|| {
                let port = format!("p{number}");
                // `ip` takes a namespace by name or by PID; a pin is neither.
                let peer = format!("q{number}");
                ip(&["link", "add", &port, "type", "veth", "peer", "name", &peer]);
                ip(&["link", "set", &port, "master", "sw", "up"]);
                move_link(&peer, &file);
            })
            .unwrap();
        let address = Ipv4Addr::new(198, 18, subnet, number);
        ns.run(|| {
            ip(&["link", "set", "lo", "up"]);
            ip(&["link", "set", &format!("q{number}"), "name", "eth0"]);
            ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
            ip(&["link", "set", "eth0", "up"]);
        })
        .unwrap();
        Node {
            name,
            number,
            ns,
            address,
            dir: self.dir.clone(),
            api: self.api.clone(),
            mode: self.mode,
        }
    }
}

/// One node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) number: u8,
    pub(crate) ns: NetNs,
    pub(crate) address: Ipv4Addr,
    dir: PathBuf,
    api: FakeApi,
    pub(crate) mode: ProxyMode,
}

impl Node {
    pub(crate) fn network(&self) -> CniNetwork {
        self.network_by(self.mode)
    }

    /// The same with a chosen engine.
    pub(crate) fn network_by(&self, rules: ProxyMode) -> CniNetwork {
        CniNetwork::new(CniConfig {
            conf_dir: None,
            chain_dir: None,
            plugin_dirs: Vec::new(),
            state_dir: self.dir.join(&self.name),
            cluster_cidrs: vec![CLUSTER_CIDR.parse().unwrap()],
            bridge: "coracle0".into(),
            mtu: None,
            rules,
            node_ip: Some(self.address.into()),
        })
    }

    pub(crate) fn pod_cidr(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// Runs a future inside the node, as the agent would.
    pub(crate) fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.ns.run(|| runtime().block_on(future)).unwrap()
    }

    /// Own network with its podCIDR.
    pub(crate) fn ready_network(&self) -> CniNetwork {
        self.ready_network_by(self.mode)
    }

    /// The same with a chosen engine.
    pub(crate) fn ready_network_by(&self, rules: ProxyMode) -> CniNetwork {
        let network = self.network_by(rules);
        self.block_on(network.set_pod_cidr(self.pod_cidr().parse().unwrap()))
            .unwrap();
        network
    }

    /// Runs the proxy until the value is dropped.
    pub(crate) fn proxy(&self, repair_interval: Duration) -> Running {
        self.proxy_by(self.mode, repair_interval)
    }

    /// The same with a chosen engine.
    pub(crate) fn proxy_by(&self, mode: ProxyMode, repair_interval: Duration) -> Running {
        self.proxy_with(repair_interval, |config| config.mode = mode)
    }

    /// The same with what `f` makes of its configuration.
    pub(crate) fn proxy_with(&self, repair: Duration, f: impl FnOnce(&mut ProxyConfig)) -> Running {
        let mut config = self.proxy_config(repair);
        f(&mut config);
        self.proxy_to_ask(config).0
    }

    pub(crate) fn proxy_config(&self, repair: Duration) -> ProxyConfig {
        ProxyConfig {
            mode: self.mode,
            node_ip: Some(self.address.into()),
            cluster_cidrs: vec![CLUSTER_CIDR.parse().unwrap()],
            service_cidrs: vec![SERVICE_CIDR.parse().unwrap()],
            own_service_ip: None,
            node_port_cidrs: Vec::new(),
            pod_interface: Some("coracle0".into()),
            repair_interval: repair,
            api_port: Some(10250),
            healthz_port: Some(10256),
            news: None,
        }
    }

    /// Runs the route keeper until the value is dropped.
    pub(crate) fn routes(&self, network: Option<CniNetwork>) -> Running {
        self.routes_repaired(network, Duration::from_millis(200))
    }

    /// The same with another interval between regular comparisons.
    pub(crate) fn routes_repaired(&self, network: Option<CniNetwork>, repair: Duration) -> Running {
        let config = RoutesConfig {
            node_name: self.name.clone(),
            node_ip: Some(self.address.into()),
            network: network.map(Arc::new),
            cluster_cidr: Some(CLUSTER_CIDR.parse().unwrap()),
            repair_interval: repair,
            rules_lost: Arc::default(),
        };
        self.spawn(move |mut informers, shutdown| {
            let source = Source::new(&mut informers);
            (informers, async move {
                routes::run(source, config, shutdown).await.unwrap()
            })
        })
    }

    fn spawn<F: Future<Output = ()> + Send>(
        &self,
        work: impl FnOnce(Informers, CancellationToken) -> (Informers, F) + Send + 'static,
    ) -> Running {
        let shutdown = CancellationToken::new();
        let token = shutdown.clone();
        let ns = NetNs::open(self.ns.path()).unwrap();
        let (api, name) = (self.api.clone(), self.name.clone());
        let run = async move {
            let informers = Informers::new(&api.client(), &name, Nodes::All, &Pulse::default());
            let (informers, work) = work(informers, token.clone());
            let mut tasks = Tasks::new(token);
            informers.spawn(&mut tasks);
            work.await;
        };
        let thread = thread::spawn(move || ns.run(|| runtime().block_on(run)).unwrap());
        Running {
            shutdown,
            thread: Some(thread),
        }
    }
}

/// A part of the agent on a thread of its own.
pub(crate) struct Running {
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "a part of the agent panicked"
            );
        }
    }
}

/// Tries until it holds; fails the test after thirty seconds. Returns how long it took.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{what}: not within 30 s"
        );
        thread::yield_now();
    }
    started.elapsed()
}

pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn ip(arguments: &[&str]) {
    output("ip", arguments);
}

fn move_link(link: &str, netns: &Path) {
    // iproute2 accepts a path in place of a name.
    ip(&["link", "set", link, "netns", netns.to_str().unwrap()]);
}

fn runtime() -> tokio::runtime::Runtime {
    // One thread: the blocking threads that it makes are in its namespace.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
