//! Every file in `examples/` works as it is, the manifests by one `kubectl apply -f examples/`
//! here; node/registries.yaml is what the nodes of `three_nodes.rs` pull through, and `webhooks.rs`
//! installs what is in webhook/.

use std::time::Duration;

use coracle_tests::{cluster::Cluster, is_root_or_skip, kubectl::PATIENCE, wait, workspace};

#[test]
fn examples_apply_and_do_what_they_say() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    let examples = workspace().join("examples");
    kubectl.ok(&format!("apply -f {}", examples.display()));
    kubectl.rolled_out("nginx");
    for pod in [
        "shared-volume",
        "probes",
        "configured",
        "page",
        "friend",
        "stranger",
    ] {
        kubectl.pod_ready(pod);
    }
    every_node_has_its_agent(&cluster);
    a_counter_counts_on(&cluster);
    a_job_of_the_schedule_runs_at_once(&cluster);
    the_shared_volume_is_shared(&cluster);
    programs_of_the_images_resolve_names(&cluster);
    friends_alone_reach_the_page(&cluster);
    configuration_arrives_as_environment_and_files(&cluster);
    applying_again_changes_nothing(&cluster);
    describe_and_explain_work(&cluster);
    a_busy_deployment_grows(&cluster);

    kubectl.ok(&format!("delete -f {} --timeout=120s", examples.display()));
    kubectl.count_is("pods", 0);
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

fn every_node_has_its_agent(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.ok("rollout status daemonset/node-agent --timeout=60s");
    assert_eq!(kubectl.ok("logs daemonset/node-agent").trim(), "on n1");
}

fn a_counter_counts_on(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let rolled_out = || kubectl.ok("rollout status statefulset/counter --timeout=90s");
    let starts = || kubectl.ok("exec counter-0 -- cat /data/starts");
    rolled_out();
    assert_eq!(starts().trim(), "1");
    kubectl.ok("delete pod counter-0");
    rolled_out();
    assert_eq!(starts().trim(), "2");
}

fn a_job_of_the_schedule_runs_at_once(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.ok("create job now --from=cronjob/report");
    kubectl.ok("wait --for=condition=Complete job/now --timeout=60s");
    assert_eq!(kubectl.ok("logs job/now").trim(), "all is well");
    kubectl.ok("wait --for=jsonpath={.status.lastSuccessfulTime} cronjob/report --timeout=30s");
}

/// What the node measures goes through `metrics.k8s.io` to the autoscaler, which looks each 15 s.
fn a_busy_deployment_grows(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.rolled_out("busy");
    kubectl.ok("exec deployment/busy -- touch /tmp/busy");
    let size = "get deployment busy -o jsonpath={.spec.replicas}";
    wait::until("three of the busy", Duration::from_secs(120), || {
        let size = kubectl.ok(size);
        if size.trim() == "3" {
            Ok(())
        } else {
            Err(size)
        }
    });
    let events = "get events --field-selector reason=SuccessfulRescale -o jsonpath={..message}";
    let why = "reason: cpu resource utilization (percentage of request) above target";
    let told = kubectl.ok(events);
    assert!(told.contains(why), "{told}");
}

fn the_shared_volume_is_shared(cluster: &Cluster) {
    let address = cluster
        .kubectl()
        .ok("get pod shared-volume -o jsonpath={.status.podIP}");
    let page = cluster
        .site
        .fetch("n1", &format!("http://{address}/"))
        .expect("nginx serves the init container's page");
    assert_eq!(page.trim(), "prepared");
    wait::until("the writer's file is served", PATIENCE, || {
        cluster
            .site
            .fetch("n1", &format!("http://{address}/now.txt"))
    });
}

fn programs_of_the_images_resolve_names(cluster: &Cluster) {
    let page = cluster.kubectl().ok_args(&[
        "exec",
        "probes",
        "--",
        "wget",
        "-q",
        "-O-",
        "http://localhost/",
    ]);
    assert!(page.contains("Welcome to nginx"), "{page}");
}

fn friends_alone_reach_the_page(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let asks = |pod: &str| kubectl.run(&format!("exec {pod} -- timeout 2 wget -qO- http://page"));
    wait::until("the page, for a friend", PATIENCE, || {
        let asked = asks("friend");
        match asked.stdout.contains("Welcome to nginx") {
            true => Ok(()),
            false => Err(asked.stdout + &asked.stderr),
        }
    });
    let refused = asks("stranger");
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    // It may ask for names: what is missing is the way.
    kubectl.ok("exec stranger -- nslookup page.default.svc.cluster.local");
}

fn configuration_arrives_as_environment_and_files(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    assert_eq!(
        kubectl.ok("logs configured").trim(),
        "hello from configured"
    );
    let files = kubectl.ok_args(&[
        "exec",
        "configured",
        "--",
        "cat",
        "/etc/app/app.properties",
        "/etc/credentials/password",
    ]);
    assert_eq!(files, "colour=blue\nsize=small\nopen-sesame");
    let mode = kubectl.ok_args(&[
        "exec",
        "configured",
        "--",
        "stat",
        "-L",
        "-c",
        "%a",
        "/etc/credentials/password",
    ]);
    assert_eq!(mode.trim(), "400");
    assert_eq!(
        kubectl
            .ok_args(&["exec", "configured", "--", "sh", "-c", "echo $PASSWORD"])
            .trim(),
        "open-sesame"
    );
}

fn applying_again_changes_nothing(cluster: &Cluster) {
    let said = cluster.kubectl().ok(&format!(
        "apply -f {}",
        workspace().join("examples/nginx.yaml").display()
    ));
    assert!(
        said.lines().all(|line| line.ends_with(" unchanged")),
        "{said}"
    );
}

fn describe_and_explain_work(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let described = kubectl.ok("describe pod probes");
    for expected in [
        "Readiness:",
        "Liveness:",
        "Startup:",
        "Successfully assigned default/probes to n1",
        "Container started",
    ] {
        assert!(
            described.contains(expected),
            "{expected:?} is missing in:\n{described}"
        );
    }
    assert!(
        kubectl
            .ok("describe node n1")
            .contains("Allocated resources"),
        "describe node"
    );
    assert!(
        kubectl
            .ok("explain pod.spec.containers.image")
            .contains("Container image name"),
        "explain"
    );
    assert!(
        kubectl
            .ok("get pods,services,deployments,nodes -o wide -A")
            .contains("n1")
    );
}
