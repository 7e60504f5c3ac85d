//! NetworkPolicies as their users know them: pods of several namespaces on two nodes, by kubectl.

use std::time::Duration;

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, residue, wait,
};

/// A policy is everywhere within this.
const SPREAD: Duration = Duration::from_secs(10);

/// Namespaces nx, ny, nz (`y` alone is a boolean) with pods a, b, c each, as upstream's suite has
/// them; every pod serves its own name on 80 and 81.
fn world() -> String {
    let mut manifest = String::new();
    for ns in ["nx", "ny", "nz"] {
        manifest.push_str(&format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {ns}, labels: {{ns: {ns}}}}}\n"
        ));
        for pod in ["a", "b", "c"] {
            manifest.push_str(&server(ns, pod, ""));
        }
    }
    manifest
}

fn server(ns: &str, pod: &str, more: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {pod}, namespace: {ns}, labels: {{pod: {pod}}}}}
spec:
  terminationGracePeriodSeconds: 0
  {more}
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /tmp/w; echo {ns}/{pod} > /tmp/w/index.html; httpd -p 81 -h /tmp/w; exec httpd -f -p 80 -h /tmp/w"]
    ports: [{{name: web, containerPort: 80}}, {{name: other, containerPort: 81}}]
    readinessProbe: {{tcpSocket: {{port: 80}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: s-{pod}, namespace: {ns}}}
spec: {{selector: {{pod: {pod}}}, ports: [{{name: web, port: 80}}, {{name: other, port: 81}}]}}
"#
    )
}

const PODS: [&str; 9] = [
    "nx/a", "nx/b", "nx/c", "ny/a", "ny/b", "ny/c", "nz/a", "nz/b", "nz/c",
];

/// Asks from every pod for every pod.
struct Probe {
    kubectl: Kubectl,
    /// The Service's address of each of [`PODS`].
    addresses: Vec<String>,
}

impl Probe {
    fn new(kubectl: Kubectl) -> Self {
        let address = |pod: &str| {
            let (ns, pod) = pod.split_once('/').expect("ns/pod");
            kubectl.ok(&format!(
                "get service -n {ns} s-{pod} -o jsonpath={{.spec.clusterIP}}"
            ))
        };
        let addresses = PODS.iter().map(|pod| address(pod)).collect();
        Self { kubectl, addresses }
    }

    /// One row of the truth table: whom `from` reaches on this port.
    fn row(&self, from: &str, port: u16) -> Vec<String> {
        let (ns, pod) = from.split_once('/').expect("ns/pod");
        let mut script = String::new();
        for (to, address) in PODS.iter().zip(&self.addresses) {
            script.push_str(&format!(
                "(timeout 1 wget -q -O /dev/null http://{address}:{port}/ 2>/dev/null && echo {to}) & "
            ));
        }
        script.push_str("wait");
        let exec = ["exec", "-n", ns, pod, "--", "sh", "-c", &script];
        let output = process::run(&mut self.kubectl.command(&exec));
        let reached = String::from_utf8_lossy(&output.stdout);
        let mut reached: Vec<String> = reached.lines().map(str::to_owned).collect();
        reached.sort();
        reached
    }

    /// Waits until the whole table is so: `passes(from, to)`. A pod always reaches itself.
    fn expect(&self, what: &str, port: u16, passes: impl Fn(&str, &str) -> bool + Sync) {
        let expect_row = |from: &str| {
            let passing = PODS.iter().filter(|to| from == **to || passes(from, to));
            let expected: Vec<String> = passing.map(|to| (*to).to_owned()).collect();
            wait::until(&format!("{what}: {from} on {port}"), SPREAD, || {
                let reached = self.row(from, port);
                if reached == expected {
                    Ok(())
                } else {
                    Err(format!("reaches {reached:?} instead of {expected:?}"))
                }
            });
        };
        std::thread::scope(|scope| {
            for from in PODS {
                let expect_row = &expect_row;
                scope.spawn(move || expect_row(from));
            }
        });
    }
}

fn apply(kubectl: &Kubectl, manifest: &str) {
    let said = kubectl.apply(manifest);
    assert!(!said.contains("Warning"), "policies are enforced: {said}");
}

fn policy(ns: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: {ns}}}\nspec: {spec}\n"
    )
}

#[test]
fn policies_hold_on_every_node_from_a_pods_first_packet_on() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(2, &[]);
    let kubectl = cluster.kubectl();
    apply(&kubectl, &world());
    for pod in PODS {
        let (ns, pod) = pod.split_once('/').expect("ns/pod");
        kubectl.ok(&format!(
            "wait -n {ns} pod/{pod} --for=condition=Ready --timeout=120s"
        ));
    }
    let probe = Probe::new(cluster.kubectl());
    probe.expect("no policy", 80, |_, _| true);
    tables_of_policies(&probe);
    names_are_asked_for_by_those_who_may(&kubectl);
    a_pod_has_its_policies_before_it_runs(&kubectl);
    an_agent_that_is_killed_leaves_no_gap(&mut cluster, &probe);
    what_pods_of_one_bridge_send_each_other_is_decided_on(&cluster, &probe);
    rules_that_only_a_dead_agent_knew_are_not_missed(&mut cluster, &probe);
    kubectl.ok("delete networkpolicies -A --all");
    probe.expect("no policy again", 80, |_, _| true);
    kubectl.ok("delete namespace nx ny nz --timeout=60s");
    // Without a time of grace their objects go before they do.
    wait::until("the pods are gone", PATIENCE, || {
        let dir = cluster.site.dir();
        let left = [residue::mounts_below(dir), residue::shims_below(dir)].concat();
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
    for index in [0, 1] {
        let left = cluster.reset_node(index);
        assert!(
            left.is_empty(),
            "left behind on node {index}:\n{}",
            left.join("\n")
        );
    }
}

fn tables_of_policies(probe: &Probe) {
    let kubectl = &probe.kubectl;
    apply(
        kubectl,
        &policy("nx", "deny", "{podSelector: {}, policyTypes: [Ingress]}"),
    );
    probe.expect("deny into nx", 80, |_, to| !to.starts_with("nx/"));
    let from_y = "{podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: ny}}}], ports: [{port: web}]}]}";
    apply(kubectl, &policy("nx", "from-y", from_y));
    let passes =
        |from: &str, to: &str| !to.starts_with("nx/") || (to == "nx/a" && from.starts_with("ny/"));
    probe.expect("ny into nx/a", 80, passes);
    probe.expect("ny into nx/a, the port", 81, |_, to| !to.starts_with("nx/"));
    // Labels change sides.
    kubectl.ok("label namespace nz ns=ny --overwrite");
    kubectl.ok("label namespace ny ns=none --overwrite");
    probe.expect("nz into nx/a", 80, |from, to| {
        !to.starts_with("nx/") || (to == "nx/a" && from.starts_with("nz/"))
    });
    kubectl.ok("label namespace ny ns=ny --overwrite");
    kubectl.ok("label namespace nz ns=nz --overwrite");
    kubectl.ok("delete networkpolicies -n nx --all");
    apply(
        kubectl,
        &policy(
            "ny",
            "no-way-out",
            "{podSelector: {matchExpressions: [{key: pod, operator: In, values: [a, b]}]}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}",
        ),
    );
    probe.expect("ny/a and ny/b stay in ny", 80, |from, to| {
        !matches!(from, "ny/a" | "ny/b") || to.starts_with("ny/")
    });
    kubectl.ok("delete networkpolicies -n ny --all");
}

fn names_are_asked_for_by_those_who_may(kubectl: &Kubectl) {
    let asks = || {
        let script =
            "timeout 3 nslookup s-a.ny.svc.cluster.local >/dev/null 2>&1 && echo yes || echo no";
        kubectl
            .ok_args(&["exec", "-n", "nx", "b", "--", "sh", "-c", script])
            .trim()
            .to_owned()
    };
    assert_eq!(asks(), "yes");
    apply(
        kubectl,
        &policy("nx", "shut", "{podSelector: {}, policyTypes: [Egress]}"),
    );
    wait::until("no names", SPREAD, || {
        (asks() == "no").then_some(()).ok_or("asks")
    });
    // As charts write it.
    let dns = "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]}";
    apply(kubectl, &policy("nx", "names", dns));
    wait::until("names", SPREAD, || {
        (asks() == "yes").then_some(()).ok_or("asks not")
    });
    kubectl.ok("delete networkpolicies -n nx --all");
}

/// Its first container tries to get out at once, and says what came of it.
fn a_pod_has_its_policies_before_it_runs(kubectl: &Kubectl) {
    apply(
        kubectl,
        &policy(
            "nz",
            "shut",
            "{podSelector: {matchLabels: {pod: eager}}, policyTypes: [Egress]}",
        ),
    );
    let target = kubectl.ok("get pod -n nx a -o jsonpath={.status.podIP}");
    // Also where the rules have to be made first, on either node.
    for node in ["n1", "n2"] {
        for round in 0..5 {
            let manifest = format!(
                r#"---
apiVersion: v1
kind: Pod
metadata: {{name: eager-{node}-{round}, namespace: nz, labels: {{pod: eager}}}}
spec:
  nodeName: {node}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "timeout 1 wget -q -O /dev/null http://{target}/ && echo out; echo end"]
"#
            );
            apply(kubectl, &manifest);
            let name = format!("eager-{node}-{round}");
            wait::until("the eager pod's end", PATIENCE, || {
                let log = kubectl.run(&format!("logs -n nz {name}"));
                if log.stdout.contains("end") {
                    Ok(log.stdout)
                } else {
                    Err(log.stderr)
                }
            });
            let log = kubectl.ok(&format!("logs -n nz {name}"));
            assert!(!log.contains("out"), "{name} got out: {log}");
        }
    }
    kubectl.ok("delete pod -n nz -l pod=eager --wait=false");
    kubectl.ok("delete networkpolicies -n nz --all");
}

fn an_agent_that_is_killed_leaves_no_gap(cluster: &mut Cluster, probe: &Probe) {
    let kubectl = &probe.kubectl;
    apply(
        kubectl,
        &policy("nx", "deny", "{podSelector: {}, policyTypes: [Ingress]}"),
    );
    let shut = |_: &str, to: &str| !to.starts_with("nx/");
    probe.expect("deny into nx", 80, shut);
    for index in [0, 1] {
        if let Some(agent) = &mut cluster.nodes[index].agent {
            agent.kill();
        }
    }
    // Without agents kubectl cannot look into pods: the machine looks from another node.
    let target = kubectl.ok("get pod -n nx a -o jsonpath={.status.podIP}");
    let home = kubectl.ok("get pod -n nx a -o jsonpath={.spec.nodeName}");
    let other = if home == "n1" { "n2" } else { "n1" };
    for _ in 0..5 {
        let fetched = cluster.site.fetch(other, &format!("http://{target}/"));
        assert!(fetched.is_err(), "the other node got in: {fetched:?}");
    }
    cluster
        .site
        .fetch(&home, &format!("http://{target}/"))
        .expect("the pod's own node gets in");
    // Policies change meanwhile, and are those of now when the agents are back.
    kubectl.ok("delete networkpolicy -n nx deny");
    apply(
        kubectl,
        &policy("ny", "deny", "{podSelector: {}, policyTypes: [Ingress]}"),
    );
    for index in [0, 1] {
        cluster.start_agent(index);
    }
    cluster.wait_ready(2);
    probe.expect("deny into ny", 80, |_, to| !to.starts_with("ny/"));
}

/// Whoever turns the setting off would open every pod to its neighbours.
fn what_pods_of_one_bridge_send_each_other_is_decided_on(cluster: &Cluster, probe: &Probe) {
    const SETTING: &str = "net.bridge.bridge-nf-call-iptables";
    let kubectl = &probe.kubectl;
    let path = r#"jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}={.spec.nodeName},{.status.podIP}{"\n"}{end}"#;
    let nodes = kubectl.ok_args(&["get", "pods", "-A", "-l", "pod", "-o", path]);
    let places: Vec<(&str, &str, &str)> = nodes
        .lines()
        .filter_map(|line| {
            let (pod, place) = line.split_once('=')?;
            let (node, address) = place.split_once(',')?;
            Some((pod, node, address))
        })
        .collect();
    let shut = places.iter().find(|(pod, ..)| pod.starts_with("ny/"));
    let (shut, home, address) = shut.expect("a pod of ny");
    let mut neighbours = places.iter().filter(|(_, node, _)| node == home);
    let neighbour = neighbours.find(|(pod, ..)| pod.starts_with("nz/"));
    let (neighbour, ..) = neighbour.expect("a pod of nz beside it");
    let (ns, pod) = neighbour.split_once('/').expect("ns/pod");
    let script =
        format!("timeout 1 wget -q -O /dev/null http://{address}/ 2>/dev/null && echo in; true");
    let exec = ["exec", "-n", ns, pod, "--", "sh", "-c", &script];
    let gets_in = || kubectl.ok_args(&exec).contains("in");
    assert!(!gets_in(), "{shut} is shut");
    let site = &cluster.site;
    site.within(home, &["sysctl", "-w", &format!("{SETTING}=0")]);
    wait::until("the setting is back", SPREAD, || {
        let value = site.within(home, &["sysctl", "-n", SETTING]);
        (value.trim() == "1").then_some(()).ok_or(value)
    });
    assert!(!gets_in(), "{neighbour} got into {shut} on {home}");
}

fn rules_that_only_a_dead_agent_knew_are_not_missed(cluster: &mut Cluster, probe: &Probe) {
    let kubectl = &probe.kubectl;
    let target = kubectl.ok("get pod -n ny a -o jsonpath={.status.podIP}");
    let home = kubectl.ok("get pod -n ny a -o jsonpath={.spec.nodeName}");
    let free = kubectl.ok("get pod -n nz a -o jsonpath={.status.podIP}");
    let (at, other) = if home == "n1" { (0, "n2") } else { (1, "n1") };
    cluster.server.as_mut().expect("a server").kill();
    cluster.nodes[at].agent.as_mut().expect("an agent").kill();
    cluster.start_agent(at);
    let shut_in = || {
        cluster
            .site
            .fetch(other, &format!("http://{target}/"))
            .err()
            .ok_or("got in")
    };
    let log = cluster.site.dir().join(format!("{home}.log"));
    wait::until("the agent looks after what is left", SPREAD, || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let is_told = log.contains("NetworkPolicy rules are kept as they were left");
        is_told.then_some(()).ok_or(log)
    });
    shut_in().expect("shut while its rules are there");
    for _ in 0..2 {
        cluster.site.within(&home, &["nft", "flush", "ruleset"]);
        wait::until("shut again", SPREAD, shut_in);
    }
    // Who was not selected is not shut off.
    cluster
        .site
        .fetch(other, &format!("http://{free}/"))
        .expect("a pod without policies gets what it got");
    cluster.start_server();
    cluster.wait_ready(2);
    probe.expect("deny into ny again", 80, |_, to| !to.starts_with("ny/"));
}
