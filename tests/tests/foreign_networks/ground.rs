//! What networks of others are made of, and pods that use them.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    process, wait, workspace,
};
use serde_json::{Value, json};

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

/// A server on each node, and one that ends early.
pub(crate) struct Pods {
    pub(crate) kubectl: Kubectl,
    service: String,
}

fn server(name: &str, node: &str, more: &str, port: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web, pod: {name}}}, annotations: {{{more}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /tmp/w; echo {name} > /tmp/w/index.html; exec httpd -f -p 80 -h /tmp/w"]
    ports: [{{containerPort: 80{port}}}]
    readinessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}}
"#
    )
}

const SERVICE: &str = "---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}
";

impl Pods {
    pub(crate) fn start(kubectl: &Kubectl) -> Self {
        let limit = "kubernetes.io/egress-bandwidth: 100M";
        let manifest = [
            server("web-n1", "n1", limit, ", hostPort: 8081"),
            server("web-n2", "n2", "", ""),
            server("short", "n2", "", ""),
            SERVICE.to_owned(),
        ];
        kubectl.apply(&manifest.concat());
        for pod in ["web-n1", "web-n2", "short"] {
            kubectl.pod_ready(pod);
        }
        let service = kubectl.ok("get service web -o jsonpath={.spec.clusterIP}");
        Self {
            kubectl: kubectl.clone(),
            service,
        }
    }

    fn address(&self, pod: &str) -> String {
        self.kubectl
            .ok(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"))
    }

    pub(crate) fn addresses(&self) -> [String; 2] {
        ["web-n1", "web-n2"].map(|pod| self.address(pod))
    }

    pub(crate) fn is_in(&self, pod: &str, range: &str) {
        let bits = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
        let (first, length) = range.split_once('/').expect("a range");
        let shift = 32 - length.parse::<u32>().expect("a length");
        let address = self.address(pod);
        assert_eq!(
            bits(&address) >> shift,
            bits(first) >> shift,
            "{pod}: {address}, {range}"
        );
    }

    fn get(&self, from: &str, url: &str) -> Option<String> {
        let words = [
            "exec", from, "--", "timeout", "2", "wget", "-q", "-O", "-", url,
        ];
        let output = process::run(&mut self.kubectl.command(&words));
        let text = String::from_utf8_lossy(&output.stdout);
        output.status.success().then(|| text.trim().to_owned())
    }

    /// From outside of the pods: by address, node port and host port.
    pub(crate) fn answer(&self, cluster: &Cluster, when: &str) {
        let [first, second] = self.addresses();
        for (host, url, who) in [
            ("n1", format!("http://{first}/"), "web-n1"),
            ("n2", format!("http://{second}/"), "web-n2"),
            ("server", "http://198.18.0.2:30080/".to_owned(), "web-n"),
            ("server", "http://198.18.0.3:30080/".to_owned(), "web-n"),
            ("server", "http://198.18.0.2:8081/".to_owned(), "web-n1"),
        ] {
            wait::until(&format!("{host} gets {url} {when}"), PATIENCE, || {
                let page = cluster.site.fetch(host, &url)?;
                let is_it = page.starts_with(who) || page.starts_with("short");
                is_it.then_some(()).ok_or(page)
            });
        }
    }

    /// By address, under their own; by Service; by name.
    pub(crate) fn reach_each_other(&self, cluster: &Cluster) {
        let [first, second] = self.addresses();
        for (from, to, who) in [("web-n1", &second, "web-n2"), ("web-n2", &first, "web-n1")] {
            wait::until(&format!("{from} reaches {who}"), PATIENCE, || {
                let page = self.get(from, &format!("http://{to}/"));
                (page.as_deref() == Some(who)).then_some(()).ok_or(page)
            });
            for url in [
                format!("http://{}/", self.service),
                "http://web.default.svc.cluster.local/".to_owned(),
            ] {
                // Also if it is its own server that answers.
                for _ in 0..6 {
                    wait::until(&format!("{from} gets {url}"), PATIENCE, || {
                        self.get(from, &url).ok_or("nothing")
                    });
                }
            }
        }
        // The limit that the plugin was told.
        let qdiscs = cluster.site.within("n1", &["tc", "qdisc", "show"]);
        assert!(
            qdiscs.contains("tbf") && qdiscs.contains("100Mbit"),
            "{qdiscs}"
        );
        self.answer(cluster, "from outside");
    }

    /// NetworkPolicies hold, whoever has made the links.
    pub(crate) fn are_held_to_policies(&self, cluster: &Cluster) {
        let policy = r#"---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-n2}
spec:
  podSelector: {matchLabels: {pod: web-n1}}
  ingress: [{from: [{podSelector: {matchLabels: {pod: web-n2}}}]}]
"#;
        let said = self.kubectl.apply(policy);
        assert!(!said.contains("Warning"), "{said}");
        let beside = server("beside", "n1", "", "");
        self.kubectl.apply(&beside.replace("app: web, ", ""));
        self.kubectl.pod_ready("beside");
        let [first, _] = self.addresses();
        let url = format!("http://{first}/");
        let gets = |from: &str, expected: bool| {
            wait::until(&format!("{from} gets in: {expected}"), PATIENCE, || {
                let page = self.get(from, &url);
                (page.is_some() == expected).then_some(()).ok_or(page)
            });
        };
        // Beside it, on the other node, and the machine of another node.
        gets("beside", false);
        gets("short", false);
        gets("web-n2", true);
        assert!(cluster.site.fetch("n2", &url).is_err());
        // Its own node does: probes.
        cluster.site.fetch("n1", &url).expect("its own node");
        self.kubectl.ok("delete networkpolicy only-n2");
        gets("beside", true);
        self.kubectl.ok("delete pod beside");
    }

    /// All pods go, and what the plugin's addresses were given to with them.
    pub(crate) fn end(&self, ground: &Ground, cluster: &Cluster, reservations: &str) {
        self.kubectl.ok("delete pod --all --wait=true");
        for node in ["n1", "n2"] {
            let dir = ground.state(cluster, node).join(reservations);
            wait::until(&format!("{node}'s addresses are free"), PATIENCE, || {
                let left = reserved(&dir);
                left.is_empty().then_some(()).ok_or(left)
            });
        }
        wait::until(
            "host port and links are gone",
            Duration::from_secs(20),
            || {
                let rules = cluster.site.within("n1", &["iptables-save"]);
                let links = cluster.site.within("n1", &["ip", "-o", "link"]);
                let is_clean =
                    !rules.contains("8081") && !links.contains("cali") && !links.contains("veth");
                is_clean.then_some(()).ok_or((rules, links))
            },
        );
    }
}

fn reserved(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.parse::<Ipv4Addr>().is_ok())
        .collect()
}
