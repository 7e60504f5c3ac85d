//! The run directory is lost under pods that run: they are ended, and so are their shims.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use coracle_agent::runtime::*;

use super::harness::*;

/// What an agent that is no more has left.
struct Lost {
    node: Node,
    /// Ran in its container when the agent ended.
    pod: SandboxConfig,
    container: ContainerId,
    process: i32,
    shims: Vec<i32>,
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A sandbox whose cgroup is where an agent would have it.
fn sandbox(node: &Node) -> SandboxConfig {
    let config = node.sandbox();
    SandboxConfig {
        cgroup_parent: format!("{}/kubepods/burstable/pod{}", node.cgroup, config.pod.uid),
        ..config
    }
}

fn lives(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Runs a pod with a process, and one whose container has ended; then the agent is killed.
fn leave_pods(prepare: fn(&Path)) -> Option<Lost> {
    let agent = tokio_runtime();
    let lost = agent.block_on(async {
        let mut node = node().await?;
        node.crash();
        prepare(&node.dir.path().join("run"));
        node.start().await;
        let pod = sandbox(&node);
        let (running, container) = node.run_in(&pod, &shell("sleep 1000 & wait")).await;
        let (ended, other) = node.run_in(&sandbox(&node), &shell("exit 3")).await;
        node.exited(&other).await;
        let ContainerState::Running { pid, .. } = node.status(&container).await.state else {
            panic!("it runs");
        };
        let shims = [running, ended].map(|id| shim_pid(&node, &id)).to_vec();
        node.crash();
        Some(Lost {
            node,
            pod,
            container,
            process: pid,
            shims,
        })
    });
    // With all tasks, and so with its connections: as SIGKILL does.
    agent.shutdown_timeout(LIMIT);
    lost
}

/// A pod of another agent, which has its cgroups in the same place.
struct Foreign {
    process: Child,
    cgroup: PathBuf,
}

impl Foreign {
    fn beside(node: &Node) -> Self {
        let class = format!("{}/kubepods/burstable", &node.cgroup[1..]);
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = mountinfo
            .lines()
            .filter(|line| line.contains(" - cgroup"))
            .filter_map(|line| line.split(' ').nth(4));
        // A new cgroup of cpuset takes no process.
        let place = points
            .filter(|point| !point.ends_with("cpuset"))
            .map(|point| Path::new(point).join(&class))
            .find(|place| place.is_dir());
        let cgroup = place.expect("pods have run").join("podforeign");
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::create_dir(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), process.id().to_string()).unwrap();
        Self { process, cgroup }
    }

    async fn end(mut self) {
        assert!(
            self.process.try_wait().unwrap().is_none(),
            "it is left alone"
        );
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let removed = || fs::remove_dir(&self.cgroup).is_ok();
        eventually("its cgroup is free", removed).await;
    }
}

/// The next agent starts, and the pod with it.
async fn next_agent_runs_each_pod_once(lost: Lost) {
    let Lost {
        mut node,
        pod,
        container: lost_container,
        process,
        shims,
    } = lost;
    let foreign = Foreign::beside(&node);
    node.start().await;
    eventually("nothing runs without a record", || !lives(process)).await;
    assert_eq!(node.runtime().lost_pods(), ["default/pod-0"]);
    assert_eq!(
        node.exited(&lost_container).await,
        (255, "Unknown".to_owned())
    );
    assert!(
        node.runtime().known_sandboxes().is_empty(),
        "the network is free"
    );
    node.network.attached.lock().clear();
    let again = SandboxConfig { attempt: 1, ..pod };
    let (_, id) = node.run_in(&again, &container(&["sleep", "1000"])).await;
    for shim in shims {
        eventually("the shim has ended, too", || !lives(shim)).await;
    }
    assert_eq!(
        node.exec(&id, "echo undisturbed").await.stdout,
        b"undisturbed\n"
    );
    foreign.end().await;
    node.remove_pods().await;
    let run = node.dir.path().join("run");
    run_command(&format!("umount -l {} 2>/dev/null", run.display()));
    node.assert_no_residue().await;
}

#[test]
fn a_removed_run_directory_costs_a_restart() {
    let Some(lost) = leave_pods(|_| ()) else {
        return;
    };
    let run = lost.node.dir.path().join("run");
    // Stops at what is pinned there, as anybody's would.
    run_command(&format!("rm -rf {} 2>/dev/null", run.display()));
    tokio_runtime().block_on(next_agent_runs_each_pod_once(lost));
}

#[test]
fn a_run_directory_in_memory_that_is_mounted_anew_costs_a_restart() {
    let mount = |run: &Path| {
        let script = format!("mount -t tmpfs -o mode=755 coracle-test {}", run.display());
        run_command(&script);
    };
    let Some(lost) = leave_pods(mount) else {
        return;
    };
    let run = lost.node.dir.path().join("run");
    run_command(&format!("umount -l {}", run.display()));
    mount(&run);
    tokio_runtime().block_on(next_agent_runs_each_pod_once(lost));
}

/// No agent comes any more.
#[test]
fn shims_that_cannot_be_found_end_by_themselves() {
    let Some(lost) = leave_pods(|_| ()) else {
        return;
    };
    let run = lost.node.dir.path().join("run");
    assert!(lives(lost.process), "they outlive their agent");
    run_command(&format!("rm -rf {} 2>/dev/null", run.display()));
    tokio_runtime().block_on(async {
        for shim in &lost.shims {
            eventually("the shim has ended", || !lives(*shim)).await;
        }
        eventually("and its container", || !lives(lost.process)).await;
    });
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(run.to_str().unwrap()), "{mounts}");
}
