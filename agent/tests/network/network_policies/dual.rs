//! A node with a bridge and a routed link, without a network of ours: pods of both families.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
};

use coracle_netfilter::{nftables::policies::NodeNetwork, service::Protocol};
use coracle_netns::NetNs;
use coracle_policy::objects::{Labels, NamedPort, PodKey, PodView};
use serde_json::Value;

use super::world::{Enforcer, PATIENCE};
use crate::harness::{Lab, Node, ip, wait_for};

pub(super) const PORTS: std::ops::Range<u16> = 9000..9004;
/// In this order; the first two are on the bridge.
const PODS: [&str; 3] = ["a", "b", "c"];

/// Pods with an address of each family.
pub(super) struct Dual {
    pub(super) node: Node,
    enforcer: Enforcer,
    pods: Vec<(NetNs, [IpAddr; 2])>,
    _listening: Vec<TcpListener>,
}

impl Dual {
    pub(super) fn new(lab: &Lab) -> Self {
        let node = lab.node(1);
        let links = ["a", "b", "c"].map(|pod| lab.dir.join("ns").join(pod));
        let namespaces = links.map(|path| (NetNs::create(&path).unwrap(), path));
        node.ns
            .run(|| lay(&namespaces.each_ref().map(|(_, path)| &**path)))
            .unwrap();
        let mut pods = Vec::new();
        for (at, (ns, _)) in namespaces.into_iter().enumerate() {
            let net = if at < 2 { 1 } else { 2 };
            let host = 10 + at;
            let addresses = [format!("10.77.{net}.{host}"), format!("fd77:{net}::{host}")];
            ns.run(|| {
                ip(&["link", "set", "lo", "up"]);
                ip(&[
                    "addr",
                    "add",
                    &format!("{}/24", addresses[0]),
                    "dev",
                    "eth0",
                ]);
                ip(&[
                    "-6",
                    "addr",
                    "add",
                    &format!("{}/64", addresses[1]),
                    "dev",
                    "eth0",
                    "nodad",
                ]);
                ip(&["link", "set", "eth0", "up"]);
                ip(&["route", "add", "default", "via", &format!("10.77.{net}.1")]);
                ip(&[
                    "-6",
                    "route",
                    "add",
                    "default",
                    "via",
                    &format!("fd77:{net}::1"),
                ]);
            })
            .unwrap();
            pods.push((ns, addresses.map(|address| address.parse().unwrap())));
        }
        let listen = |ns: &NetNs, port| {
            let any = (Ipv6Addr::UNSPECIFIED, port);
            ns.run(|| TcpListener::bind(any).unwrap()).unwrap()
        };
        let listening = pods
            .iter()
            .flat_map(|(ns, _)| PORTS.map(move |port| listen(ns, port)));
        let mut dual = Self {
            enforcer: Enforcer::of(&node, NodeNetwork::default()),
            node,
            _listening: listening.collect(),
            pods,
        };
        dual.introduce();
        let [_, a] = dual.pod("a").1;
        // The node's own addresses on the links take their time.
        for from in ["b", "c"] {
            wait_for("the way to a", || dual.reaches(from, a, PORTS.start));
        }
        dual
    }

    fn introduce(&mut self) {
        let tracker = &mut self.enforcer.tracker;
        tracker.set_namespace("ns", Some(Labels::default()));
        let named = |protocol| NamedPort {
            name: "third".into(),
            protocol,
            port: PORTS.start + 2,
        };
        for (name, (_, addresses)) in PODS.into_iter().zip(&self.pods) {
            let view = PodView {
                key: PodKey::new("ns", name),
                labels: Labels::new([("pod", name)]),
                addresses: addresses.to_vec(),
                node: (*self.node.name).into(),
                ports: [Protocol::Tcp, Protocol::Sctp].map(named).to_vec(),
            };
            tracker.set_pod(&view.key.clone(), Some(view));
        }
    }

    /// Replaces the only policy.
    pub(super) fn policy(&mut self, spec: Value) {
        self.enforcer.policy("only", Some(spec));
        self.enforcer.settle(&self.node);
    }

    pub(super) fn pod(&self, name: &str) -> &(NetNs, [IpAddr; 2]) {
        &self.pods[PODS.iter().position(|of| *of == name).unwrap()]
    }

    pub(super) fn reaches(&self, from: &str, to: IpAddr, port: u16) -> bool {
        let to = SocketAddr::from((to, port));
        let connect = || TcpStream::connect_timeout(&to, PATIENCE).is_ok();
        self.pod(from).0.run(connect).unwrap()
    }

    /// The ports of `a` that `from` reaches, which are the same under both addresses.
    pub(super) fn ports(&self, from: &str) -> Vec<u16> {
        let addresses = self.pod("a").1;
        let open = |to: IpAddr| {
            std::thread::scope(|scope| {
                let tries = PORTS.map(|port| scope.spawn(move || self.reaches(from, to, port)));
                let tries: Vec<_> = tries.collect();
                let reached = (0..).zip(tries.into_iter().map(|one| one.join().unwrap()));
                let reached = reached.filter_map(|(port, reached)| reached.then_some(port));
                reached.collect::<Vec<u16>>()
            })
        };
        let [v4, v6] = addresses.map(open);
        assert_eq!(v4, v6, "of {from}");
        v6
    }

    /// What pods say to find each other is no connection, and has to pass whatever policies say.
    pub(super) fn forget_neighbours(&self) {
        for (ns, _) in &self.pods {
            ns.run(|| ip(&["neigh", "flush", "all"])).unwrap();
        }
    }
}

/// The node's links: a bridge for the first two pods, and one to the third.
fn lay(pods: &[&Path; 3]) {
    ip(&["link", "add", "br0", "up", "type", "bridge"]);
    for (at, pod) in pods.iter().enumerate() {
        let (port, peer) = (format!("to{at}"), format!("of{at}"));
        ip(&["link", "add", &port, "type", "veth", "peer", "name", &peer]);
        ip(&[
            "link",
            "set",
            &peer,
            "name",
            "eth0",
            "netns",
            pod.to_str().unwrap(),
        ]);
        if at < 2 {
            ip(&["link", "set", &port, "master", "br0"]);
        }
        ip(&["link", "set", &port, "up"]);
    }
    for (net, link) in [(1, "br0"), (2, "to2")] {
        ip(&["addr", "add", &format!("10.77.{net}.1/24"), "dev", link]);
        ip(&[
            "-6",
            "addr",
            "add",
            &format!("fd77:{net}::1/64"),
            "dev",
            link,
            "nodad",
        ]);
    }
    for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{family}"), "1").unwrap();
    }
}
