//! `coracle up --join`: a machine that is a server and a node comes to a cluster that has a server.

use coracle_tests::{
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    machines::{CLIENTS, Machines, Plan},
    wait,
};

const UP: &str = "up";

#[test]
fn a_machine_joins_as_server_and_node_and_goes_on_without_the_first() {
    if !is_root_or_skip() {
        return;
    }
    let mut machines = Machines::start(Plan {
        machines: 1,
        ..Plan::default()
    });
    machines.start_up(UP, 60);
    let first = machines.kubectl(0);
    wait::until("the node is Ready", PATIENCE, || {
        let nodes = first.run("get nodes --no-headers");
        let is_ready = nodes.stdout.starts_with(UP) && nodes.stdout.contains(" Ready ");
        if is_ready { Ok(()) } else { Err(nodes) }
    });
    leads_to(&first, "198.18.0.1 198.18.0.60");
    let data = machines.site.dir().join("up-data");
    assert!(data.join("server/joined.json").exists());
    let up = Kubectl::new(&machines.site, CLIENTS, data.join("admin.kubeconfig"));
    runs_a_pod(&up, &first, "together");

    // The member of etcd stays.
    machines.all[0].server.as_mut().expect("it runs").kill();
    leads_to(&up, "198.18.0.60");
    runs_a_pod(&up, &up, "alone");

    // It comes again without the one that it has joined, and without a token.
    let process = machines.nodes[0].agent.as_mut().expect("it runs");
    let status = process.stop();
    assert!(status.success(), "{status}: {}", process.output());
    machines.start_up(UP, 60);
    wait::until("its API is ready", PATIENCE, || {
        let outcome = up.run("get --raw /readyz");
        let is_ready = outcome.stdout == "ok";
        if is_ready { Ok(()) } else { Err(outcome) }
    });
    for pod in ["together", "alone"] {
        // The API is there before the node's own is.
        wait::until("the node tells of its logs", PATIENCE, || {
            let outcome = up.run(&format!("logs {pod}"));
            let is_told = outcome.stdout == "started\n";
            if is_told { Ok(()) } else { Err(outcome) }
        });
    }
    runs_a_pod(&up, &up, "again");
}

fn leads_to(kubectl: &Kubectl, expected: &str) {
    let line = "get endpoints kubernetes -o jsonpath={.subsets[*].addresses[*].ip}";
    wait::until(&format!("it leads to {expected}"), PATIENCE, || {
        let found = kubectl.run(line);
        if found.stdout == expected {
            Ok(())
        } else {
            Err(found)
        }
    });
}

/// A pod that one server is asked for and another one sees running.
fn runs_a_pod(asked: &Kubectl, looked: &Kubectl, pod: &str) {
    let command = "echo started; exec sleep 36000";
    let image = ["--image=busybox", "--image-pull-policy=IfNotPresent"];
    let run = [
        "run",
        pod,
        image[0],
        image[1],
        "--restart=Never",
        "--",
        "sh",
        "-c",
        command,
    ];
    asked.ok_args(&run);
    looked.pod_ready(pod);
}
