//! A server and nodes on hosts of their own: joining, traffic between nodes, faults.

use std::time::Duration;

use coracle_tests::{
    binary,
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::Process,
    wait,
    workload::{identities, nginx_pids},
    workspace,
};

/// Shortened, so that node death is over within the test: Unknown after 8 s, eviction 2 s later.
const SHORT_TIMERS: &[&str] = &[
    "--node-monitor-grace-period",
    "8",
    "--pod-eviction-timeout",
    "2",
];

/// Ten seconds are promised; twice that on a machine that is busy with other tests.
const CATCH_UP: Duration = Duration::from_secs(20);

#[test]
fn three_nodes_serve_across_and_survive_kills() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::server_and_nodes(3, SHORT_TIMERS);
    let kubectl = cluster.kubectl();
    kubectl.ok(&format!(
        "apply -f {}",
        workspace().join("examples/nginx.yaml").display()
    ));
    kubectl.rolled_out("nginx");
    kubectl.ok("scale deployment nginx --replicas 6");
    kubectl.rolled_out("nginx");
    let ip = kubectl.ok("get service nginx -o jsonpath={.spec.clusterIP}");

    pods_are_spread(&kubectl);
    every_node_reaches_the_service(&cluster, &ip);
    a_pod_reaches_a_pod_on_another_node_under_its_own_address(&kubectl);
    a_second_machine_does_not_become_a_node_that_is_there(&mut cluster, &kubectl);
    killing_an_agent_under_traffic_changes_nothing(&mut cluster, &kubectl, &ip);
    killing_the_server_loses_nothing(&mut cluster, &kubectl, &ip);
    a_dead_nodes_pods_are_replaced(&mut cluster, &kubectl);
    a_node_catches_up_when_its_link_is_back(&mut cluster, &kubectl);

    kubectl.ok(&format!(
        "delete -f {}",
        workspace().join("examples/nginx.yaml").display()
    ));
    for index in [0, 1] {
        let left = cluster.reset_node(index);
        assert!(
            left.is_empty(),
            "left behind on node {index}:\n{}",
            left.join("\n")
        );
    }
}

fn pods_are_spread(kubectl: &Kubectl) {
    let nodes = kubectl.ok("get pods -l app=nginx -o jsonpath={.items[*].spec.nodeName}");
    for node in ["n1", "n2", "n3"] {
        assert!(nodes.contains(node), "no pod on {node}: {nodes}");
    }
}

fn every_node_reaches_the_service(cluster: &Cluster, ip: &str) {
    for node in &cluster.nodes {
        let page = wait::until("the page from every node", PATIENCE, || {
            cluster.site.fetch(&node.name, &format!("http://{ip}/"))
        });
        assert!(page.contains("Welcome to nginx!"), "{page}");
    }
}

fn a_pod_reaches_a_pod_on_another_node_under_its_own_address(kubectl: &Kubectl) {
    let pods = kubectl.json("pods -l app=nginx");
    let items = pods["items"].as_array().expect("items");
    let text = |pod: &serde_json::Value, pointer: &str| {
        pod.pointer(pointer)
            .and_then(|v| v.as_str())
            .unwrap_or("")
            .to_owned()
    };
    let from = &items[0];
    let to = items
        .iter()
        .find(|pod| text(pod, "/spec/nodeName") != text(from, "/spec/nodeName"))
        .expect("a pod on another node");
    let (name, target) = (text(from, "/metadata/name"), text(to, "/status/podIP"));
    let own = text(from, "/status/podIP");
    kubectl.ok(&format!(
        "exec {name} -- timeout 5 wget -q -O - http://{target}/"
    ));
    // What the other side logs is the caller's own address: no translation between pods.
    let log = kubectl.ok(&format!("logs {} --tail=5", text(to, "/metadata/name")));
    assert!(log.contains(&own), "{own} is not in {log}");
}

/// As a clone of the first does, with data of its own.
fn a_second_machine_does_not_become_a_node_that_is_there(cluster: &mut Cluster, kubectl: &Kubectl) {
    let n1 = || kubectl.ok("get node n1 -o jsonpath={.metadata.uid}{.status.addresses}");
    let (before, token) = (n1(), cluster.token());
    let site = &mut cluster.site;
    let address = site.add_host("clone", 9);
    let mut agent = site.command("clone", binary("coracle"));
    agent.args([
        "agent",
        "--server",
        "https://198.18.0.1:6443",
        "--token",
        &token,
    ]);
    agent.args(["--node-name", "n1", "--node-ip", &address]);
    agent.args(["--cgroup-root", &site.cgroup("clone")]);
    for (flag, name) in [("--data-dir", "clone-data"), ("--run-dir", "clone-run")] {
        agent.arg(flag).arg(site.subdir(name));
    }
    let mut clone = Process::start(agent, &site.dir().join("clone.log"));
    let ended = wait::until("the clone is refused", PATIENCE, || {
        clone.ended().ok_or_else(|| clone.output())
    });
    let said = clone.output();
    let why = "node \"n1\" exists, and this machine does not have its key: give this machine another --node-name";
    assert!(!ended.success() && said.contains(why), "{ended}: {said}");
    assert_eq!(n1(), before);
}

fn killing_an_agent_under_traffic_changes_nothing(
    cluster: &mut Cluster,
    kubectl: &Kubectl,
    ip: &str,
) {
    let before = (identities(kubectl), nginx_pids(cluster));
    assert_eq!(before.1.len(), 6, "{before:?}");
    let mut load = cluster.site.command("n1", "hey");
    load.args([
        "-z",
        "6s",
        "-c",
        "2",
        "-q",
        "50",
        "-disable-keepalive",
        "-t",
        "5",
        &format!("http://{ip}/"),
    ]);
    let mut load = Process::start(load, &cluster.site.dir().join("load.log"));
    for _ in 0..3 {
        cluster.nodes[0]
            .agent
            .as_mut()
            .expect("the agent runs")
            .kill();
        cluster.start_agent(0);
        cluster.wait_ready(3);
    }
    wait::until("the load ends", Duration::from_secs(60), || {
        load.ended().ok_or("running")
    });
    let report = load.output();
    assert!(
        report.contains("[200]") && !report.contains("Error distribution"),
        "{report}"
    );
    assert_eq!((identities(kubectl), nginx_pids(cluster)), before);
}

fn killing_the_server_loses_nothing(cluster: &mut Cluster, kubectl: &Kubectl, ip: &str) {
    let before = (identities(kubectl), nginx_pids(cluster));
    cluster.server.as_mut().expect("the server runs").kill();
    assert!(
        cluster.site.fetch("n2", &format!("http://{ip}/")).is_ok(),
        "traffic needs no server"
    );
    cluster.start_server();
    cluster.wait_ready(3);
    assert_eq!((identities(kubectl), nginx_pids(cluster)), before);
}

fn a_dead_nodes_pods_are_replaced(cluster: &mut Cluster, kubectl: &Kubectl) {
    let victim = cluster.nodes[2].last;
    cluster.site.set_link(victim, false);
    wait::until("the node is NotReady", PATIENCE, || {
        let ready = cluster.ready_nodes(kubectl);
        if ready.len() == 2 { Ok(()) } else { Err(ready) }
    });
    wait::until(
        "six pods are Ready elsewhere",
        Duration::from_secs(120),
        || {
            let rows = kubectl.ok("get pods -l app=nginx -o wide --no-headers");
            let running = rows.lines().filter(|row| {
                row.contains("1/1") && row.contains("Running") && !row.contains(" n3 ")
            });
            if running.count() == 6 {
                Ok(())
            } else {
                Err(rows.clone())
            }
        },
    );
}

/// What the cluster decided without it is done there soon after its link is back: no pod runs twice
/// for long, and no Service leads to where its pods were.
fn a_node_catches_up_when_its_link_is_back(cluster: &mut Cluster, kubectl: &Kubectl) {
    kubectl.ok("expose deployment nginx --name meanwhile --port 80");
    let ip = kubectl.ok("get service meanwhile -o jsonpath={.spec.clusterIP}");
    assert!(
        nginx_pids(cluster).len() > 6,
        "the cut-off node's pods run on"
    );
    cluster.site.set_link(cluster.nodes[2].last, true);
    wait::until(
        "the node is ready, its old pods have ended, the new Service works",
        CATCH_UP,
        || {
            let (ready, running) = (cluster.ready_nodes(kubectl), nginx_pids(cluster));
            let page = cluster.site.fetch("n3", &format!("http://{ip}/"));
            if ready.len() == 3 && running.len() == 6 && page.is_ok() {
                Ok(())
            } else {
                Err((ready, running, page))
            }
        },
    );
    wait::until("the node's old pods are gone", PATIENCE, || {
        let rows = kubectl.ok("get pods -l app=nginx -o wide --no-headers");
        let stale = rows
            .lines()
            .filter(|row| row.contains("Terminating") || row.contains("Unknown"))
            .count();
        if stale == 0 { Ok(()) } else { Err(rows) }
    });
    kubectl.ok("delete service meanwhile");
}
