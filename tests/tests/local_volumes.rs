//! Persistent volumes on one node: data outlives pods, the agent and claims, and goes with the
//! volume where the cluster made it.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use coracle_tests::{
    cluster::Cluster,
    is_root_or_skip,
    kubectl::{Kubectl, PATIENCE},
    wait,
};
use serde_json::{Value, json};

const FINALIZER: &str = "local-path.coracle.dev/directory";

fn make(kubectl: &Kubectl, object: &Value) {
    let made = kubectl.apply_text(&["create"], &object.to_string());
    assert_eq!(made.code, 0, "{made:?}");
}

/// A volume and the claim that it is kept for, bound to each other whoever else is there to do it.
fn bind(kubectl: &Kubectl, name: &str, metadata: Value, source: Value) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": format!("v-{name}"),
        "resources": {"requests": {"storage": "1Mi"}}}});
    make(kubectl, &claim);
    let uid = kubectl.ok(&format!("get pvc {name} -o jsonpath={{.metadata.uid}}"));
    let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]);
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": {
        "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}}});
    volume["metadata"]["name"] = format!("v-{name}").into();
    for (kind, what) in source.as_object().expect("a source") {
        volume["spec"][kind] = what.clone();
    }
    make(kubectl, &volume);
    let bound = json!({"status": {"phase": "Bound"}}).to_string();
    kubectl.ok_args(&[
        "patch",
        "pvc",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &bound,
    ]);
}

/// A pod on the node that runs a command with the claim at `/data`; nobody schedules it.
fn run(kubectl: &Kubectl, name: &str, claim: &str, command: &str, context: Value, mount: Value) {
    let mut mounted = json!({"name": "d", "mountPath": "/data"});
    for (key, value) in mount.as_object().expect("a mount") {
        mounted[key] = value.clone();
    }
    let container = json!({"name": "main", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command], "volumeMounts": [mounted]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": "n1", "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "securityContext": context,
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}], "containers": [container]}});
    make(kubectl, &pod);
}

/// Runs a command that ends, and says what it printed.
fn says(kubectl: &Kubectl, claim: &str, command: &str, mount: Value) -> String {
    run(kubectl, "once", claim, command, json!({}), mount);
    let phase = || kubectl.ok("get pod once -o jsonpath={.status.phase}");
    let ended = wait::until("the command ends", PATIENCE, || match phase() {
        phase if phase == "Succeeded" || phase == "Failed" => Ok(phase),
        phase => Err(phase),
    });
    let said = kubectl.ok("logs once");
    kubectl.ok("delete pod once --wait");
    format!("{ended}: {}", said.trim())
}

#[test]
fn data_outlives_pods_and_agents_and_goes_with_its_volume() {
    if !is_root_or_skip() {
        return;
    }
    let mut cluster = Cluster::up(&[]);
    let kubectl = cluster.kubectl();
    let disk = cluster.site.dir().join("disk");
    fs::create_dir(&disk).expect("directory");

    let local = json!({"local": {"path": disk}});
    bind(&kubectl, "local", json!({}), local);
    pods_share_their_data(&kubectl, "local", &disk);
    files_are_the_groups(&kubectl, &disk);
    a_part_is_mounted_and_nothing_is_written_where_that_is_refused(&kubectl, &disk);

    let other = cluster.site.dir().join("other");
    let path = json!({"hostPath": {"path": other, "type": "DirectoryOrCreate"}});
    bind(&kubectl, "host", json!({}), path);
    pods_share_their_data(&kubectl, "host", &other);

    the_directory_of_a_provisioned_volume_goes_with_it(&mut cluster);
    a_claim_that_names_no_class_gets_a_directory(&kubectl);
    kubectl.ok("delete pvc --all --wait=false");
    kubectl.ok("delete pv --all --wait=false");
    assert!(disk.join("f").exists() && other.join("f").exists());
}

fn pods_share_their_data(kubectl: &Kubectl, claim: &str, path: &Path) {
    let none = || json!({});
    let wrote = says(kubectl, claim, "echo hello > /data/f; cat /data/f", none());
    assert_eq!(wrote, "Succeeded: hello");
    assert_eq!(
        fs::read_to_string(path.join("f")).expect("on the node"),
        "hello\n"
    );
    assert_eq!(
        says(kubectl, claim, "cat /data/f", none()),
        "Succeeded: hello"
    );
}

fn files_are_the_groups(kubectl: &Kubectl, path: &Path) {
    let context = json!({"fsGroup": 7000, "runAsUser": 1000});
    run(
        kubectl,
        "group",
        "local",
        "touch /data/own; sleep 1000",
        context,
        json!({}),
    );
    kubectl.pod_ready("group");
    wait::until("the pod's file", PATIENCE, || {
        fs::metadata(path.join("own"))
    });
    for file in ["f", "own"] {
        assert_eq!(
            fs::metadata(path.join(file)).expect("file").gid(),
            7000,
            "{file}"
        );
    }
    kubectl.ok("delete pod group --wait");
}

fn a_part_is_mounted_and_nothing_is_written_where_that_is_refused(kubectl: &Kubectl, path: &Path) {
    let part = json!({"subPath": "a/b"});
    assert_eq!(
        says(kubectl, "local", "echo part > /data/p", part),
        "Succeeded: "
    );
    assert!(path.join("a/b/p").exists());
    let locked = json!({"readOnly": true, "recursiveReadOnly": "Enabled"});
    let command = "touch /data/x 2>/dev/null || cat /data/a/b/p";
    assert_eq!(says(kubectl, "local", command, locked), "Succeeded: part");
}

fn figures_of_the_volume_are_told(kubectl: &Kubectl) {
    let raw = |path: &str| kubectl.ok(&format!("get --raw /api/v1/nodes/n1/proxy/{path}"));
    let summary: Value = serde_json::from_str(&raw("stats/summary")).expect("JSON");
    let mut pods = summary["pods"].as_array().expect("pods").iter();
    let user = pods.find(|pod| pod["podRef"]["name"] == "user");
    let volume = &user.expect("the pod")["volume"][0];
    assert_eq!(
        volume["pvcRef"],
        json!({"name": "made", "namespace": "default"})
    );
    assert_eq!(volume["name"], "d");
    assert!(
        volume["capacityBytes"].as_u64() > volume["usedBytes"].as_u64(),
        "{volume}"
    );
    let metrics = raw("metrics");
    let labels = "{namespace=\"default\",persistentvolumeclaim=\"made\"}";
    for family in [
        "capacity_bytes",
        "available_bytes",
        "used_bytes",
        "inodes",
        "inodes_free",
        "inodes_used",
    ] {
        let sample = format!("kubelet_volume_stats_{family}{labels} ");
        assert!(metrics.contains(&sample), "{sample}: {metrics}");
    }
}

/// By everybody whose work it is: the provisioner, the scheduler, the binder and the node.
fn a_claim_that_names_no_class_gets_a_directory(kubectl: &Kubectl) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "any"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    make(kubectl, &claim);
    let container = json!({"name": "main", "image": "docker.io/library/busybox:latest", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "cat /data/f 2>/dev/null || echo kept > /data/f; sleep 1000"],
        "volumeMounts": [{"name": "d", "mountPath": "/data"}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed"}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [container],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "any"}}]}});
    for said in ["", "kept"] {
        make(kubectl, &pod);
        kubectl.pod_ready("placed");
        wait::until("the file", PATIENCE, || {
            let outcome = kubectl.run("exec placed -- cat /data/f");
            if outcome.stdout == "kept\n" {
                Ok(())
            } else {
                Err(outcome)
            }
        });
        assert_eq!(
            kubectl.ok("logs placed").lines().last().unwrap_or_default(),
            said
        );
        kubectl.ok("delete pod placed --wait");
    }
    let volume = kubectl.ok("get pvc any -o jsonpath={.spec.volumeName}");
    let path = kubectl.ok(&format!("get pv {volume} -o jsonpath={{.spec.local.path}}"));
    assert_eq!(
        fs::read_to_string(Path::new(&path).join("f")).expect("the data"),
        "kept\n"
    );
    kubectl.ok("delete pvc any --wait");
    kubectl.ok(&format!("wait --for=delete pv/{volume} --timeout=60s"));
    assert!(!Path::new(&path).exists(), "{path} is there");
}

fn the_directory_of_a_provisioned_volume_goes_with_it(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl();
    let base = kubectl.ok_args(&[
        "get",
        "node",
        "n1",
        "-o",
        "jsonpath={.metadata.annotations.local-path\\.coracle\\.dev/directory}",
    ]);
    let path = Path::new(&base).join("v-made_default_made");
    let metadata = json!({"labels": {"local-path.coracle.dev/node": "n1"}, "finalizers": [FINALIZER],
        "annotations": {"pv.kubernetes.io/provisioned-by": "coracle.dev/local-path"}});
    bind(&kubectl, "made", metadata, json!({"local": {"path": path}}));
    let user = json!({"runAsUser": 1000});
    run(
        &kubectl,
        "user",
        "made",
        "echo mine > /data/f; sleep 1000",
        user,
        json!({}),
    );
    kubectl.pod_ready("user");
    wait::until("the pod's file", PATIENCE, || fs::metadata(path.join("f")));
    figures_of_the_volume_are_told(&kubectl);
    let agent = cluster.nodes[0].agent.as_mut().expect("the agent runs");
    agent.kill();
    cluster.start_agent(0);
    cluster.wait_ready(1);
    assert_eq!(kubectl.ok("exec user -- cat /data/f").trim(), "mine");

    kubectl.ok("delete pv v-made --wait=false");
    let (unprotected, params) = (
        json!({"metadata": {"finalizers": [FINALIZER]}}),
        "--type=merge",
    );
    kubectl.ok_args(&[
        "patch",
        "pv",
        "v-made",
        params,
        "-p",
        &unprotected.to_string(),
    ]);
    assert_eq!(kubectl.ok("exec user -- cat /data/f").trim(), "mine");
    kubectl.ok("delete pod user --wait");
    kubectl.ok("wait --for=delete pv/v-made --timeout=60s");
    assert!(!path.exists(), "{} is there", path.display());
}
