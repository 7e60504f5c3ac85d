//! The least that each kind can do with, taken through the whole of its strategy.

use coracle_api::resource::Gvk;
use serde_json::{Value, json};

use crate::strategy::BuiltIn;

fn pod() -> Value {
    json!({"containers": [{"name": "c", "image": "i:1"}]})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": pod()})
}

fn workload() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template()}})
}

fn run_once() -> Value {
    json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}})
}

fn policy_constraints() -> Value {
    json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
}

fn webhooks() -> Value {
    json!({"webhooks": [{"name": "a.b.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a.example/"}}]})
}

fn claim() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

/// What besides metadata a kind cannot do without.
fn body(group: &str, kind: &str) -> Value {
    match group {
        "" => core(kind),
        "apps" | "autoscaling" | "batch" => workloads(group, kind),
        "networking.k8s.io" => networking(kind),
        "admissionregistration.k8s.io" => admission(kind),
        "certificates.k8s.io" => certificates(kind),
        "resource.k8s.io" => devices(kind),
        "storage.k8s.io" => storage(kind),
        _ => others(group, kind),
    }
}

fn core(kind: &str) -> Value {
    match kind {
        "Pod" => json!({"spec": pod()}),
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "Event" => json!({"involvedObject": {"namespace": "n"}}),
        "PersistentVolume" => json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/d"}}}),
        "PersistentVolumeClaim" => json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
        "PodTemplate" => json!({"template": template()}),
        "ReplicationController" => json!({"spec": {"template": template()}}),
        _ => json!({}),
    }
}

fn workloads(group: &str, kind: &str) -> Value {
    match (group, kind) {
        ("apps", "ControllerRevision") => json!({"revision": 1, "data": {"a": 1}}),
        ("apps", _) => workload(),
        ("batch", "Job") => json!({"spec": run_once()}),
        ("batch", _) => json!({"spec": {"schedule": "@daily",
            "jobTemplate": {"spec": run_once()}}}),
        _ => json!({"spec": {"maxReplicas": 2,
            "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}),
    }
}

fn networking(kind: &str) -> Value {
    match kind {
        "Ingress" => json!({"spec": {"defaultBackend": {"service": {"name": "s",
            "port": {"number": 80}}}}}),
        "IngressClass" => json!({"spec": {"controller": "a.example/b"}}),
        "IPAddress" => json!({"spec": {"parentRef": {"resource": "services", "name": "s"}}}),
        "ServiceCIDR" => json!({"spec": {"cidrs": ["10.0.0.0/16"]}}),
        _ => json!({}),
    }
}

fn admission(kind: &str) -> Value {
    match kind {
        "ValidatingAdmissionPolicy" => json!({"spec": {"matchConstraints": policy_constraints(),
            "validations": [{"expression": "true"}]}}),
        "MutatingAdmissionPolicy" => json!({"spec": {"matchConstraints": policy_constraints(),
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'test'}]"}}]}}),
        "ValidatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "p",
            "validationActions": ["Deny"]}}),
        "MutatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "p"}}),
        _ => webhooks(),
    }
}

fn certificates(kind: &str) -> Value {
    match kind {
        "PodCertificateRequest" => json!({"spec": {"signerName": "a.example/b",
            "podName": "p", "podUID": "1", "serviceAccountName": "s", "serviceAccountUID": "2",
            "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": "AAAA"}}),
        "ClusterTrustBundle" => json!({"spec": {
            "trustBundle": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}),
        _ => json!({}),
    }
}

fn devices(kind: &str) -> Value {
    match kind {
        "ResourceClaim" => json!({"spec": claim()}),
        "ResourceClaimTemplate" => json!({"spec": {"spec": claim()}}),
        "ResourceSlice" => json!({"spec": {"driver": "d.example", "allNodes": true,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
        "DeviceTaintRule" => json!({"spec": {"taint": {"key": "a", "effect": "NoSchedule"}}}),
        _ => json!({}),
    }
}

fn storage(kind: &str) -> Value {
    match kind {
        "StorageClass" => json!({"provisioner": "a.example/b"}),
        "VolumeAttachment" => json!({"spec": {"attacher": "a.example", "nodeName": "n",
            "source": {"persistentVolumeName": "pv"}}}),
        "CSIStorageCapacity" => json!({"storageClassName": "s"}),
        "VolumeAttributesClass" => json!({"driverName": "a.example", "parameters": {"a": "b"}}),
        _ => json!({}),
    }
}

fn others(group: &str, kind: &str) -> Value {
    match (group, kind) {
        ("events.k8s.io", "Event") => json!({"eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal", "reason": "r", "action": "a", "reportingController": "c",
            "reportingInstance": "i", "regarding": {"namespace": "n"}}),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            json!({"spec": {"priorityLevelConfiguration": {"name": "p"}}})
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}})
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => json!({"roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"}}),
        ("apiextensions.k8s.io", _) => json!({"spec": {"group": "example.org", "scope": "Cluster",
            "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
        ("node.k8s.io", "RuntimeClass") => json!({"handler": "runc"}),
        ("discovery.k8s.io", "EndpointSlice") => json!({"addressType": "IPv4"}),
        ("scheduling.k8s.io", "PriorityClass") => json!({"value": 5}),
        ("coordination.k8s.io", "Lease") => json!({"spec": {}}),
        _ => json!({}),
    }
}

/// A minimal object of the kind, with the metadata that the registry would give it.
#[must_use]
pub fn minimal(strategy: &dyn BuiltIn) -> Value {
    let info = strategy.resource();
    let mut object = body(info.group, info.kind);
    let name = match info.kind {
        "IPAddress" => "10.0.0.1",
        "CustomResourceDefinition" => "as.example.org",
        _ => "a",
    };
    object["metadata"] = json!({"name": name, "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
    object["kind"] = info.kind.into();
    object["apiVersion"] = Gvk::new(info.group, info.version, info.kind)
        .api_version()
        .into();
    object
}
