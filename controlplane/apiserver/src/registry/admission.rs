//! What upstream's built-in mutating admission plugins add to new pods.
//!
//! Called from the Pod strategy. Nothing here looks at other objects: a ServiceAccount's own
//! `automountServiceAccountToken` and user-defined PriorityClasses are not considered.
//!
//! Source: `plugin/pkg/admission/{serviceaccount,defaulttolerationseconds,priority}` at v1.37.

use coracle_api::name;
use serde_json::{Value, json};

use super::cells::{items, string};
use super::fill;

/// Where a pod finds its service account's token.
pub const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
/// An hour and some, so that a token with the longest life of an hour is told apart from the default.
const TOKEN_EXPIRATION_SECS: i64 = 3607;
/// How long a pod stays on a node that is gone.
const TOLERATION_SECS: i64 = 300;

/// Everything, in upstream's order.
pub fn new_pod(pod: &mut Value) {
    // A mirror of a static pod is what the node says it is.
    let is_mirror = pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string();
    let Some(spec) = pod.get_mut("spec") else { return };
    if !is_mirror {
        service_account(spec);
    }
    priority(spec);
    tolerations(spec);
}

/// Gives the pod the account `default` if it names none, and a token.
fn service_account(spec: &mut Value) {
    fill::text(spec, "serviceAccountName", "default");
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    if spec["automountServiceAccountToken"] == false {
        return;
    }
    let existing = items(&spec["volumes"]).iter().map(|volume| string(&volume["name"]));
    let volume_name = existing
        .into_iter()
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map_or_else(|| name::generate(TOKEN_VOLUME_PREFIX), str::to_owned);
    let mut is_used = false;
    for list in ["initContainers", "containers"] {
        fill::each(spec, list, |container| {
            let has = items(&container["volumeMounts"]).iter().any(|mount| mount["mountPath"] == TOKEN_MOUNT_PATH);
            if !has {
                is_used = true;
                push(
                    container,
                    "volumeMounts",
                    json!({"name": volume_name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH}),
                );
            }
        });
    }
    let has_volume = items(&spec["volumes"]).iter().any(|volume| volume["name"] == volume_name.as_str());
    if is_used && !has_volume {
        push(spec, "volumes", token_volume(&volume_name));
    }
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_EXPIRATION_SECS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}

/// The numbers behind the classes that every cluster has.
fn priority(spec: &mut Value) {
    let value = match string(&spec["priorityClassName"]) {
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => 0,
    };
    fill::value(spec, "priority", value);
    fill::text(spec, "preemptionPolicy", "PreemptLowerPriority");
}

/// Lets the pod stay for a while on a node that is not ready or not reachable, unless it says itself for how long.
fn tolerations(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(&spec["tolerations"]).iter().any(|toleration| {
            let (own_key, effect) = (string(&toleration["key"]), string(&toleration["effect"]));
            (own_key == key || own_key.is_empty()) && matches!(effect, "NoExecute" | "")
        });
        if !tolerated {
            let toleration =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECS});
            push(spec, "tolerations", toleration);
        }
    }
}

fn push(object: &mut Value, list: &str, item: Value) {
    fill::value(object, list, Vec::<Value>::new());
    if let Some(list) = object[list].as_array_mut() {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
        new_pod(&mut pod);
        pod["spec"].take()
    }

    #[test]
    fn every_container_gets_the_token() {
        let spec = admitted(json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [
            {"name": "own", "mountPath": TOKEN_MOUNT_PATH}]}]}));
        assert_eq!(spec["serviceAccountName"], "default");
        assert_eq!(spec["serviceAccount"], "default");
        let volume = &spec["volumes"][0];
        assert!(string(&volume["name"]).starts_with("kube-api-access-"));
        assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume["name"]);
        assert_eq!(items(&spec["containers"][1]["volumeMounts"]).len(), 1);
    }

    #[test]
    fn a_pod_may_decline_the_token() {
        let spec = admitted(json!({"containers": [{"name": "a"}], "automountServiceAccountToken": false}));
        assert!(spec["volumes"].is_null());
    }

    #[test]
    fn a_mirror_pod_gets_no_account() {
        let mut pod = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {}});
        new_pod(&mut pod);
        assert!(pod["spec"]["serviceAccountName"].is_null());
    }

    #[test]
    fn own_tolerations_win() {
        let spec = admitted(json!({"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}));
        assert_eq!(items(&spec["tolerations"]).len(), 2);
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 5);
        assert_eq!(spec["tolerations"][1]["key"], "node.kubernetes.io/unreachable");
        let spec = admitted(json!({"tolerations": [{"operator": "Exists"}]}));
        assert_eq!(items(&spec["tolerations"]).len(), 1);
    }

    #[test]
    fn system_classes_have_their_priorities() {
        assert_eq!(admitted(json!({}))["priority"], 0);
        assert_eq!(admitted(json!({"priorityClassName": "system-node-critical"}))["priority"], 2_000_001_000);
    }
}
