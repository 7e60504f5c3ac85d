//! A node before several servers, of which one is lost.

use coracle_tests::{
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    several::{NODE, Several},
    wait,
};
use nix::sys::signal::{Signal, kill};

/// How a server is lost, and how it comes back.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Its process dies, and the kernel says so to all who are connected.
    Killed,
    /// Its process does nothing, and the kernel goes on accepting for it.
    Stopped,
}

#[test]
fn a_node_stays_ready_through_the_loss_of_any_server() {
    if !is_root_or_skip() {
        return;
    }
    let mut several = Several::start(2);
    for (round, loss) in [Loss::Killed, Loss::Stopped, Loss::Killed]
        .into_iter()
        .enumerate()
    {
        let used = in_use(&several);
        let kubectl = several.kubectl(1 - used);
        let ready = ready_since(&kubectl);
        let pid = several.servers[used].process.pid();
        match loss {
            Loss::Killed => drop(several.servers[used].process.kill()),
            Loss::Stopped => kill(pid, Signal::SIGSTOP).expect("stop the server"),
        }
        wait::until("the node has left the server", PATIENCE, || {
            match several.connections() {
                counts if counts[used] == 0 && counts[1 - used] > 0 => Ok(()),
                counts => Err((counts, several.agent_log())),
            }
        });
        // Two heartbeats, and what was written in between has come.
        for _ in 0..2 {
            let before = renewal(&kubectl);
            wait::until("a heartbeat", PATIENCE, || match renewal(&kubectl) {
                now if now != before => Ok(()),
                now => Err((now, several.agent_log())),
            });
        }
        let pod = format!("after-{round}");
        kubectl.ok(&format!(
            "run {pod} --image=busybox --image-pull-policy=IfNotPresent --restart=Never -- sleep 3600"
        ));
        kubectl.pod_ready(&pod);
        assert_eq!(
            ready_since(&kubectl),
            ready,
            "it was Ready all the time ({loss:?})"
        );
        match loss {
            Loss::Killed => several.start_server(used),
            Loss::Stopped => kill(pid, Signal::SIGCONT).expect("let the server go on"),
        }
        wait::until(
            "all pods are there for the server that is back",
            PATIENCE,
            || {
                let names = several.kubectl(used).run("get pods -o name");
                let is_all = names.stdout.lines().count() == round + 1;
                if is_all { Ok(()) } else { Err(names) }
            },
        );
    }
}

/// The server that the node's connections lead to.
fn in_use(several: &Several) -> usize {
    wait::until("one server is used", PATIENCE, || {
        let counts = several.connections();
        let most = counts.iter().max().copied().unwrap_or_default();
        let used = counts.iter().position(|count| *count == most);
        // Pods, Services, slices and Nodes are watched.
        used.filter(|_| most >= 4).ok_or(counts)
    })
}

fn ready_since(kubectl: &Kubectl) -> String {
    let ready =
        "jsonpath={.status.conditions[?(@.type==\"Ready\")]['status','lastTransitionTime']}";
    let ready = kubectl.ok_args(&["get", "node", NODE, "-o", ready]);
    assert!(ready.starts_with("True "), "{ready}");
    ready
}

fn renewal(kubectl: &Kubectl) -> String {
    let time = "jsonpath={.spec.renewTime}";
    kubectl.ok_args(&["get", "lease", NODE, "-n", "kube-node-lease", "-o", time])
}
