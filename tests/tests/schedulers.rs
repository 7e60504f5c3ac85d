//! Several schedulers: profiles of the server's, one that is a process of its own, and one that
//! somebody else has written.

#[path = "schedulers/preempting.rs"]
mod preempting;

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};

use coracle_tests::{
    binary,
    cluster::Cluster,
    faults::plan::Random,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    process::{Process, run, succeed},
    tool, wait, workspace,
};

use self::preempting::free_milli_cpu;

/// The default profile, and one that fills one node after the other.
const PROFILES: &str = r"
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  plugins:
    score:
      disabled: [{name: '*'}]
      enabled: [{name: NodeResourcesFit}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}
";

/// Of a process: one node alone is allowed.
const OWN: &str = r"
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  resourceName: mine
  leaseDuration: 4s
  renewDeadline: 3s
  retryPeriod: 500ms
profiles:
- schedulerName: mine
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]
";

#[test]
fn pods_are_placed_by_whom_they_name() {
    if !is_root_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let profiles = directory.path().join("profiles.yaml");
    fs::write(&profiles, PROFILES).expect("write the profiles");
    let argument = format!("--scheduler-config={}", profiles.display());
    let cluster = Cluster::server_and_nodes(2, &[&argument]);
    let kubectl = cluster.kubectl();

    a_profile_fills_a_node(&kubectl);
    let own = directory.path().join("own.yaml");
    fs::write(&own, OWN).expect("write the configuration");
    one_of_two_processes_leads(&cluster, &kubectl, &own, directory.path());
    a_foreign_one_binds(&cluster, &kubectl);
    it_is_said_why(&cluster, &kubectl, &profiles);
}

/// As the administrator sees it.
fn why(cluster: &Cluster, words: &[&str]) -> String {
    let mut command = cluster.site.command("server", binary("coracle"));
    command.arg("why").args(words);
    command
        .arg("--data-dir")
        .arg(cluster.site.dir().join("server-data"));
    succeed(&mut command)
}

fn it_is_said_why(cluster: &Cluster, kubectl: &Kubectl, profiles: &Path) {
    let placed = why(cluster, &["spread-0"]);
    let node = node_of(kubectl, "spread-0");
    assert!(
        placed.starts_with(&format!("Pod default/spread-0 is on {node};")),
        "{placed}"
    );
    assert!(
        placed.contains("FITS ON   SCORE   NodeResourcesFit x1"),
        "{placed}"
    );
    kubectl.ok("cordon n1");
    let manifest = r#"
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  schedulerName: packer
  containers: [{name: c, image: busybox, resources: {requests: {cpu: "5000"}}}]
"#;
    kubectl.apply(manifest);
    let config = format!("--scheduler-config={}", profiles.display());
    let pending = why(cluster, &["huge", &config]);
    for expect in [
        "Pod default/huge has no node; packer says:",
        "NodeUnschedulable: node(s) were unschedulable",
        "NodeResourcesFit: Insufficient cpu",
        "it does not fit either",
        "What would have to change:",
        "kubectl uncordon",
    ] {
        assert!(pending.contains(expect), "{expect}: {pending}");
    }
    kubectl.ok("uncordon n1");
    let mut command = cluster.site.command("server", binary("coracle"));
    command
        .args(["why", "huge", "--data-dir"])
        .arg(cluster.site.dir().join("server-data"));
    let refused = run(&mut command);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("asks for scheduler \"packer\""), "{said}");
}

/// More than fit, while schedulers and the server are killed. `SCHEDULER_KILLS=50` is a long run,
/// `SCHEDULER_SEED` repeats one.
#[test]
fn no_node_is_given_too_much_when_schedulers_are_killed_at_any_moment() {
    if !is_root_or_skip() {
        return;
    }
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let count = number("SCHEDULER_KILLS").unwrap_or(KILLS);
    let seed = number("SCHEDULER_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("SCHEDULER_KILLS={count} SCHEDULER_SEED={seed}");
    let random = &mut Random::new(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("own.yaml");
    fs::write(&config, OWN.replace("values: [n2]", "values: [n1, n2]")).expect("write");
    let mut cluster = Cluster::server_and_nodes(2, &[]);
    let kubectl = cluster.kubectl();
    let mut schedulers =
        ["first", "second"].map(|name| own_scheduler(&cluster, &config, directory.path(), name));
    let mut made = 0;
    for round in 0..count {
        for _ in 0..PODS_A_ROUND {
            pod_of(&kubectl, &format!("many-{made}"), "mine", "300m");
            made += 1;
        }
        if round % 3 == 2 {
            // Room for others.
            kubectl.ok(&format!(
                "delete pod many-{} --wait=false",
                made - PODS_A_ROUND
            ));
        }
        let soon = Duration::from_millis(random.below(SOON_MILLIS));
        wait::quietly(soon, || None::<()>);
        match random.index(3) {
            2 => {
                cluster.server.as_mut().expect("the server runs").kill();
                cluster.start_server();
            }
            one => {
                schedulers[one].kill();
                let name = ["first", "second"][one];
                schedulers[one] = own_scheduler(&cluster, &config, directory.path(), name);
            }
        }
    }
    all_that_fit_are_placed_once(&kubectl);
}

/// As many as fit into half a minute.
const KILLS: u64 = 6;
const PODS_A_ROUND: usize = 3;
const SOON_MILLIS: u64 = 800;

fn own_scheduler(cluster: &Cluster, config: &Path, logs: &Path, name: &str) -> Process {
    let mut command = cluster.site.command("server", binary("coracle"));
    command
        .arg("scheduler")
        .arg("--scheduler-config")
        .arg(config);
    command
        .arg("--kubeconfig")
        .arg(cluster.kubectl().kubeconfig());
    Process::start(command, &logs.join(format!("{name}.log")))
}

fn all_that_fit_are_placed_once(kubectl: &Kubectl) {
    let (pods, free) = wait::until("no pod that fits to wait", Duration::from_secs(90), || {
        let pods = kubectl.json("pods");
        let free = free_milli_cpu(kubectl, &pods);
        let items = pods["items"].as_array().cloned().unwrap_or_default();
        let waits = items.iter().any(|pod| pod["spec"]["nodeName"].is_null());
        if waits && free.values().any(|free| *free >= 300) {
            Err(format!("{free:?}"))
        } else {
            Ok((items, free))
        }
    });
    assert!(
        free.values().all(|free| *free >= 0),
        "too much is promised: {free:?}"
    );
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let selector = format!("involvedObject.name={name},reason=Scheduled");
        let events =
            kubectl.ok_args(&["get", "events", "--field-selector", &selector, "-o", "name"]);
        assert!(
            events.lines().count() <= 1,
            "{name} was placed more than once: {events}"
        );
    }
}

fn pod(kubectl: &Kubectl, name: &str, scheduler: &str) {
    pod_of(kubectl, name, scheduler, "50m");
}

fn pod_of(kubectl: &Kubectl, name: &str, scheduler: &str, cpu: &str) {
    let manifest = format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  schedulerName: {scheduler}
  terminationGracePeriodSeconds: 1
  containers: [{{name: c, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "3600"], resources: {{requests: {{cpu: {cpu}}}}}}}]
"#
    );
    kubectl.apply(&manifest);
}

fn node_of(kubectl: &Kubectl, name: &str) -> String {
    wait::until("a node for the pod", PATIENCE, || {
        let node = kubectl.ok(&format!("get pod {name} -o jsonpath={{.spec.nodeName}}"));
        if node.is_empty() {
            Err(kubectl.run(&format!("describe pod {name}")).stdout)
        } else {
            Ok(node)
        }
    })
}

/// Who says that it has placed the pod.
fn placed_by(kubectl: &Kubectl, name: &str) -> String {
    wait::until("an Event of its placing", PATIENCE, || {
        let selector = format!("involvedObject.name={name},reason=Scheduled");
        let source = "jsonpath={.items[*].source.component}{.items[*].reportingComponent}";
        let said = kubectl.ok_args(&["get", "events", "--field-selector", &selector, "-o", source]);
        if said.is_empty() { Err(said) } else { Ok(said) }
    })
}

fn a_profile_fills_a_node(kubectl: &Kubectl) {
    let nodes = |kind: &str, scheduler: &str| {
        let names: Vec<_> = (0..4).map(|number| format!("{kind}-{number}")).collect();
        names.iter().for_each(|name| pod(kubectl, name, scheduler));
        let nodes = names.iter().map(|name| node_of(kubectl, name));
        nodes.collect::<BTreeSet<_>>()
    };
    assert_eq!(nodes("spread", "default-scheduler").len(), 2);
    assert_eq!(nodes("packed", "packer").len(), 1);
    assert!(placed_by(kubectl, "packed-0").contains("packer"));
}

fn one_of_two_processes_leads(cluster: &Cluster, kubectl: &Kubectl, config: &Path, logs: &Path) {
    let start = |name: &str| own_scheduler(cluster, config, logs, name);
    let mut first = start("first");
    pod(kubectl, "mine-0", "mine");
    assert_eq!(node_of(kubectl, "mine-0"), "n2");
    assert!(placed_by(kubectl, "mine-0").contains("mine"));
    let second = start("second");
    let holder = || kubectl.ok("get lease mine -n kube-system -o jsonpath={.spec.holderIdentity}");
    let before = holder();
    first.kill();
    pod(kubectl, "mine-1", "mine");
    assert_eq!(node_of(kubectl, "mine-1"), "n2", "{}", second.output());
    assert_ne!(holder(), before);
    // Nobody else takes it.
    pod(kubectl, "nobodys", "nobody");
    pod(kubectl, "mine-2", "mine");
    node_of(kubectl, "mine-2");
    assert_eq!(
        kubectl.ok("get pod nobodys -o jsonpath={.spec.nodeName}"),
        ""
    );
}

fn a_foreign_one_binds(cluster: &Cluster, kubectl: &Kubectl) {
    for number in 0..2 {
        pod(kubectl, &format!("foreign-{number}"), "foreign");
    }
    let mut python: Command = cluster.site.command("server", "timeout");
    python.args(["90", "/usr/bin/python3"]);
    python
        .arg(workspace().join("tests/clients/python/scheduler.py"))
        .arg("2");
    python.env("PYTHONPATH", tool("python-kubernetes"));
    python.env("KUBECONFIG", kubectl.kubeconfig());
    let ended = run(&mut python);
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    for number in 0..2 {
        let name = format!("foreign-{number}");
        assert_eq!(node_of(kubectl, &name), "n2");
        kubectl.pod_ready(&name);
    }
}
