//! Explanations beside what becomes of real packets, and beside the kernel's trace of them.

mod attempt;
mod objects;
mod overlay;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use coracle_agent::{
    explain::{
        Answer, End, Kernel, KnownNode, KnownPod, OwnNetwork, Path, PolicyPlan, PolicyStep,
        Question, Verdict, World,
    },
    proxy::Sources,
    runtime::types::PortMapping,
};
use coracle_netfilter::{
    ProxyMode,
    host_port::HostPort,
    nftables::policies::{NodeNetwork, Policies},
    node::{Envelopes, Overlay},
    policy::PolicyKey,
    service::Protocol,
};
use coracle_netns::NetNs;
use coracle_policy::{
    objects::{Labels, PodKey, PodView},
    tracker::Tracker,
};
use serde_json::json;

use self::{
    attempt::{Attempt, connect},
    objects::{policy, put_services},
    trace::Tracer,
};
use crate::harness::{
    CLUSTER_CIDR, Lab, Node, Pod, Running, Server, ip, lab_by, plan, serve, wait_for,
};

for_each_engine!(
    explanations_are_what_the_kernel_does,
    without_br_netfilter_explanations_say_so,
);

const NEVER: Duration = Duration::from_secs(3600);
/// One of two endpoints is not drawn in so many times once in a million tests.
const DRAWS: usize = 20;

/// What `a` publishes.
const HOST_PORT: HostPort = HostPort {
    protocol: Protocol::Tcp,
    host_ip: None,
    host_port: 8088,
    container_port: 8080,
};

fn published() -> Vec<PortMapping> {
    vec![PortMapping {
        host_port: HOST_PORT.host_port,
        container_port: HOST_PORT.container_port,
        protocol: HOST_PORT.protocol.as_str().to_owned(),
        host_ip: String::new(),
    }]
}

/// A node with pods that policies speak of, and somebody outside.
struct Ground {
    node: Node,
    outside: Node,
    pods: Vec<(&'static str, Pod)>,
    tracker: Tracker,
    policies: Policies,
    sources: Sources,
    _servers: Vec<Server>,
    _proxy: Running,
}

impl Ground {
    fn new(lab: &Lab) -> Self {
        let (node, outside) = (lab.node(1), lab.node(3));
        lab.register(&[&node]);
        let network = node.ready_network();
        let names = ["a", "b", "client", "quiet"];
        let pods = names.map(|name| {
            let ports = if name == "a" { published() } else { Vec::new() };
            (name, node.pod(&network, name, ports))
        });
        let mut servers: Vec<Server> = pods.iter().map(|(name, pod)| pod.serve(name)).collect();
        servers.push(serve(&outside.ns, "outside"));
        let address = |at: usize| pods[at].1.address.to_string();
        put_services(lab, &address(0), &address(1), &outside.address.to_string());
        let (proxy, sources) = node.proxy_to_ask(node.proxy_config(NEVER));
        // What is not translated is routed, and dropped on its way. Only in the namespaces of this
        // test is anybody reached by it.
        node.ns
            .run(|| ip(&["route", "add", "203.0.113.0/24", "dev", "eth0"]))
            .unwrap();
        outside
            .ns
            .run(|| {
                let via = node.address.to_string();
                ip(&["route", "add", "203.0.113.0/24", "via", &via]);
            })
            .unwrap();
        let mut ground = Self {
            tracker: Tracker::new(&node.name),
            policies: Policies::new(NodeNetwork::default()),
            node,
            outside,
            pods: pods.into(),
            sources,
            _servers: servers,
            _proxy: proxy,
        };
        ground.track();
        let web: SocketAddr = "10.96.0.10:80".parse().unwrap();
        wait_for("Services are written", || {
            let ns = &ground.pods[2].1.ns;
            matches!(connect(ns, web), Attempt::Connected(_)) && {
                let plan = plan(&ground.sources);
                plan.services.len() == 6 && plan.unwritten.is_empty()
            }
        });
        ground
    }

    /// `b` takes what comes from `client` alone, and `quiet` sends nothing.
    fn track(&mut self) {
        self.tracker
            .set_namespace("default", Some(Labels::new([("team", "x")])));
        for (name, pod) in &self.pods {
            let key = PodKey::new("default", name);
            let view = PodView {
                key: key.clone(),
                labels: Labels::new([("pod", *name)]),
                addresses: vec![pod.address.into()],
                node: (*self.node.name).into(),
                ports: Vec::new(),
            };
            self.tracker.set_pod(&key, Some(view));
        }
        let of = |pod: &str| json!({"matchLabels": {"pod": pod}});
        let from_client =
            json!([{"from": [{"podSelector": of("client")}], "ports": [{"port": 8080}]}]);
        for (name, spec) in [
            (
                "only-client",
                json!({"podSelector": of("b"), "policyTypes": ["Ingress"], "ingress": from_client}),
            ),
            (
                "quiet",
                json!({"podSelector": of("quiet"), "policyTypes": ["Egress"]}),
            ),
        ] {
            let key = PolicyKey {
                namespace: "default".to_owned(),
                name: name.to_owned(),
            };
            self.tracker.set_policy(&key, Some(policy(name, &spec)));
        }
        let change = self.tracker.changes();
        let write = || self.policies.apply(&change).unwrap();
        self.node.ns.run(write).unwrap();
    }

    fn world(&self) -> World {
        let services = plan(&self.sources);
        let kernel = self.node.ns.run(|| Kernel::read().unwrap());
        let pods = self.pods.iter().map(|(name, pod)| KnownPod {
            name: format!("default/{name}"),
            addresses: vec![pod.address.into()],
            node: self.node.name.clone(),
            host_network: false,
            host_ports: if *name == "a" {
                vec![HOST_PORT]
            } else {
                Vec::new()
            },
        });
        let own = KnownNode {
            address: Some(self.node.address),
            pod_cidrs: vec![self.node.pod_cidr().parse().unwrap()],
        };
        World {
            node: self.node.name.clone(),
            engine: services.engine.to_owned(),
            network: services.network,
            services: services.services,
            unwritten: services.unwritten,
            without_rules: services.without_rules,
            trouble: None,
            policies: Some(PolicyPlan {
                tracker: self.tracker.clone(),
                written: self.policies.plan().clone(),
                is_complete: true,
                trouble: None,
            }),
            pods: pods.collect(),
            nodes: BTreeMap::from([(self.node.name.clone(), own)]),
            own_network: Some(OwnNetwork {
                bridge: "coracle0".to_owned(),
                subnet: self.node.pod_cidr().parse().ok(),
                no_masquerade: vec![
                    CLUSTER_CIDR.parse().unwrap(),
                    IpAddr::from(self.node.address).into(),
                ],
            }),
            overlay: Overlay::None,
            kernel: kernel.unwrap(),
        }
    }

    fn explain(&self, from: &str, to: &str) -> Path {
        let question = Question::parse(from, Some(to)).unwrap();
        match self.world().answer(&question).unwrap() {
            Answer::Path(path) => *path,
            Answer::Listing(listing) => panic!("{listing}"),
        }
    }

    /// Where packets of this sender begin.
    fn ns(&self, from: &str) -> &NetNs {
        match from.strip_prefix("default/") {
            Some(name) => &self.pods.iter().find(|(of, _)| *of == name).unwrap().1.ns,
            None if from == "node" => &self.node.ns,
            None => &self.outside.ns,
        }
    }

    fn address_of(&self, server: &str) -> IpAddr {
        let pod = self.pods.iter().find(|(name, _)| *name == server);
        pod.map_or(self.outside.address, |(_, pod)| pod.address)
            .into()
    }
}

/// Makes connections until each end that is explained has been come to, and compares.
fn compare(ground: &Ground, tracer: &Tracer, (from, to, verdict): (&str, &str, Verdict)) {
    let path = ground.explain(from, to);
    let said = format!("{from} to {to}:\n{path}");
    assert_eq!(path.verdict, verdict, "{said}");
    let asked = SocketAddr::new(path.to.address, path.port);
    let mut missing: BTreeSet<usize> = (0..path.ends.len()).collect();
    for _ in 0..DRAWS {
        tracer.clear();
        let attempt = connect(ground.ns(from), asked);
        let trace = tracer.trace(asked);
        let context = format!("{said}\nbut {attempt:?}, {trace:#?}");
        if path.ends.is_empty() {
            let expected = match verdict {
                Verdict::Refused => Attempt::Refused,
                _ => Attempt::Silence,
            };
            assert_eq!(attempt, expected, "{context}");
            // It goes to where it says, and no further.
            assert_eq!(trace.to, Some(asked), "{context}");
            assert!(trace.dropped_in.is_some(), "{context}");
            let is_policy = trace.dropped_in.as_deref() == Some("coracle-policy");
            assert_eq!(is_policy, path.why.contains("denied"), "{context}");
            return;
        }
        let place = |end: &End| SocketAddr::new(end.party.address, end.port);
        let at = path
            .ends
            .iter()
            .position(|end| Some(place(end)) == trace.to);
        let at = at.unwrap_or_else(|| panic!("{context}"));
        let end = &path.ends[at];
        let denies = |step: &PolicyStep| matches!(step, PolicyStep::Denied { .. });
        let is_denied = denies(&end.egress) || denies(&end.ingress);
        let is_policy = trace.dropped_in.as_deref() == Some("coracle-policy");
        assert_eq!(is_policy, is_denied, "{context}");
        match (end.verdict, attempt) {
            (Verdict::Arrives, Attempt::Connected((server, seen))) => {
                assert_eq!(ground.address_of(&server), end.party.address, "{context}");
                let is_itself = seen == path.from.address;
                assert!(
                    is_itself == end.seen_as.is_none() || from == "node",
                    "{context}"
                );
            }
            (Verdict::Dropped, Attempt::Silence) | (Verdict::Refused, Attempt::Unreachable) => {}
            _ => panic!("{context}"),
        }
        missing.remove(&at);
        if missing.is_empty() {
            return;
        }
    }
    panic!("{said}\nbut ends {missing:?} were never come to");
}

fn explanations_are_what_the_kernel_does(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "explain") else {
        return;
    };
    let ground = Ground::new(&lab);
    let tracer = Tracer::new(&ground.node);
    wait_for("the kernel's trace is printed", || {
        let to = SocketAddr::new(ground.address_of("a"), 8080);
        tracer.clear();
        let attempt = connect(ground.ns("default/client"), to);
        matches!(attempt, Attempt::Connected(_)) && tracer.trace(to).to.is_some()
    });
    use Verdict::{Arrives, Depends, Dropped, Refused};
    for case in [
        ("default/client", "default/a:8080", Arrives),
        ("default/client", "default/b:8080", Arrives),
        ("default/client", "default/b:8081", Dropped),
        ("default/a", "default/b:8080", Dropped),
        ("default/quiet", "default/a:8080", Dropped),
        ("default/client", "svc/web", Arrives),
        ("default/a", "svc/web", Depends),
        ("default/quiet", "svc/web", Dropped),
        ("default/a", "svc/self", Arrives),
        ("default/client", "svc/empty", Refused),
        // Nobody is told of what policies drop.
        ("default/quiet", "svc/empty", Dropped),
        ("default/client", "svc/web:81", Refused),
        ("default/client", "10.96.0.99:80", Refused),
        ("node", "svc/web", Arrives),
        ("node", "svc/empty", Refused),
        ("198.18.0.3", "node:30080", Depends),
        ("198.18.0.3", "node:8088", Arrives),
        ("node", "node:8088", Arrives),
        ("default/client", "node:8088", Arrives),
        ("default/quiet", "node:8088", Dropped),
        ("default/a", "node:8088", Arrives),
        ("default/client", "node:30080", Arrives),
        ("198.18.0.3", "203.0.113.8:80", Dropped),
        ("198.18.0.3", "203.0.113.9:80", Arrives),
        ("default/client", "198.18.0.3:8080", Arrives),
        // There is no route, which the sender is told.
        ("default/client", "192.0.2.9:80", Refused),
    ] {
        compare(&ground, &tracer, case);
    }
}

fn without_br_netfilter_explanations_say_so(mode: ProxyMode) {
    let Some(lab) = lab_by(mode, "explain-bridge") else {
        return;
    };
    let ground = Ground::new(&lab);
    let off = || std::fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "0");
    ground.node.ns.run(off).unwrap().unwrap();
    for (from, to, verdict) in [
        // Past the policy that drops it else.
        ("default/a", "default/b:8080", Verdict::Arrives),
        ("default/client", "svc/self", Verdict::Dropped),
        ("default/a", "svc/self", Verdict::Arrives),
        ("node", "svc/self", Verdict::Arrives),
    ] {
        let path = ground.explain(from, to);
        assert_eq!(path.verdict, verdict, "{from} to {to}:\n{path}");
        let attempt = connect(ground.ns(from), SocketAddr::new(path.to.address, path.port));
        let arrives = matches!(attempt, Attempt::Connected(_));
        assert_eq!(
            arrives,
            verdict == Verdict::Arrives,
            "{path}\nbut {attempt:?}"
        );
    }
}
