//! What networks of others are made of.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    wait, workspace,
};
use serde_json::{Value, json};

use super::pods::Pods;

/// Where the programs of the plugins' package are.
const DISTRIBUTION: &str = "/usr/lib/cni";

/// Where plugins and their configurations are.
pub(crate) struct Ground {
    plugin: &'static str,
}

impl Ground {
    /// For the plugin of this name in `tests/plugins`.
    pub(crate) fn new(plugin: &'static str) -> Self {
        Self { plugin }
    }

    /// A server and two nodes that look for a network of somebody else, and find none yet.
    pub(crate) fn cluster(&self, server: &[&str]) -> Cluster {
        let node = |site: &coracle_tests::site::Site, node: &str| {
            let bin = site.subdir("cni-bin");
            let path = |path: PathBuf| path.to_string_lossy().into_owned();
            for (program, name) in [
                (self.plugin, self.plugin),
                ("of_1_0", "portmap-of-1.0"),
                ("of_1_0", "bandwidth-of-1.0"),
            ] {
                let source = workspace().join(format!("tests/plugins/{program}.py"));
                let program = bin.join(name);
                if !program.exists() {
                    fs::copy(source, &program).expect("copy the plugin");
                    let mode = fs::Permissions::from_mode(0o755);
                    fs::set_permissions(&program, mode).expect("make it a program");
                }
            }
            let mut words = vec![
                "--cni-conf-dir".to_owned(),
                path(site.subdir(&format!("{node}-net.d"))),
            ];
            for dir in [path(bin), DISTRIBUTION.to_owned()] {
                words.extend(["--cni-bin-dir".to_owned(), dir]);
            }
            words.extend(server.iter().map(|word| (*word).to_owned()));
            words
        };
        Cluster::server_and_nodes_with(2, server, node)
    }

    /// Where the plugin and its daemon keep what they have.
    pub(crate) fn state(&self, cluster: &Cluster, node: &str) -> PathBuf {
        cluster.site.subdir(&format!("{node}-{}", self.plugin))
    }

    /// Writes the network's list, as an operator's daemon does.
    pub(crate) fn configure(&self, cluster: &Cluster, node: &str, name: &str, first: &[Value]) {
        let more = [
            json!({"type": "portmap-of-1.0", "snat": true, "capabilities": {"portMappings": true}}),
            json!({"type": "bandwidth-of-1.0", "capabilities": {"bandwidth": true}}),
        ];
        let plugins = [first, &more].concat();
        let list = json!({"name": name, "cniVersion": "1.1.0", "plugins": plugins});
        let dir = cluster.site.subdir(&format!("{node}-net.d"));
        let unfinished = dir.join("10-network.conflist.tmp");
        fs::write(&unfinished, list.to_string()).expect("write the list");
        fs::rename(unfinished, dir.join("10-network.conflist")).expect("put it in place");
    }

    /// Waits until the node says that its network is not ready, and why.
    pub(crate) fn not_ready(&self, kubectl: &Kubectl, node: &str, why: &str) {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].message}"#;
        wait::until(&format!("{node} says {why:?}"), PATIENCE, || {
            let told = kubectl.run(&format!("get node {node} -o {path}"));
            told.stdout.contains(why).then_some(()).ok_or(told)
        });
    }

    /// Agents are killed and come back; a pod goes while its agent is away.
    pub(crate) fn agents_come_and_go(&self, cluster: &mut Cluster, pods: &Pods) {
        let before = pods.addresses();
        for index in [0, 1] {
            cluster.nodes[index]
                .agent
                .as_mut()
                .expect("an agent")
                .kill();
        }
        pods.kubectl.ok("delete pod short --wait=false");
        pods.answer(cluster, "while no agent runs");
        for index in [0, 1] {
            cluster.start_agent(index);
        }
        cluster.wait_ready(2);
        wait::until("the pod that went meanwhile is gone", PATIENCE, || {
            let pod = pods.kubectl.run("get pod short");
            pod.stderr.contains("NotFound").then_some(()).ok_or(pod)
        });
        assert_eq!(
            pods.addresses(),
            before,
            "the same pods under the same addresses"
        );
    }

    /// While its daemon is away, a node starts no pods, and says so.
    pub(crate) fn a_network_that_fails_is_told(
        &self,
        cluster: &Cluster,
        kubectl: &Kubectl,
        file: &str,
    ) {
        let file = self.state(cluster, "n1").join(file);
        let away = file.with_extension("away");
        fs::rename(&file, &away).expect("take it away");
        let name = file.file_name().expect("a name").to_string_lossy();
        self.not_ready(kubectl, "n1", &name);
        fs::rename(&away, &file).expect("bring it back");
        cluster.wait_ready(2);
    }

    /// Neither link nor route of the own network is in the way.
    pub(crate) fn nothing_own(&self, cluster: &Cluster) {
        for node in &cluster.nodes {
            let links = cluster.site.within(&node.name, &["ip", "-o", "link"]);
            assert!(!links.contains("coracle"), "{links}");
            let routes = cluster
                .site
                .within(&node.name, &["ip", "route", "show", "proto", "67"]);
            assert!(!routes.contains("via"), "{routes}");
            let rules = cluster.site.within(&node.name, &["iptables-save"]);
            for chain in ["CORACLE-MASQ", "CORACLE-HOSTPORTS", "CORACLE-ENVELOPES"] {
                assert!(!rules.contains(chain), "{rules}");
            }
        }
    }

    /// A reset takes what is ours, and has the plugins take what is theirs of pods.
    pub(crate) fn leaves_nothing_own(&self, cluster: &mut Cluster) {
        for index in [0, 1] {
            let mut left = cluster.reset_node(index);
            // Bridge and tunnel are the network's own.
            left.retain(|one| !matches!(&**one, "link cni0" | "link flannel.1"));
            assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        }
    }
}

/// What a network has made on the nodes: rules, links and routes that have one of these words.
pub(crate) fn made_by(cluster: &Cluster, words: &[&str]) -> Vec<String> {
    let mut made = Vec::new();
    for node in &cluster.nodes {
        for command in [
            &["iptables-save"][..],
            &["ip", "-o", "link"],
            &["ip", "-d", "route"],
        ] {
            let text = cluster.site.within(&node.name, command);
            let lines = text
                .lines()
                .map(|line| line.split(" state ").next().unwrap_or(line));
            let of_it = lines.filter(|line| words.iter().any(|word| line.contains(word)));
            // Counters of chains change.
            let of_it = of_it.map(|line| line.split(" [").next().unwrap_or(line));
            made.extend(of_it.map(|line| format!("{}: {line}", node.name)));
        }
    }
    made.sort();
    assert!(!made.is_empty());
    made
}

/// What flannel's daemon makes for the way to the other node, whose address and pods are `there`.
pub(crate) fn flanneld(cluster: &Cluster, node: &str, mode: &str, there: [&str; 2]) {
    let [address, pods] = there;
    let run = |line: &str| {
        cluster
            .site
            .within(node, &line.split(' ').collect::<Vec<_>>())
    };
    let rules = run("iptables-save");
    if !rules.contains("FLANNEL") {
        run("sysctl -q -w net.ipv4.ip_forward=1");
        for line in [
            "-t nat -N FLANNEL-POSTRTG",
            "-t nat -A POSTROUTING -j FLANNEL-POSTRTG",
            "-t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.0.0/16 -j RETURN",
            "-t nat -A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE",
            "-N FLANNEL-FWD",
            "-A FORWARD -j FLANNEL-FWD",
            "-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT",
            "-A FLANNEL-FWD -d 10.244.0.0/16 -j ACCEPT",
        ] {
            run(&format!("iptables {line}"));
        }
    }
    if mode == "host-gw" {
        run(&format!(
            "ip route replace {pods} via {address} dev eth0 proto static"
        ));
        return;
    }
    let gateway = pods.replace("/24", "");
    let mac = |address: &str| {
        let last: u8 = address
            .rsplit('.')
            .next()
            .expect("four parts")
            .parse()
            .expect("a number");
        format!("ae:11:11:11:11:{last:02x}")
    };
    let own = cluster.node(node).address.clone();
    run(&format!(
        "ip link add flannel.1 address {} mtu 1450 type vxlan id 1 local {own} dev eth0 dstport 8472 nolearning",
        mac(&own)
    ));
    run("ip link set flannel.1 up");
    run(&format!("ip route delete {pods}"));
    run(&format!(
        "ip neigh add {gateway} lladdr {} dev flannel.1",
        mac(address)
    ));
    run(&format!(
        "bridge fdb add {} dev flannel.1 dst {address}",
        mac(address)
    ));
    run(&format!(
        "ip route add {pods} via {gateway} dev flannel.1 onlink proto static"
    ));
}

/// What Calico's daemons make: rules, and routes to blocks.
pub(crate) fn bird(cluster: &Cluster, node: &str, own: &str, there: [&str; 2]) {
    let [address, block] = there;
    let run = |line: &str| {
        cluster
            .site
            .within(node, &line.split(' ').collect::<Vec<_>>())
    };
    run("sysctl -q -w net.ipv4.ip_forward=1");
    for line in [
        "-t nat -N cali-POSTROUTING",
        "-t nat -I POSTROUTING -j cali-POSTROUTING",
        "-t nat -A cali-POSTROUTING -s 10.99.0.0/16 ! -d 10.99.0.0/16 -j MASQUERADE",
        "-N cali-FORWARD",
        "-I FORWARD -j cali-FORWARD",
        "-A cali-FORWARD -i cali+ -j ACCEPT",
        "-A cali-FORWARD -o cali+ -j ACCEPT",
    ] {
        run(&format!("iptables {line}"));
    }
    run(&format!("ip route add blackhole {own} proto bird"));
    run(&format!(
        "ip route add {block} via {address} dev eth0 proto bird"
    ));
}
