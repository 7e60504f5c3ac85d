//! `coracle up` on one host: the story of the README, seen from outside.

use std::{collections::BTreeSet, process::Command, time::Duration};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::PATIENCE,
    process::{self, Process},
    residue, wait, workspace,
};

fn example(name: &str) -> String {
    workspace()
        .join("examples")
        .join(name)
        .to_string_lossy()
        .into_owned()
}

/// One cluster for the whole story: starting one takes longer than any single step.
#[test]
fn nginx_runs_scales_rolls_and_goes_without_a_trace() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();

    kubectl.ok(&format!("apply -f {}", example("nginx.yaml")));
    kubectl.rolled_out("nginx");
    let ip = kubectl.ok("get service nginx -o jsonpath={.spec.clusterIP}");
    page_comes_through_the_cluster_ip_from_node_and_pod(&cluster, &ip);
    every_replica_answers(&cluster, &ip);
    logs_show_the_requests(&cluster);
    exec_runs_in_the_container(&cluster);
    the_api_server_answers_inside_pods(&cluster);
    scaling_up_and_down_converges(&cluster);
    a_rolling_update_fails_no_request(&cluster, &ip);
    a_crashed_container_is_restarted(&cluster);
    a_lost_run_directory_costs_each_pod_a_restart(&mut cluster);
    without_endpoints_connections_are_refused(&cluster, &ip);

    kubectl.ok(&format!("delete -f {}", example("nginx.yaml")));
    kubectl.count_is("pods", 0);
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

fn page_comes_through_the_cluster_ip_from_node_and_pod(cluster: &Cluster, ip: &str) {
    let page = wait::until("the page through the ClusterIP", PATIENCE, || {
        cluster.site.fetch("n1", &format!("http://{ip}/"))
    });
    assert!(page.contains("Welcome to nginx!"), "{page}");
    let kubectl = cluster.kubectl();
    let pod = &kubectl.names("pods -l app=nginx")[0];
    // From a pod to its own Service: one of three times to itself, so this covers the hairpin, too.
    for _ in 0..6 {
        let page = kubectl.ok(&format!(
            "exec {pod} -- timeout 5 wget -q -O - http://{ip}/"
        ));
        assert!(page.contains("Welcome to nginx!"), "{page}");
    }
}

fn every_replica_answers(cluster: &Cluster, ip: &str) {
    let pods: BTreeSet<String> = cluster
        .kubectl()
        .names("pods -l app=nginx")
        .into_iter()
        .collect();
    assert_eq!(pods.len(), 3);
    let mut seen = BTreeSet::new();
    wait::until("every replica answers", PATIENCE, || {
        seen.insert(
            cluster
                .site
                .fetch("n1", &format!("http://{ip}/hostname"))?
                .trim()
                .to_owned(),
        );
        if seen == pods {
            Ok(())
        } else {
            Err(format!("{seen:?} of {pods:?}"))
        }
    });
}

fn logs_show_the_requests(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = &kubectl.names("pods -l app=nginx")[0];
    let address = kubectl.ok(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"));
    cluster
        .site
        .fetch("n1", &format!("http://{address}/?marked-request"))
        .expect("the pod answers");
    wait::until("the request is in the log", PATIENCE, || {
        let log = kubectl.ok(&format!("logs {pod} --tail=20"));
        if log.contains("marked-request") {
            Ok(())
        } else {
            Err(log)
        }
    });
    let stamped = kubectl.ok(&format!("logs {pod} --tail=1 --timestamps"));
    assert!(stamped.starts_with("20"), "{stamped}");
    assert_eq!(
        kubectl.ok(&format!("logs {pod} --tail=1")).lines().count(),
        1
    );
}

fn exec_runs_in_the_container(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = &kubectl.names("pods -l app=nginx")[0];
    assert_eq!(
        kubectl.ok(&format!("exec {pod} -- hostname")).trim(),
        pod.as_str()
    );
    let args = [
        "exec",
        pod,
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ];
    let output = coracle_tests::process::run(&mut kubectl.command(&args));
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("err\n"));
}

fn the_api_server_answers_inside_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = &kubectl.names("pods -l app=nginx")[0];
    let script = "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; \
                  cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; \
                  nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo ' reached'";
    let said = kubectl.ok_args(&["exec", pod, "--", "sh", "-c", script]);
    assert!(
        said.contains("10.96.0.1:443") && said.contains("default") && said.contains("reached"),
        "{said}"
    );
}

fn scaling_up_and_down_converges(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.ok("scale deployment nginx --replicas 6");
    kubectl.rolled_out("nginx");
    kubectl.count_is("pods -l app=nginx", 6);
    kubectl.ok("scale deployment nginx --replicas 3");
    kubectl.count_is("pods -l app=nginx", 3);
}

/// The update changes an annotation of the template and adds a preStop pause, as people do who want
/// no errors.
fn a_rolling_update_fails_no_request(cluster: &Cluster, ip: &str) {
    let kubectl = cluster.kubectl();
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"nginx","lifecycle":{"preStop":{"sleep":{"seconds":2}}}}]}}}}"#;
    kubectl.ok_args(&["patch", "deployment", "nginx", "-p", patch]);
    kubectl.rolled_out("nginx");
    wait::until("the old pods are gone", PATIENCE, || {
        let pods = kubectl.names("pods -l app=nginx");
        if pods.len() == 3 { Ok(()) } else { Err(pods) }
    });
    let before: BTreeSet<String> = kubectl.names("pods -l app=nginx").into_iter().collect();

    let mut load = cluster.site.command("n1", "hey");
    load.args([
        "-z",
        "12s",
        "-c",
        "4",
        "-q",
        "50",
        "-disable-keepalive",
        "-t",
        "5",
        &format!("http://{ip}/"),
    ]);
    let mut load = Process::start(load, &cluster.site.dir().join("load.log"));
    kubectl.ok("rollout restart deployment/nginx");
    kubectl.rolled_out("nginx");
    let status = wait::until("the load ends", Duration::from_secs(60), || {
        load.ended().ok_or("running")
    });
    assert!(status.success());
    let report = load.output();
    assert!(report.contains("[200]"), "{report}");
    let bad: Vec<&str> = report.lines().filter(|line| is_bad(line)).collect();
    assert!(bad.is_empty(), "failed requests: {bad:?}\n{report}");
    let after: BTreeSet<String> = kubectl.names("pods -l app=nginx").into_iter().collect();
    assert!(
        before.is_disjoint(&after) || after.len() > 3,
        "no pod was replaced: {before:?} {after:?}"
    );
    let history = kubectl.ok("rollout history deployment/nginx");
    assert!(history.contains('3'), "{history}");
    kubectl.ok("rollout undo deployment/nginx");
    kubectl.rolled_out("nginx");
}

/// hey prints `[code] N responses` and, below "Error distribution", `[N] message`.
fn is_bad(line: &str) -> bool {
    let line = line.trim();
    let code = line
        .strip_prefix('[')
        .and_then(|rest| rest.split(']').next());
    code.is_some_and(|code| code != "200")
}

fn a_crashed_container_is_restarted(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // Those of the last roll-out must have gone: the first name might be one of them.
    kubectl.count_is("pods -l app=nginx", 3);
    let pod = kubectl.names("pods -l app=nginx")[0].clone();
    // The container's PID 1 gets no fatal signal from inside; nginx stops itself when asked.
    kubectl.run(&format!("exec {pod} -- nginx -s stop"));
    wait::until("the container is restarted", PATIENCE, || {
        let restarts = kubectl.ok(&format!(
            "get pod {pod} -o jsonpath={{.status.containerStatuses[0].restartCount}}"
        ));
        if restarts.trim() == "1" {
            Ok(())
        } else {
            Err(restarts)
        }
    });
    kubectl.pod_ready(&pod);
}

/// Somebody has cleaned up while the agent was away.
fn a_lost_run_directory_costs_each_pod_a_restart(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl();
    let restarts = || {
        let path = "{.items[*].status.containerStatuses[0].restartCount}";
        let counts = kubectl.ok(&format!("get pods -l app=nginx -o jsonpath={path}"));
        let counts = counts.split_whitespace();
        counts
            .map(|count| count.parse::<u32>().expect("a number"))
            .collect::<Vec<_>>()
    };
    let before: u32 = restarts().iter().sum();
    cluster.nodes[0]
        .agent
        .as_mut()
        .expect("the agent runs")
        .kill();
    // It stops at what is mounted there.
    let run_dir = cluster.site.dir().join("n1-run");
    process::run(Command::new("rm").arg("-rf").arg(run_dir));
    cluster.start_agent(0);
    cluster.wait_ready(1);
    wait::until("each pod has started once more", PATIENCE, || {
        let now = restarts();
        if now.len() == 3 && now.iter().sum::<u32>() == before + 3 {
            Ok(())
        } else {
            Err(now)
        }
    });
    wait::until("one shim a pod is left", PATIENCE, || {
        let shims = residue::shims_below(cluster.site.dir());
        if shims.len() == 3 { Ok(()) } else { Err(shims) }
    });
    let events = kubectl.ok("get events --field-selector reason=RunDirectoryLost");
    assert!(events.contains("node/n1"), "{events}");
    kubectl.rolled_out("nginx");
}

fn without_endpoints_connections_are_refused(cluster: &Cluster, ip: &str) {
    let kubectl = cluster.kubectl();
    kubectl.ok("scale deployment nginx --replicas 0");
    kubectl.count_is("pods -l app=nginx", 0);
    wait::until("the Service refuses", PATIENCE, || {
        match cluster.site.fetch("n1", &format!("http://{ip}/")) {
            Err(why) if why.contains("Connection refused") => Ok(()),
            other => Err(other),
        }
    });
}
