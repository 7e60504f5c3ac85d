//! Ranges of Services' addresses as their users know them, by kubectl.

use std::{collections::BTreeSet, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process, wait,
};

/// Fourteen addresses. The API and names have one each.
const SMALL: &str = "10.96.0.0/28";
const LEFT: usize = 12;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: busybox
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir /tmp/w; echo hello > /tmp/w/index.html; exec httpd -f -p 8080 -h /tmp/w"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"]}]
"#;

fn service(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}\n"
    )
}

fn range(name: &str, cidr: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {{name: {name}}}\nspec: {{cidrs: [{cidr}]}}\n"
    )
}

fn apply(kubectl: &Kubectl, manifest: &str) {
    let said = kubectl.apply(manifest);
    assert!(!said.contains("Warning"), "{said}");
}

fn within(kubectl: &Kubectl, script: &str) -> String {
    let exec = ["exec", "client", "--", "sh", "-c", script];
    let output = process::run(&mut kubectl.command(&exec));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn address_of(kubectl: &Kubectl, name: &str) -> String {
    kubectl.ok(&format!(
        "get service {name} -o jsonpath={{.spec.clusterIP}}"
    ))
}

/// What the range says of itself.
fn condition(kubectl: &Kubectl, name: &str) -> String {
    let path = "jsonpath={range .status.conditions[*]}{.type}={.status},{.reason},{.message}{end}";
    kubectl.ok_args(&["get", "servicecidr", name, "-o", path])
}

/// Waits until every address of a Service has its object, and no other is there.
fn addresses_agree(kubectl: &Kubectl) {
    wait::until("addresses and Services agree", PATIENCE, || {
        let path = "jsonpath={.items[*].spec.clusterIP}";
        let of_services = kubectl.ok_args(&["get", "services", "-A", "-o", path]);
        let words = |text: &str| -> Vec<String> {
            let words = text.split_whitespace().filter(|word| *word != "None");
            words.map(str::to_owned).collect()
        };
        let of_services = words(&of_services);
        let services: BTreeSet<String> = of_services.iter().cloned().collect();
        assert_eq!(
            services.len(),
            of_services.len(),
            "one twice: {of_services:?}"
        );
        let objects: BTreeSet<String> = kubectl.names("ipaddresses").into_iter().collect();
        if services == objects {
            Ok(())
        } else {
            Err((services, objects))
        }
    });
}

#[test]
fn a_full_cluster_gets_more_addresses_and_gives_them_back() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(1, &["--service-cidr", SMALL]);
    let kubectl = cluster.kubectl();
    apply(&kubectl, PODS);
    let all: String = (0..LEFT).map(|n| service(&format!("s{n}"))).collect();
    apply(&kubectl, &all);
    let full = kubectl.apply_text(&["apply"], &service("late"));
    let why = "Internal error occurred: failed to allocate a serviceIP: range is full";
    assert!(full.code == 1 && full.stderr.contains(why), "{full:?}");
    apply(&kubectl, &range("more", "10.112.0.0/28"));
    kubectl.ok("wait --for=condition=Ready servicecidr/more --timeout=30s");
    let ready = "Ready=True,,Kubernetes Service CIDR is ready";
    assert_eq!(condition(&kubectl, "more"), ready);
    apply(&kubectl, &service("late"));
    let ip = address_of(&kubectl, "late");
    assert!(ip.starts_with("10.112.0."), "{ip}");
    for pod in ["web", "client"] {
        kubectl.pod_ready(pod);
    }
    answers(&kubectl, &ip);
    held_while_it_is_used(&mut cluster, &ip);
    kubectl.ok("delete service late");
    kubectl.ok("wait --for=delete servicecidr/more --timeout=60s");
    addresses_agree(&kubectl);
    let full = kubectl.apply_text(&["apply"], &service("late"));
    assert!(full.code == 1 && full.stderr.contains(why), "{full:?}");
    creators_race_while_the_server_is_killed(&mut cluster);
}

/// By its address, by its name, back from its address; and what nobody serves is refused.
fn answers(kubectl: &Kubectl, ip: &str) {
    for host in [ip, "late"] {
        wait::until(&format!("{host} answers"), PATIENCE, || {
            let page = within(kubectl, &format!("timeout 5 wget -q -O - http://{host}/"));
            if page == "hello\n" { Ok(()) } else { Err(page) }
        });
    }
    let name = within(kubectl, &format!("nslookup {ip}"));
    assert!(name.contains("late.default.svc.cluster.local"), "{name}");
    wait::until("another port is refused", PATIENCE, || {
        let said = within(kubectl, &format!("timeout 5 wget -O - http://{ip}:81/"));
        if said.contains("Connection refused") {
            Ok(())
        } else {
            Err(said)
        }
    });
}

fn held_while_it_is_used(cluster: &mut Cluster, ip: &str) {
    let kubectl = cluster.kubectl();
    let going = "Ready=False,Terminating,There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
    let is_going = || match condition(&kubectl, "more") {
        said if said == going => Ok(()),
        said => Err(said),
    };
    kubectl.ok("delete servicecidr more --wait=false");
    wait::until("it says what it waits for", PATIENCE, is_going);
    cluster.server.as_mut().expect("a server").kill();
    cluster.start_server();
    let kubectl = cluster.kubectl();
    assert_eq!(condition(&kubectl, "more"), going);
    let refused = kubectl.run("create service clusterip other --tcp=80 --clusterip=10.112.0.9");
    let why =
        "failed to allocate IP 10.112.0.9: the provided network does not match the current range";
    assert!(
        refused.code == 1 && refused.stderr.contains(why),
        "{refused:?}"
    );
    answers(&kubectl, ip);
    // Longer than one that nobody needs would stay.
    let gone = kubectl.run("wait --for=delete servicecidr/more --timeout=12s");
    assert_eq!(gone.code, 1, "{gone:?}");
}

/// Whatever of it was written: no address is two Services', and each has its object.
fn creators_race_while_the_server_is_killed(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl();
    apply(&kubectl, &range("wide", "10.113.0.0/24"));
    let manifest =
        |by: usize| -> String { (0..20).map(|n| service(&format!("r{by}-{n}"))).collect() };
    std::thread::scope(|scope| {
        let creators: Vec<_> = (0..4)
            .map(|by| {
                let kubectl = kubectl.clone();
                scope.spawn(move || kubectl.apply_text(&["create", "--save-config"], &manifest(by)))
            })
            .collect();
        wait::until("the race is on", PATIENCE, || {
            match kubectl.names("services").len() {
                some if some > LEFT + 20 => Ok(()),
                few => Err(few),
            }
        });
        cluster.server.as_mut().expect("a server").kill();
        for creator in creators {
            let _some_are_refused = creator.join().expect("no panic");
        }
    });
    cluster.start_server();
    let kubectl = cluster.kubectl();
    addresses_agree(&kubectl);
    for by in 0..4 {
        apply(&kubectl, &manifest(by));
    }
    addresses_agree(&kubectl);
    let many = kubectl.names("services").len();
    assert_eq!(many, LEFT + 1 + 80);
}

#[test]
fn a_range_that_nobody_needs_goes_after_its_time() {
    if !is_root_or_skip() {
        return;
    }
    let cluster = Cluster::server_and_nodes(0, &[]);
    let kubectl = cluster.kubectl();
    apply(&kubectl, &range("more", "10.112.0.0/24"));
    kubectl.ok("wait --for=condition=Ready servicecidr/more --timeout=30s");
    let started = std::time::Instant::now();
    kubectl.ok("delete servicecidr more --timeout=60s");
    // Deletions are stamped in whole seconds.
    assert!(
        started.elapsed() > Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
    let listed = kubectl.ok("get servicecidrs --no-headers");
    assert!(
        listed.starts_with("kubernetes") && listed.lines().count() == 1,
        "{listed}"
    );
}
