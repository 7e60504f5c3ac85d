//! Volumes that are made of what the API and the node know, as upstream's conformance asks for
//! them: contents, modes, users, groups, parts, and what follows from a change. One cluster, few
//! pods, many volumes; `docs/conformance.md` says which test of upstream's each one retells.

#[path = "volumes/pods.rs"]
mod pods;

use std::collections::BTreeSet;

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait,
};
use serde_json::{Value, json};

#[test]
fn volumes_hold_what_the_api_and_the_node_know() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    for object in pods::sources() {
        create(&kubectl, &object);
    }
    for pod in [
        pods::files(),
        pods::grouped(),
        pods::pod_files(),
        pods::parts(),
        pods::empty(),
        pods::many(),
        pods::changing(),
    ] {
        create(&kubectl, &pod);
    }
    files_have_their_content_mode_and_reader(&kubectl);
    files_are_the_groups_that_the_pod_names(&kubectl);
    the_pod_and_its_resources_are_files(&kubectl);
    a_part_of_a_volume_is_a_file_or_a_directory(&kubectl);
    an_empty_directory_is_everybodys_and_shared(&kubectl);
    many_volumes_of_a_pod_are_each_their_own(&kubectl);
    a_change_arrives_in_the_volumes(&mut cluster, &kubectl);
    what_is_immutable_is_not_changed(&kubectl);

    kubectl.ok("delete pods --all --timeout=60s");
    let left = cluster.reset_node(0);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
}

fn create(kubectl: &Kubectl, object: &Value) {
    let created = kubectl.apply_text(&["create"], &object.to_string());
    assert_eq!(created.code, 0, "{created:?}");
}

/// What a container of a pod that ends has said.
fn said(kubectl: &Kubectl, pod: &str, container: &str) -> Vec<String> {
    let phase = "jsonpath={.status.phase}";
    wait::until(pod, PATIENCE, || {
        match &*kubectl.ok(&format!("get pod {pod} -o {phase}")) {
            "Succeeded" => Ok(()),
            "Failed" => panic!("{}", kubectl.ok(&format!("logs {pod} --all-containers"))),
            phase => Err(phase.to_owned()),
        }
    });
    let log = kubectl.ok(&format!("logs {pod} -c {container}"));
    log.lines().map(str::to_owned).collect()
}

fn files_have_their_content_mode_and_reader(kubectl: &Kubectl) {
    let expected = pods::files_expected();
    assert_eq!(said(kubectl, "files", "root"), expected);
    let readable: Vec<_> = expected
        .into_iter()
        .filter(|line| line.contains(" 644 "))
        .collect();
    assert!(readable.len() > 6, "{readable:?}");
    assert_eq!(said(kubectl, "files", "user"), readable);
}

fn files_are_the_groups_that_the_pod_names(kubectl: &Kubectl) {
    let said = said(kubectl, "grouped", "user");
    assert_eq!(
        said,
        [
            "/secret/data-1 440 1001 value-1",
            "/projected/data-1 440 1001 value-1"
        ]
    );
}

fn the_pod_and_its_resources_are_files(kubectl: &Kubectl) {
    let node = kubectl.json("node n1");
    let allocatable = &node["status"]["allocatable"];
    let memory = allocatable["memory"].as_str().and_then(|memory| {
        let kibibytes: u64 = memory.strip_suffix("Ki")?.parse().ok()?;
        Some((kibibytes * 1024).to_string())
    });
    let (cpu, memory) = (
        allocatable["cpu"].as_str().expect("a quantity"),
        memory.unwrap_or_else(|| panic!("{allocatable}")),
    );
    for volume in ["downward", "projected"] {
        let expected = [
            "name 400 pod-files",
            "labels 644 colour=\"blue\"",
            "annotations 644 note=\"some text\"",
            "cpu-limit 644 2",
            "cpu-request 644 1",
            "memory-limit 644 67108864",
            "memory-request 644 33554432",
            &format!("node-cpu 644 {cpu}"),
            &format!("node-memory 644 {memory}"),
        ]
        .map(|line| format!("/{volume}/{line}"));
        let mut expected = expected.to_vec();
        expected.push(format!("/{volume}-strict/name 400 pod-files"));
        assert_eq!(said(kubectl, "pod-files", volume), expected);
    }
}

fn a_part_of_a_volume_is_a_file_or_a_directory(kubectl: &Kubectl) {
    let expected = [
        "/config/data-2 value-2",
        "/etc/nsswitch.conf value-1",
        "/secret/data-2 value-2",
        "/projected/data-2 value-2",
        "/downward/name parts",
    ];
    assert_eq!(said(kubectl, "parts", "main"), expected);
}

fn an_empty_directory_is_everybodys_and_shared(kubectl: &Kubectl) {
    for (container, user) in [("root", "0"), ("user", "1001")] {
        let mut expected = Vec::new();
        for medium in ["default", "memory"] {
            expected.push(format!("/{medium} 777 drwxrwxrwx"));
            expected.extend(
                ["644", "666", "777"]
                    .map(|mode| format!("/{medium}/{user}-{mode} {mode} {user} content")),
            );
        }
        expected.push("/memory is tmpfs".to_owned());
        expected.push("shared".to_owned());
        assert_eq!(said(kubectl, "empty", container), expected);
    }
}

fn many_volumes_of_a_pod_are_each_their_own(kubectl: &Kubectl) {
    let expected: Vec<_> = (0..pods::MANY).map(|n| format!("content-{n}")).collect();
    assert_eq!(said(kubectl, "many", "main"), expected);
}

/// Objects change, go and come; labels and annotations of the pod change. A node looks for that
/// once a minute (`volumes_stay_fresh_beside_a_container_that_crashes`), and when its agent starts.
fn a_change_arrives_in_the_volumes(cluster: &mut Cluster, kubectl: &Kubectl) {
    kubectl.pod_ready("changing");
    let script = "cd /v; for f in */*; do echo $f $(cat $f); done";
    let show = || {
        let args = ["exec", "changing", "--", "sh", "-c", script];
        let output = coracle_tests::process::run(&mut kubectl.command(&args));
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = shown.lines().map(str::to_owned);
        lines.collect::<BTreeSet<String>>()
    };
    let both = |lines: &[&str]| {
        let both = lines.iter().flat_map(|line| {
            let (volume, rest) = line.split_once('/').expect("volume/file content");
            [(*line).to_owned(), format!("{volume}-projected/{rest}")]
        });
        both.collect::<BTreeSet<_>>()
    };
    let first = both(&[
        "config/key old",
        "secret/key old",
        "going-config/key here",
        "going-secret/key here",
        "pod/annotations",
        "pod/labels colour=\"blue\"",
    ]);
    assert_eq!(show(), first);
    let patch = r#"{"data":{"key":"new","more":"more"}}"#;
    kubectl.ok_args(&["patch", "configmap", "changing", "-p", patch]);
    let patch = r#"{"stringData":{"key":"new"}}"#;
    kubectl.ok_args(&["patch", "secret", "changing", "-p", patch]);
    kubectl.ok("delete configmap,secret going");
    for kind in ["configmap", "secret generic"] {
        kubectl.ok(&format!("create {kind} coming --from-literal=key=there"));
    }
    kubectl.ok("label pod changing colour=green --overwrite");
    kubectl.ok("annotate pod changing note=text");
    let then = both(&[
        "config/key new",
        "config/more more",
        "secret/key new",
        "coming-config/key there",
        "coming-secret/key there",
        "pod/annotations note=\"text\"",
        "pod/labels colour=\"green\"",
    ]);
    cluster.nodes[0].agent.as_mut().expect("it runs").kill();
    cluster.start_agent(0);
    cluster.wait_ready(1);
    wait::until("the changes in the volumes", PATIENCE * 2, || {
        let shown = show();
        if shown == then { Ok(()) } else { Err(shown) }
    });
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl.ok(&format!("get pod changing -o {restarts}")), "0");
}

fn what_is_immutable_is_not_changed(kubectl: &Kubectl) {
    for (kind, patch) in [
        ("configmap", json!({"data": {"key": "newer"}})),
        ("secret", json!({"stringData": {"key": "newer"}})),
    ] {
        let immutable = json!({"immutable": true});
        let say = |patch: &Value| {
            let patch = patch.to_string();
            let args = ["patch", kind, "changing", "-p", &patch];
            let output = coracle_tests::process::run(&mut kubectl.command(&args));
            (
                output.status.success(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        assert!(say(&immutable).0, "{kind}");
        for refused in [patch, json!({"immutable": false})] {
            let (done, why) = say(&refused);
            let says_so = why.contains("field is immutable when `immutable` is set");
            assert!(!done && says_so, "{kind} {refused}: {why}");
        }
        kubectl.ok(&format!("delete {kind} changing"));
    }
}
