//! Workloads with what they keep, on clusters of the real binaries: data outlive pods, agents and
//! servers, and whatever a server that is killed at any moment was at comes out right.
//!
//! `WORKLOAD_KILLS=100` and `WORKLOAD_LEADERS=50` are long runs, `WORKLOAD_SEED` repeats one.

#[path = "workloads/kept.rs"]
mod kept;
#[path = "workloads/kills.rs"]
mod kills;
#[path = "workloads/outcome.rs"]
mod outcome;

use std::path::Path;

use coracle_tests::{
    cluster::Cluster,
    faults::plan::Random,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    several::Several,
    wait,
};
use kept::{SET, identities, marks, volumes};

/// A pod each minute.
const MINUTELY: &str = r"
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: '* * * * *'
  successfulJobsHistoryLimit: 10
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: tick, image: busybox, imagePullPolicy: IfNotPresent, command: [echo, tick]}]
";

/// Tasks that fail the first time, each in its own pod.
const SOMETIMES: &str = r"
apiVersion: batch/v1
kind: Job
metadata: {name: sometimes}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: OnFailure
      containers:
      - name: task
        image: busybox
        imagePullPolicy: IfNotPresent
        command: [sh, -c, '[ -e /tmp/task/tried ] || { touch /tmp/task/tried; exit 1; }']
        volumeMounts: [{name: task, mountPath: /tmp/task}]
      volumes: [{name: task, emptyDir: {}}]
";

/// As many as fit into half a minute.
const KILLS: u64 = 5;
/// Each waits for a Lease to run out.
const LEADERS: u64 = 2;

#[test]
fn data_outlive_pods_and_all_that_runs_them() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    for manifest in [MINUTELY, SOMETIMES, SET] {
        kubectl.apply(manifest);
    }
    kubectl.ok("rollout status statefulset/db --timeout=90s");
    assert_eq!(kubectl.names("pods -l app=db"), ["db-0", "db-1"]);
    let first = marks(&kubectl, 2);
    assert_ne!(first[0], first[1], "each has a volume of its own");

    a_pod_that_is_deleted_finds_its_data(&kubectl, &first);
    a_kill_of_everything_changes_nothing(&mut cluster, &kubectl, &first);
    a_stop_in_order_changes_nothing(&mut cluster, &kubectl, &first);
    scaling_down_and_up_keeps_claims(&kubectl, &first);
    claims_go_with_a_set_that_says_so(&kubectl);
    a_task_that_failed_was_tried_again_where_it_was(&kubectl);
    outcome::a_job_was_made_each_minute(&kubectl, "tick");

    kubectl.ok("delete cronjob tick");
    kubectl.ok("delete job sometimes");
    kubectl.count_is("jobs,pods", 0);
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

#[test]
fn workloads_come_out_right_when_the_server_is_killed_at_any_moment() {
    if !is_root_or_skip() {
        return;
    }
    let (count, seed) = rounds("WORKLOAD_KILLS", KILLS);
    let mut cluster = Cluster::server_and_nodes(2, &[]);
    let kubectl = cluster.kubectl();
    begin(&kubectl);
    let first = marks(&kubectl, 2);
    a_kill_of_an_agent_changes_nothing(&mut cluster, &kubectl);
    let retained = kills::retain(&kubectl);

    let random = &mut Random::new(seed);
    let kills = kills::play(&kubectl, count, random, || kills::kill_server(&mut cluster));
    all_is_right(&kubectl, 2, &kills, &first);
    retained.is_there(&kubectl);
}

#[test]
fn workloads_come_out_right_when_the_server_that_leads_is_killed_at_any_moment() {
    if !is_root_or_skip() {
        return;
    }
    let (count, seed) = rounds("WORKLOAD_LEADERS", LEADERS);
    let mut several = Several::start(2);
    let kubectl = several.kubectl(0);
    begin(&kubectl);
    let first = marks(&kubectl, 2);
    let retained = kills::retain(&kubectl);
    let random = &mut Random::new(seed);
    let kills = kills::play(&kubectl, count, random, || kills::kill_leader(&mut several));
    all_is_right(&kubectl, 1, &kills, &first);
    retained.is_there(&kubectl);
}

/// How many rounds, and by which numbers.
fn rounds(name: &str, usual: u64) -> (u64, u64) {
    let count = number(name).unwrap_or(usual);
    let seed = number("WORKLOAD_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("{name}={count} WORKLOAD_SEED={seed}");
    (count, seed)
}

fn begin(kubectl: &Kubectl) {
    for manifest in [MINUTELY, SET, kills::OTHERS] {
        kubectl.apply(manifest);
    }
    for what in ["statefulset/db", "daemonset/each", "deployment/web"] {
        kubectl.ok(&format!("rollout status {what} --timeout=90s"));
    }
}

/// No pod too many or too few, no ordinal twice, no Job counted wrong, no volume given twice.
fn all_is_right(kubectl: &Kubectl, nodes: usize, kills: &kills::Kills, first: &[String]) {
    let settled = kills::settled(nodes);
    kills::settle(kubectl, settled);
    outcome::every_workload_has_its_pods(kubectl, settled);
    kills.jobs.iter().for_each(|job| job.is_right(kubectl));
    outcome::no_volume_has_two_claims(kubectl);
    kept::no_two_wrote_at_once(kubectl, settled.set);
    assert_eq!(marks(kubectl, 2), first, "volumes were exchanged");
    outcome::a_job_was_made_each_minute(kubectl, "tick");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: expected a number")),
    )
}

fn a_pod_that_is_deleted_finds_its_data(kubectl: &Kubectl, first: &[String]) {
    let uid = "get pod db-0 -o jsonpath={.metadata.uid}";
    let before = kubectl.ok(uid);
    kubectl.ok("delete pod db-0");
    kubectl.ok("rollout status statefulset/db --timeout=90s");
    assert_ne!(kubectl.ok(uid), before, "it is another pod");
    assert_eq!(marks(kubectl, 2), first);
}

fn a_task_that_failed_was_tried_again_where_it_was(kubectl: &Kubectl) {
    kubectl.ok("wait --for=condition=Complete job/sometimes --timeout=60s");
    let status = kubectl.ok("get job sometimes -o jsonpath={.status.succeeded},{.status.failed}");
    assert_eq!(status, "2,");
    let restarts = "jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    let restarts = kubectl.ok(&format!("get pods -l job-name=sometimes -o {restarts}"));
    assert_eq!(restarts, "1 1");
}

/// Server and agent are one process here.
fn a_kill_of_everything_changes_nothing(
    cluster: &mut Cluster,
    kubectl: &Kubectl,
    first: &[String],
) {
    let before = identities(kubectl, "app=db");
    cluster.nodes[0].agent.as_mut().expect("it runs").kill();
    cluster.start_agent(0);
    cluster.wait_ready(1);
    assert_eq!(identities(kubectl, "app=db"), before);
    assert_eq!(marks(kubectl, 2), first);
}

fn a_stop_in_order_changes_nothing(cluster: &mut Cluster, kubectl: &Kubectl, first: &[String]) {
    let before = identities(kubectl, "app=db");
    cluster.nodes[0].agent.as_mut().expect("it runs").stop();
    cluster.start_agent(0);
    cluster.wait_ready(1);
    assert_eq!(identities(kubectl, "app=db"), before);
    assert_eq!(marks(kubectl, 2), first);
}

fn a_kill_of_an_agent_changes_nothing(cluster: &mut Cluster, kubectl: &Kubectl) {
    let before = identities(kubectl, "app");
    cluster.nodes[0].agent.as_mut().expect("it runs").kill();
    cluster.start_agent(0);
    cluster.wait_ready(2);
    assert_eq!(identities(kubectl, "app"), before);
}

fn scaling_down_and_up_keeps_claims(kubectl: &Kubectl, first: &[String]) {
    kubectl.ok("scale statefulset db --replicas 0");
    kubectl.count_is("pods -l app=db", 0);
    let claims = kubectl.names("pvc");
    assert_eq!(claims, ["data-db-0", "data-db-1"]);
    kubectl.ok("scale statefulset db --replicas 2");
    kubectl.ok("rollout status statefulset/db --timeout=90s");
    assert_eq!(marks(kubectl, 2), first);
}

fn claims_go_with_a_set_that_says_so(kubectl: &Kubectl) {
    let paths: Vec<String> = volumes(kubectl)
        .into_iter()
        .map(|volume| volume.path)
        .collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    for path in &paths {
        assert!(Path::new(path).join("mark").exists(), "{path}");
    }
    let policy = r#"{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"}}}"#;
    kubectl.ok_args(&["patch", "statefulset", "db", "-p", policy]);
    wait::until("claims are the set's", PATIENCE, || {
        let owners = kubectl.ok("get pvc -o jsonpath={.items[*].metadata.ownerReferences[*].kind}");
        if owners == "StatefulSet StatefulSet" {
            Ok(())
        } else {
            Err(owners)
        }
    });
    kubectl.ok("delete statefulset db");
    kubectl.count_is("pods -l app=db", 0);
    kubectl.count_is("pvc", 0);
    kubectl.count_is("pv", 0);
    for path in &paths {
        assert!(!Path::new(path).exists(), "{path} is still there");
    }
}
