//! Pods on a network of somebody else, and what they reach.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use coracle_tests::{
    cluster::Cluster,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

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

    /// All pods go, and with them what the plugin has reserved there.
    pub(crate) fn end(&self, cluster: &Cluster, reservations: [PathBuf; 2]) {
        self.kubectl.ok("delete pod --all --wait=true");
        for dir in reservations {
            let what = format!("{} is empty", dir.display());
            wait::until(&what, PATIENCE, || {
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
