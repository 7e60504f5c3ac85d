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
    match (group, kind) {
        ("", "Pod") => json!({"spec": pod()}),
        ("", "Service") => json!({"spec": {"ports": [{"port": 80}]}}),
        ("", "Event") => json!({"involvedObject": {"namespace": "n"}}),
        ("", "PersistentVolume") => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/d"}}})
        }
        ("", "PersistentVolumeClaim") => json!({"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
        ("", "PodTemplate") => json!({"template": template()}),
        ("", "ReplicationController") => json!({"spec": {"template": template()}}),
        ("events.k8s.io", "Event") => {
            json!({"eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
            "reason": "r", "action": "a", "reportingController": "c", "reportingInstance": "i",
            "regarding": {"namespace": "n"}})
        }
        ("apps", "ControllerRevision") => json!({"revision": 1, "data": {"a": 1}}),
        ("apps", _) => workload(),
        ("autoscaling", _) => {
            json!({"spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}})
        }
        ("batch", "Job") => json!({"spec": run_once()}),
        ("batch", "CronJob") => {
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": run_once()}}})
        }
        ("networking.k8s.io", "Ingress") => {
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
        }
        ("networking.k8s.io", "IngressClass") => json!({"spec": {"controller": "a.example/b"}}),
        ("networking.k8s.io", "IPAddress") => {
            json!({"spec": {"parentRef": {"resource": "services", "name": "s"}}})
        }
        ("networking.k8s.io", "ServiceCIDR") => json!({"spec": {"cidrs": ["10.0.0.0/16"]}}),
        ("admissionregistration.k8s.io", kind) => match kind {
            "ValidatingAdmissionPolicy" => {
                json!({"spec": {"matchConstraints": policy_constraints(),
                "validations": [{"expression": "true"}]}})
            }
            "MutatingAdmissionPolicy" => json!({"spec": {"matchConstraints": policy_constraints(),
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}}),
            "ValidatingAdmissionPolicyBinding" => {
                json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}})
            }
            "MutatingAdmissionPolicyBinding" => json!({"spec": {"policyName": "p"}}),
            _ => webhooks(),
        },
        ("certificates.k8s.io", "PodCertificateRequest") => {
            json!({"spec": {"signerName": "a.example/b",
            "podName": "p", "podUID": "1", "serviceAccountName": "s", "serviceAccountUID": "2", "nodeName": "n",
            "nodeUID": "3", "stubPKCS10Request": "AAAA"}})
        }
        ("certificates.k8s.io", "ClusterTrustBundle") => json!({"spec": {
            "trustBundle": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}}),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            json!({"spec": {"priorityLevelConfiguration": {"name": "p"}}})
        }
        ("flowcontrol.apiserver.k8s.io", _) => {
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}})
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"}})
        }
        ("resource.k8s.io", "ResourceClaim") => json!({"spec": claim()}),
        ("resource.k8s.io", "ResourceClaimTemplate") => json!({"spec": {"spec": claim()}}),
        ("resource.k8s.io", "ResourceSlice") => {
            json!({"spec": {"driver": "d.example", "allNodes": true,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
        }
        ("resource.k8s.io", "DeviceTaintRule") => {
            json!({"spec": {"taint": {"key": "a", "effect": "NoSchedule"}}})
        }
        ("storage.k8s.io", "StorageClass") => json!({"provisioner": "a.example/b"}),
        ("storage.k8s.io", "VolumeAttachment") => {
            json!({"spec": {"attacher": "a.example", "nodeName": "n",
            "source": {"persistentVolumeName": "pv"}}})
        }
        ("storage.k8s.io", "CSIStorageCapacity") => json!({"storageClassName": "s"}),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            json!({"driverName": "a.example", "parameters": {"a": "b"}})
        }
        ("node.k8s.io", "RuntimeClass") => json!({"handler": "h"}),
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
    let name = if info.kind == "IPAddress" {
        "10.0.0.1"
    } else {
        "a"
    };
    object["metadata"] = json!({"name": name, "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"});
    object["kind"] = info.kind.into();
    object["apiVersion"] = Gvk::new(info.group, info.version, info.kind)
        .api_version()
        .into();
    object
}
