//! Where a pod's files come from.
//!
//! Source: `check_hostPathVolumes.go` and `check_restrictedVolumes.go` in
//! `k8s.io/pod-security-admission/policy` at v1.37.

use coracle_registry::value::{items, string};
use serde_json::Value;

use crate::pod_security::{
    pod::Pod,
    violation::Violation,
    words::{Told, plural, quoted},
};

const ALLOWED: &[&str] = &[
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
/// What the others are called; a volume is of one of them.
const OTHERS: &[&str] = &[
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
];

/// Not the node's.
pub(crate) fn host_paths(pod: Pod<'_>) -> Option<Violation> {
    let bad = named(pod, |volume| !volume["hostPath"].is_null());
    (!bad.is_empty()).then(|| Violation {
        reason: "hostPath volumes",
        detail: volumes(&bad),
    })
}

/// What the cluster has made or has been asked for, and nothing of elsewhere.
pub(crate) fn types(pod: Pod<'_>) -> Option<Violation> {
    let mut types = Told::new();
    let bad = named(pod, |volume| {
        let is = |kind: &&&str| !volume[**kind].is_null();
        if ALLOWED.iter().any(|kind| is(&kind)) {
            return false;
        }
        types.insert(OTHERS.iter().find(is).copied().unwrap_or("unknown"));
        true
    });
    (!bad.is_empty()).then(|| Violation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {}",
            volumes(&bad),
            plural(bad.len(), "uses", "use"),
            plural(
                types.len(),
                "restricted volume type",
                "restricted volume types"
            ),
            quoted(types)
        ),
    })
}

fn named<'a>(pod: Pod<'a>, mut bad: impl FnMut(&Value) -> bool) -> Vec<&'a str> {
    let all = items(&pod.spec["volumes"]).iter();
    all.filter(|volume| bad(volume))
        .map(|volume| string(&volume["name"]))
        .collect()
}

fn volumes(names: &[&str]) -> String {
    let noun = plural(names.len(), "volume", "volumes");
    format!("{noun} {}", quoted(names))
}
