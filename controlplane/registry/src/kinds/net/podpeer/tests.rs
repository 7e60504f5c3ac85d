use coracle_api::{
    decode::{self, ContentType, FieldValidation},
    resource::Gvk,
};

use super::*;
use crate::stored;

/// A pod with what is shown and with much that is not.
fn pod() -> Value {
    let port = json!({"name": "http", "containerPort": 80, "protocol": "TCP", "hostPort": 8080, "hostIP": "10.0.0.9"});
    let container = json!({
        "name": "c", "image": "i:1", "restartPolicy": "Never", "env": [{"name": "A", "value": "secret"}],
        "ports": [port, {"containerPort": 81, "protocol": "TCP"}, {"name": "", "containerPort": 82}],
    });
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "resourceVersion": "17", "name": "p", "namespace": "n", "uid": "u", "generateName": "p-",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "deletionGracePeriodSeconds": 30, "generation": 3,
            "labels": {"app": "a\"b"}, "annotations": {"note": "secret"}, "finalizers": ["a.example/b"],
            "ownerReferences": [{"kind": "Job", "name": "secret", "uid": "o", "apiVersion": "batch/v1"}],
            "managedFields": [{"manager": "secret", "fieldsV1": {}}],
        },
        "spec": {
            "nodeName": "w1", "hostNetwork": true, "serviceAccountName": "secret", "hostname": "secret",
            "containers": [container, {"name": "silent", "image": "i:1"}],
            "initContainers": [
                {"name": "side", "image": "i:1", "restartPolicy": "Always",
                    "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
                {"name": "once", "image": "i:1", "ports": null},
            ],
            "ephemeralContainers": [{"name": "secret", "image": "i:1", "ports": [{"name": "x", "containerPort": 1}]}],
            "volumes": [{"name": "v", "secret": {"secretName": "secret"}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}],
            "hostIP": "192.168.0.1", "message": "secret", "containerStatuses": [{"name": "c", "imageID": "secret"}],
        },
    })
}

fn shown(pod: &Value) -> Value {
    serde_json::from_slice(&PodPeer.project(pod.to_string().as_bytes()).unwrap()).unwrap()
}

#[test]
fn what_policies_look_at_is_shown_and_nothing_else() {
    let expect = json!({
        "kind": "PodPeer", "apiVersion": "net.coracle.dev/v1",
        "metadata": {
            "resourceVersion": "17", "name": "p", "namespace": "n", "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"app": "a\"b"},
        },
        "spec": {
            "nodeName": "w1", "hostNetwork": true,
            "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}]}],
            "initContainers": [{"name": "side", "restartPolicy": "Always",
                "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]}],
        },
        "status": {"phase": "Running", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]},
    });
    assert_eq!(shown(&pod()), expect);
}

#[test]
fn what_a_pod_does_not_have_is_absent() {
    let bare = json!({"kind": "PodPeer", "apiVersion": "net.coracle.dev/v1", "metadata": {"name": "p"}, "spec": {}, "status": {}});
    let metadata = json!({"name": "p", "labels": null, "namespace": null});
    for pod in [
        json!({"metadata": metadata}),
        json!({"metadata": metadata, "spec": null, "status": null}),
        json!({"metadata": metadata, "status": {"podIPs": null}, "spec": {
            "hostNetwork": false, "containers": null, "initContainers": [{"name": "i", "ports": []}]}}),
    ] {
        assert_eq!(shown(&pod), bare, "{pod}");
    }
}

#[test]
fn a_peer_is_decoded_as_a_pod() {
    let mut peer = shown(&pod());
    (peer["kind"], peer["apiVersion"]) = ("Pod".into(), "v1".into());
    let decoded = decode::decode(
        peer.to_string().as_bytes(),
        ContentType::Json,
        &Gvk::new("", "v1", "Pod"),
        FieldValidation::Strict,
    );
    assert_eq!(
        decoded.unwrap().object["spec"]["containers"][0]["name"],
        "c"
    );
}

#[test]
fn a_peer_is_laid_out_as_what_is_stored() {
    let stored = stored::text(&pod());
    let peer = PodPeer.project(&stored).unwrap();
    assert_eq!(stored::revision(&peer), "17");
    assert!(PodPeer.project(b"{").is_err());
}

#[test]
fn rows_tell_where_a_peer_is() {
    let row = |pod: &Value| json!(PodPeer.row(&shown(pod), 0)[..4]);
    assert_eq!(row(&pod()), json!(["p", "Running", "10.1.0.5", "w1"]));
    let bare = json!({"metadata": {"name": "p"}, "status": {"phase": "Pending"}});
    assert_eq!(row(&bare), json!(["p", "Pending", "<none>", "<none>"]));
}
