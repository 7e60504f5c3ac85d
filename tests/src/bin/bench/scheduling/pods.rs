//! The pods of these measurements, and what is read of them.

use serde_json::{Value, json};

/// So many labels of groups.
pub(super) const GROUPS: usize = 100;

pub(super) fn pod(name: &str, number: usize, more: Value) -> Value {
    let mut spec = json!({"schedulerName": name, "containers": [container("50m")]});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    let labels = json!({"app": name, "group": (number % GROUPS).to_string()});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-{number:05}"), "labels": labels}, "spec": spec})
}

pub(super) fn container(cpu: &str) -> Value {
    json!({"name": "c", "image": "registry.example/shop/frontend:v1.27.3", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}})
}

/// As the pods of an application ask for it that wants to survive a zone.
pub(super) fn spread() -> Value {
    let over = |key: &str, skew: usize| {
        json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}}})
    };
    json!({"topologySpreadConstraints": [over("topology.kubernetes.io/zone", 1), over("kubernetes.io/hostname", 2)]})
}

/// No two of a group on a node.
pub(super) fn apart(number: usize) -> Value {
    let group = json!({"matchLabels": {"group": (number % GROUPS).to_string()}});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": group});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

pub(super) fn name_of(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().into()
}

/// Whether it says, for the first time, that the pod has a node.
pub(super) fn is_bound(event: &Value) -> bool {
    let mut conditions = event["object"]["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    event["type"] == "MODIFIED"
        && event["object"]["metadata"]["deletionTimestamp"].is_null()
        && conditions.any(|one| one["type"] == "PodScheduled" && one["status"] == "True")
}
