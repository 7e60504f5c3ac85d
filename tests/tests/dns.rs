//! Names in pods: answered by the node that they are on, or by a server of somebody else.

use std::{path::Path, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::Process,
    wait, workspace,
};

/// Where names are asked for.
const ADDRESS: &str = "10.96.0.10";
/// What the server of somebody else says of every name.
const ELSEWHERE: &str = "198.18.0.200";

/// Two pods with names of their own behind a Service with an address, one without, and a name for
/// the first; and somebody who asks.
const WORLD: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: peers}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
"#;

fn serving(name: &str) -> String {
    format!(
        r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  hostname: {name}
  subdomain: peers
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /tmp/www && hostname > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"]
    readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
"#
    )
}

fn asking(name: &str, more: &str) -> String {
    format!(
        r#"
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  {more}
  containers: [{{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}}]
"#
    )
}

/// Runs in the pod.
fn within(kubectl: &Kubectl, pod: &str, script: &str) -> (i32, String) {
    let outcome = kubectl.command(&["exec", pod, "--", "sh", "-c", script]);
    let mut command = outcome;
    let output = coracle_tests::process::run(&mut command);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// What the page behind a name says.
fn page(kubectl: &Kubectl, pod: &str, host: &str) -> String {
    let (code, said) = within(
        kubectl,
        pod,
        &format!("timeout 5 wget -q -O - http://{host}/"),
    );
    assert_eq!(code, 0, "{host}: {said}");
    said.trim().to_owned()
}

fn looked_up(kubectl: &Kubectl, pod: &str, words: &str) -> String {
    within(kubectl, pod, &format!("nslookup {words}")).1
}

fn foreign_server(cluster: &Cluster, host: &str, port: &str) -> Process {
    let address = &cluster.node(host).address;
    let mut command = cluster.site.command(host, "timeout");
    command.args(["300", "/usr/bin/python3"]);
    command.arg(workspace().join("tests/dns/server.py"));
    command.args([address, port, ELSEWHERE]);
    let log: &Path = &cluster.site.dir().join("foreign-names.log");
    Process::start(command, log)
}

#[test]
fn pods_find_services_and_everything_else_by_name() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&["--dns-forward=example.org=198.18.0.1"]);
    let _elsewhere = foreign_server(&cluster, "n1", "53");
    let kubectl = cluster.kubectl();
    let with_host = "hostNetwork: true\n  dnsPolicy: ClusterFirstWithHostNet";
    let pods = [
        serving("peer-0"),
        serving("peer-1"),
        asking("client", ""),
        asking("host-client", with_host),
    ];
    kubectl.apply(&format!("{WORLD}{}", pods.concat()));
    for pod in ["peer-0", "peer-1", "client", "host-client"] {
        kubectl.pod_ready(pod);
    }
    let (_, conf) = within(&kubectl, "client", "cat /etc/resolv.conf");
    assert!(conf.contains(&format!("nameserver {ADDRESS}\n")), "{conf}");

    names_lead_to_services(&kubectl);
    names_are_what_they_are(&kubectl);
    others_are_asked(&kubectl);
    questions_are_no_connections(&cluster, &kubectl);
    let kube_dns = kubectl.ok("-n kube-system get service kube-dns -o jsonpath={.spec.clusterIP}");
    assert_eq!(kube_dns, ADDRESS);
}

fn names_lead_to_services(kubectl: &Kubectl) {
    for host in [
        "web",
        "web.default",
        "web.default.svc",
        "web.default.svc.cluster.local",
        "web.default.svc.cluster.local.",
        "alias",
        "peers:8080",
    ] {
        let found = page(kubectl, "client", host);
        assert!(found.starts_with("peer-"), "{host}: {found}");
    }
    for own in ["peer-0", "peer-1"] {
        assert_eq!(page(kubectl, "client", &format!("{own}.peers:8080")), own);
    }
    let found = page(kubectl, "host-client", "web.default.svc.cluster.local");
    assert!(found.starts_with("peer-"), "{found}");
}

fn names_are_what_they_are(kubectl: &Kubectl) {
    let web = kubectl.ok("get service web -o jsonpath={.spec.clusterIP}");
    let name = "web.default.svc.cluster.local";
    let srv = looked_up(kubectl, "client", &format!("-type=srv _http._tcp.{name}"));
    assert!(srv.contains(&format!("80 {name}")), "{srv}");
    let back = looked_up(kubectl, "client", &web);
    assert!(back.contains(&format!("name = {name}")), "{back}");
    let peers = looked_up(kubectl, "client", "peers.default.svc.cluster.local");
    for pod in ["peer-0", "peer-1"] {
        let address = kubectl.ok(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"));
        assert!(peers.contains(&address), "{peers}");
    }
    let absent = looked_up(kubectl, "client", "absent.default.svc.cluster.local.");
    assert!(absent.contains("NXDOMAIN"), "{absent}");
}

fn others_are_asked(kubectl: &Kubectl) {
    // Five names to try, and the first question is enough.
    let found = looked_up(
        kubectl,
        "client",
        "www.example.org.default.svc.cluster.local",
    );
    assert!(
        found.contains("canonical name = www.example.org"),
        "{found}"
    );
    assert!(found.contains(ELSEWHERE), "{found}");
    let found = looked_up(kubectl, "client", "www.example.org");
    assert!(found.contains(ELSEWHERE), "{found}");
}

/// The kernel follows none of them.
fn questions_are_no_connections(cluster: &Cluster, kubectl: &Kubectl) {
    looked_up(kubectl, "client", "web.default.svc.cluster.local");
    let table = cluster
        .site
        .within("n1", &["cat", "/proc/net/nf_conntrack"]);
    assert!(!table.contains(ADDRESS), "{table}");
}

#[test]
fn names_are_answered_without_a_server_and_after_a_kill() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(1, &[]);
    let kubectl = cluster.kubectl();
    kubectl.apply(&format!(
        "{WORLD}{}{}",
        serving("peer-0"),
        asking("client", "")
    ));
    for pod in ["peer-0", "client"] {
        kubectl.pod_ready(pod);
    }
    page(&kubectl, "client", "web");
    // Asks all the time, and notes what is wrong.
    let asks = "while :; do nslookup web.default.svc.cluster.local. > /tmp/said 2>&1 && echo right >> /tmp/log \
                || cat /tmp/said >> /tmp/log; sleep 0.1; done";
    let (code, said) = within(&kubectl, "client", &format!("({asks}) > /dev/null 2>&1 &"));
    assert_eq!(code, 0, "{said}");
    let right = || {
        let (_, log) = within(&kubectl, "client", "grep -c right /tmp/log");
        log.trim().parse::<usize>().unwrap_or(0)
    };
    wait::until("answers", PATIENCE, || {
        if right() > 3 { Ok(()) } else { Err(()) }
    });

    let data = cluster.site.subdir("n1-data");
    wait::until("the names on the disk", PATIENCE, || {
        let kept = std::fs::read_to_string(data.join("agent/names.json")).unwrap_or_default();
        let is_kept = kept.contains(r#""name":"web""#) && kept.contains("peer-0");
        if is_kept { Ok(()) } else { Err(kept) }
    });
    cluster.server.as_mut().expect("a server").kill();
    let pid = cluster.site.within("n1", &["pgrep", "-f", "sleep 3600"]);
    let pid = pid.lines().next().expect("the client's process").to_owned();
    let count = |cluster: &Cluster| {
        let log = format!("/proc/{pid}/root/tmp/log");
        let text = cluster.site.within("n1", &["cat", &log]);
        text.matches("right").count()
    };
    let before = count(&cluster);
    wait::until("answers without a server", PATIENCE, || {
        if count(&cluster) > before + 5 {
            Ok(())
        } else {
            Err(())
        }
    });
    // One that starts then knows what the one before has known.
    let next_agent_answers = |cluster: &mut Cluster, which: &str| {
        cluster.nodes[0].agent.as_mut().expect("an agent").kill();
        cluster.start_agent(0);
        let before = count(cluster);
        wait::until(which, Duration::from_secs(20), || {
            if count(cluster) > before + 5 {
                Ok(())
            } else {
                Err(())
            }
        });
    };
    next_agent_answers(&mut cluster, "answers of an agent without a server");
    cluster.start_server();
    cluster.wait_ready(1);
    next_agent_answers(&mut cluster, "answers of the next agent");
    let (_, log) = within(&kubectl, "client", "cat /tmp/log");
    assert!(
        !log.contains("NXDOMAIN"),
        "a name that is there was denied: {log}"
    );
}

#[test]
fn a_server_of_somebody_else_answers_instead() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::up(&["--no-dns"]);
    let _elsewhere = foreign_server(&cluster, "n1", "5353");
    let kubectl = cluster.kubectl();
    let address = &cluster.node("n1").address;
    let behind = format!(
        r#"
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {ADDRESS}
  ports: [{{name: dns, protocol: UDP, port: 53, targetPort: 5353}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns-1, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
ports: [{{name: dns, protocol: UDP, port: 5353}}]
endpoints: [{{addresses: ["{address}"]}}]
{}"#,
        asking("client", "")
    );
    kubectl.apply(&behind);
    kubectl.pod_ready("client");
    wait::until("the server of somebody else", PATIENCE, || {
        let found = looked_up(&kubectl, "client", "web.default.svc.cluster.local");
        if found.contains(ELSEWHERE) {
            Ok(())
        } else {
            Err(found)
        }
    });
    let links = cluster
        .site
        .within("n1", &["ip", "address", "show", "dev", "lo"]);
    assert!(!links.contains(ADDRESS), "{links}");
}
