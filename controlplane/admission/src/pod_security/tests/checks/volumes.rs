//! Where a pod's files come from.

use serde_json::{Value, json};

use super::{baseline, restricted};

#[test]
fn host_paths() {
    let check = baseline("hostPathVolumes", "hostPath volumes");
    let host = |name: &str| json!({"name": name, "hostPath": {"path": "/"}});
    check.spec(
        json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "nfs": {}}]}),
        "",
    );
    check.spec(json!({"volumes": [host("a")]}), "volume \"a\"");
    check.spec(
        json!({"volumes": [host("b"), {"name": "c", "emptyDir": {}}, host("a")]}),
        "volumes \"b\", \"a\"",
    );
}

#[test]
fn types_of_volumes() {
    let check = restricted("restrictedVolumes", "restricted volume types", &[0, 25, 37]);
    let allowed = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let volumes: Vec<Value> = allowed
        .iter()
        .map(|kind| json!({"name": kind, *kind: {}}))
        .collect();
    check.spec(json!({"volumes": volumes}), "");
    for kind in [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "nfs",
        "iscsi",
        "glusterfs",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "fc",
        "azureFile",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "photonPersistentDisk",
        "portworxVolume",
        "scaleIO",
        "storageos",
    ] {
        check.spec(
            json!({"volumes": [{"name": "v", kind: {}}]}),
            &format!("volume \"v\" uses restricted volume type \"{kind}\""),
        );
    }
    check.spec(
        json!({"volumes": [{"name": "v", "new": {}}]}),
        "volume \"v\" uses restricted volume type \"unknown\"",
    );
    check.spec(
        json!({"volumes": [{"name": "b", "nfs": {}}, {"name": "a", "fc": {}}, {"name": "c", "nfs": {}}]}),
        "volumes \"b\", \"a\", \"c\" use restricted volume types \"fc\", \"nfs\"",
    );
}
