//! Nodes and pods as kubelets and agents write them, for clusters that are made of objects.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

pub(crate) fn node_name(node: usize) -> String {
    format!("node-{node:05}")
}

pub(crate) fn pod_name(pod: usize) -> String {
    format!("shop-frontend-7d4b9c6f58-{pod:06}")
}

pub(crate) fn node(node: usize) -> Value {
    let name = node_name(node);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": format!("zone-{}", node % 3),
        }},
        "spec": {},
    })
}

/// With some images, as a node that has worked has them.
pub(crate) fn node_status(node: usize) -> Value {
    let now = now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("kubelet says {reason}"),
            "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    let images: Vec<Value> = (0..12)
        .map(|image| {
            json!({"names": [format!("registry.example/shop/part-{image}@sha256:{image:064}"),
                format!("registry.example/shop/part-{image}:v1.27.3")], "sizeBytes": 50_000_000 + image})
        })
        .collect();
    let room =
        json!({"cpu": "32", "memory": "131072Mi", "ephemeral-storage": "500Gi", "pods": "110"});
    json!({"status": {
        "addresses": [{"type": "InternalIP", "address": format!("198.51.{}.{}", node / 250, node % 250 + 1)},
            {"type": "Hostname", "address": node_name(node)}],
        "capacity": room, "allocatable": room, "images": images,
        "conditions": [condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady")],
        "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.12.0", "osImage": "Debian GNU/Linux 12",
            "architecture": "amd64", "operatingSystem": "linux", "containerRuntimeVersion": "coracle://0.1.0",
            "bootID": "b", "machineID": "m", "systemUUID": "s", "kubeProxyVersion": ""},
    }})
}

pub(crate) fn lease(node: usize) -> Value {
    let name = node_name(node);
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}})
}

pub(crate) fn renewal() -> Value {
    json!({"spec": {"renewTime": now()}})
}

/// A Deployment's pod, on its node.
pub(crate) fn pod(pod: usize, on: usize) -> Value {
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(pod),
            "labels": {"app": "shop", "tier": "frontend", "pod-template-hash": "7d4b9c6f58"}},
        "spec": {"nodeName": node_name(on), "containers": [{
            "name": "web", "image": "registry.example/shop/frontend:v1.27.3",
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "DATABASE", "value": "postgres.data.svc"}],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "readinessProbe": probe, "livenessProbe": probe,
        }]},
    })
}

pub(crate) fn pod_status(pod: usize) -> Value {
    let now = now();
    let address = format!(
        "100.{}.{}.{}",
        64 + pod / 62_500,
        pod / 250 % 250,
        pod % 250 + 1
    );
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    json!({"status": {
        "phase": "Running", "startTime": now, "podIP": address, "podIPs": [{"ip": address}], "hostIP": "198.51.100.1",
        "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
        "containerStatuses": [{"name": "web", "ready": true, "started": true, "restartCount": 0,
            "image": "registry.example/shop/frontend:v1.27.3", "imageID": format!("sha256:{:064}", 7),
            "containerID": format!("coracle://{pod:064}"), "state": {"running": {"startedAt": now}}}],
    }})
}

/// A status that says when it was written.
pub(crate) fn stamp(microseconds: u64) -> Value {
    json!({"status": {"message": microseconds.to_string()}})
}

fn now() -> String {
    // As client-go writes a MicroTime.
    format!("{:.6}", Timestamp::now())
}
