//! What upstream's conformance asks of Services and names, retold by kubectl over each engine: one
//! node, pods on it, and somebody outside. `docs/conformance.md` says which test each step retells.

use std::collections::BTreeSet;

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

const NODE: &str = "198.18.0.1";

/// A pod that says its hostname on a port of this name and number.
fn serving(name: &str, app: &str, port: (&str, u16), more: &str) -> String {
    let (port_name, number) = port;
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {app}}}}}
spec:
  terminationGracePeriodSeconds: 0
  {more}
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /tmp/w; hostname > /tmp/w/index.html; exec httpd -f -p {number} -h /tmp/w"]
    ports: [{{name: {port_name}, containerPort: {number}}}]
    readinessProbe: {{tcpSocket: {{port: {number}}}, periodSeconds: 1}}
"#
    )
}

fn service(name: &str, spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// A slice that somebody writes for the Service `custom`.
fn slice(name: &str, pod: &str, port: (&str, u16)) -> String {
    let (port_name, number) = port;
    format!(
        r#"---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, labels: {{kubernetes.io/service-name: custom, endpointslice.kubernetes.io/managed-by: somebody}}}}
addressType: IPv4
ports: [{{name: {port_name}, port: {number}, protocol: TCP}}]
endpoints: [{{addresses: ["{pod}"], conditions: {{ready: true}}}}]
"#
    )
}

struct Ground {
    cluster: Cluster,
    kubectl: Kubectl,
}

impl Ground {
    fn apply(&self, manifest: &str) {
        self.kubectl.apply(manifest);
    }

    fn patch(&self, service: &str, change: &str) {
        let patch = ["patch", "service", service, "--type=merge", "-p", change];
        self.kubectl.ok_args(&patch);
    }

    fn field(&self, of: &str, path: &str) -> String {
        self.kubectl
            .ok(&format!("get {of} -o jsonpath={{{path}}}"))
            .trim()
            .to_owned()
    }

    fn within(&self, pod: &str, script: &str) -> String {
        let exec = ["exec", pod, "--", "sh", "-c", script];
        let output = process::run(&mut self.kubectl.command(&exec));
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Who answers a pod there, asked so often.
    fn answers(&self, host: &str, times: usize) -> BTreeSet<String> {
        let ask = format!(
            "for i in $(seq {times}); do timeout 3 wget -q -O - http://{host}/ 2>/dev/null || echo nobody; done"
        );
        let said = self.within("client", &ask);
        said.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Waits until a question about a name is answered so.
    fn says(&self, words: &str, what: &str) {
        wait::until(&format!("{what} of {words}"), PATIENCE, || {
            match self.within("client", &format!("nslookup {words}")) {
                said if said.contains(what) => Ok(()),
                said => Err(said),
            }
        });
    }

    /// Waits until these, and nobody else, answer what is asked so often that each is met.
    fn is_answered_by(&self, host: &str, by: &[&str]) {
        let by: BTreeSet<String> = by.iter().map(|one| (*one).to_owned()).collect();
        wait::until(&format!("{by:?} at {host}"), PATIENCE, || {
            match self.answers(host, if by.len() == 1 { 5 } else { 15 }) {
                said if said == by => Ok(()),
                said => Err(said),
            }
        });
    }

    fn is_asked_outside(&self, port: &str) {
        let url = format!("http://{NODE}:{port}/");
        wait::until("an answer outside", PATIENCE, || {
            self.cluster.site.fetch("outside", &url)
        });
    }

    fn has_endpoints(&self, service: &str, pods: &[&str]) {
        wait::until(&format!("{pods:?} behind {service}"), PATIENCE, || {
            let path = ".subsets[*].addresses[*].targetRef.name";
            let legacy = self.field(&format!("endpoints {service}"), path);
            let of = format!("endpointslices -l kubernetes.io/service-name={service}");
            let slices = self.field(&of, ".items[*].endpoints[*].targetRef.name");
            let sorted = |text: &str| -> Vec<String> {
                let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
                words.sort();
                words
            };
            match (sorted(&legacy), sorted(&slices)) {
                (legacy, slices) if legacy == pods && slices == pods => Ok(()),
                other => Err(other),
            }
        });
    }
}

fn conformance_over(mode: &str) {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&["--proxy-mode", mode]);
    cluster.site.add_host("outside", 9);
    let kubectl = cluster.kubectl();
    let ground = Ground { cluster, kubectl };
    let client = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: client}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, '3600']}]}\n";
    ground.apply(client);
    ground.kubectl.pod_ready("client");
    endpoints_come_and_go_with_pods(&ground);
    each_port_has_pods_of_its_own(&ground);
    slices_of_somebody_else_count_together(&ground);
    clients_stay_where_they_are_if_they_should(&ground);
    a_node_port_is_reached_every_way(&ground);
    types_change(&ground);
    an_external_name_is_an_alias(&ground);
    pods_know_their_own_names(&ground);
    a_pods_name_servers_are_what_it_says(&ground);
}

#[test]
fn services_are_what_conformance_asks_for_over_iptables() {
    conformance_over("iptables");
}

#[test]
fn services_are_what_conformance_asks_for_over_nftables() {
    conformance_over("nftables");
}

fn endpoints_come_and_go_with_pods(ground: &Ground) {
    let kubectl = &ground.kubectl;
    ground.apply(&service(
        "basic",
        "{selector: {app: basic}, ports: [{port: 80, targetPort: 8080}]}",
    ));
    ground.has_endpoints("basic", &[]);
    ground.apply(&serving("b-1", "basic", ("web", 8080), ""));
    ground.has_endpoints("basic", &["b-1"]);
    ground.is_answered_by("basic", &["b-1"]);
    ground.apply(&serving("b-2", "basic", ("web", 8080), ""));
    ground.has_endpoints("basic", &["b-1", "b-2"]);
    ground.is_answered_by("basic", &["b-1", "b-2"]);
    kubectl.ok("delete pod b-1");
    ground.has_endpoints("basic", &["b-2"]);
    ground.is_answered_by("basic", &["b-2"]);
    kubectl.ok("delete pod b-2");
    ground.has_endpoints("basic", &[]);
    ground.is_answered_by("basic", &["nobody"]);
    kubectl.ok("delete service basic");
    kubectl.count_is("endpoints --field-selector metadata.name=basic", 0);
    kubectl.count_is("endpointslices -l kubernetes.io/service-name=basic", 0);
}

fn each_port_has_pods_of_its_own(ground: &Ground) {
    ground.apply(&service(
        "multi",
        "{selector: {app: multi}, ports: [{name: first, port: 80, targetPort: one}, {name: second, port: 81, targetPort: two}]}",
    ));
    ground.apply(&serving("m-1", "multi", ("one", 8100), ""));
    ground.is_answered_by("multi:80", &["m-1"]);
    ground.apply(&serving("m-2", "multi", ("two", 8101), ""));
    ground.is_answered_by("multi:81", &["m-2"]);
    ground.is_answered_by("multi:80", &["m-1"]);
    ground.has_endpoints("multi", &["m-1", "m-2"]);
    ground.kubectl.ok("delete pod m-1");
    ground.is_answered_by("multi:80", &["nobody"]);
    ground.is_answered_by("multi:81", &["m-2"]);
}

/// A Service without a selector: one of several addresses, and one pod of several ports.
fn slices_of_somebody_else_count_together(ground: &Ground) {
    ground.apply(&service(
        "custom",
        "{ports: [{name: port80, port: 80}, {name: port81, port: 81}]}",
    ));
    for name in ["s-0", "s-1", "s-2"] {
        ground.apply(&serving(name, "web", ("web", 8080), ""));
        ground.kubectl.pod_ready(name);
    }
    let address = |pod: &str| ground.field(&format!("pod {pod}"), ".status.podIP");
    let second = ground.field("pod m-2", ".status.podIP");
    ground.apply(&slice("of-80", &address("s-0"), ("port80", 8080)));
    ground.apply(&slice("of-81", &address("s-1"), ("port81", 8080)));
    ground.is_answered_by("custom:80", &["s-0"]);
    ground.is_answered_by("custom:81", &["s-1"]);
    ground.apply(&slice("of-81", &second, ("port81", 8101)));
    ground.is_answered_by("custom:81", &["m-2"]);
    ground.is_answered_by("custom:80", &["s-0"]);
}

fn clients_stay_where_they_are_if_they_should(ground: &Ground) {
    for (kind, name) in [("ClusterIP", "inside"), ("NodePort", "outside")] {
        ground.apply(&service(
            name,
            &format!("{{type: {kind}, sessionAffinity: ClientIP, selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}"),
        ));
        let port = ground.field(&format!("service {name}"), ".spec.ports[0].nodePort");
        let host = match kind {
            "NodePort" => format!("{NODE}:{port}"),
            _ => ground.field(&format!("service {name}"), ".spec.clusterIP"),
        };
        let is_one = || {
            wait::until(&format!("one behind {host}"), PATIENCE, || {
                match ground.answers(&host, 15) {
                    said if said.len() == 1 && !said.contains("nobody") => Ok(()),
                    said => Err(said),
                }
            });
        };
        is_one();
        ground.patch(name, r#"{"spec": {"sessionAffinity": "None"}}"#);
        ground.is_answered_by(&host, &["s-0", "s-1", "s-2"]);
        ground.patch(name, r#"{"spec": {"sessionAffinity": "ClientIP"}}"#);
        is_one();
    }
}

fn a_node_port_is_reached_every_way(ground: &Ground) {
    ground.apply(&service(
        "np",
        "{type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}",
    ));
    let ip = ground.field("service np", ".spec.clusterIP");
    let port = ground.field("service np", ".spec.ports[0].nodePort");
    for host in ["np", &ip, &format!("{NODE}:{port}")] {
        ground.is_answered_by(host, &["s-0", "s-1", "s-2"]);
    }
    ground.is_asked_outside(&port);
}

fn types_change(ground: &Ground) {
    let to = |kind: &str| {
        format!(
            r#"{{"spec": {{"type": "{kind}", "externalName": null, "selector": {{"app": "web"}}, "ports": [{{"port": 80, "targetPort": 8080}}]}}}}"#
        )
    };
    let all = ["s-0", "s-1", "s-2"];
    let external = "{type: ExternalName, externalName: example.com}";
    let away = r#"{"spec": {"type": "ExternalName", "externalName": "multi.default.svc.cluster.local", "clusterIP": null, "clusterIPs": null}}"#;
    for (name, kind) in [("to-ip", "ClusterIP"), ("to-port", "NodePort")] {
        ground.apply(&service(name, external));
        ground.patch(name, &to(kind));
        ground.is_answered_by(name, &all);
        let port = ground.field(&format!("service {name}"), ".spec.ports[0].nodePort");
        assert_eq!(port.is_empty(), kind == "ClusterIP");
        if kind == "NodePort" {
            ground.is_answered_by(&format!("{NODE}:{port}"), &all);
        }
        let ip = ground.field(&format!("service {name}"), ".spec.clusterIP");
        ground.patch(name, away);
        assert_eq!(
            ground.field(&format!("service {name}"), ".spec.clusterIP"),
            ""
        );
        ground.is_answered_by(&format!("{name}:81"), &["m-2"]);
        ground.is_answered_by(&ip, &["nobody"]);
    }
}

fn an_external_name_is_an_alias(ground: &Ground) {
    let name = "alias.default.svc.cluster.local";
    ground.apply(&service(
        "alias",
        "{type: ExternalName, externalName: foo.example.com}",
    ));
    let asked = format!("-type=cname {name}");
    ground.says(&asked, &format!("{name}\tcanonical name = foo.example.com"));
    ground.patch("alias", r#"{"spec": {"externalName": "bar.example.com"}}"#);
    ground.says(&asked, &format!("{name}\tcanonical name = bar.example.com"));
    ground.patch(
        "alias",
        r#"{"spec": {"type": "ClusterIP", "externalName": null, "ports": [{"name": "http", "port": 80}]}}"#,
    );
    ground.says(name, &ground.field("service alias", ".spec.clusterIP"));
}

fn pods_know_their_own_names(ground: &Ground) {
    ground.apply(&service(
        "peers",
        "{clusterIP: None, selector: {app: peer}, ports: [{name: http, port: 8080}]}",
    ));
    let named = "hostname: querier\n  subdomain: peers";
    ground.apply(&serving("peer", "peer", ("http", 8080), named));
    ground.kubectl.pod_ready("peer");
    let full = "querier.peers.default.svc.cluster.local";
    let hosts = ground.within("peer", "cat /etc/hosts");
    let address = ground.field("pod peer", ".status.podIP");
    let own = hosts.lines().find(|line| line.starts_with(&address));
    let own: Vec<&str> = own.unwrap_or_default().split_whitespace().skip(1).collect();
    assert_eq!(own, [full, "querier"], "{hosts}");
    // By that file alone.
    let page = |host: &str| format!("echo > /etc/resolv.conf; wget -q -O - http://{host}:8080/");
    for host in ["querier", full] {
        assert_eq!(ground.within("peer", &page(host)).trim(), "querier");
    }
    for host in [
        full,
        "querier.peers",
        "peers",
        "peers.default",
        "peers.default.svc",
    ] {
        ground.is_answered_by(&format!("{host}:8080"), &["querier"]);
    }
    ground.says("kubernetes.default.svc.cluster.local", "10.96.0.1");
    // Ports, named in part: as a resolver goes along the search path, which nslookup does not.
    for (asked, answer) in [
        ("_http._tcp.peers.default.svc", format!("8080 {full}")),
        (
            "_first._tcp.multi.default.svc",
            "80 multi.default.svc.cluster.local".to_owned(),
        ),
    ] {
        let resolv = ground.within("client", "grep ^search /etc/resolv.conf");
        let path: Vec<&str> = resolv.split_whitespace().skip(1).take(3).collect();
        assert_eq!(
            path,
            [
                "default.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local"
            ]
        );
        for (domain, says) in path.iter().zip(["NXDOMAIN", "NXDOMAIN", &answer]) {
            ground.says(&format!("-type=srv {asked}.{domain}."), says);
        }
    }
}

fn a_pods_name_servers_are_what_it_says(ground: &Ground) {
    let config = "dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.1], searches: [resolv.conf.local], options: [{name: ndots, value: '2'}]}";
    ground.apply(&serving("asks-elsewhere", "none", ("web", 8080), config));
    ground.kubectl.pod_ready("asks-elsewhere");
    let said = ground.within("asks-elsewhere", "cat /etc/resolv.conf");
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let expected = [
        "nameserver 192.0.2.1",
        "options ndots:2",
        "search resolv.conf.local",
    ];
    assert_eq!(lines, expected);
}
