//! Upstream's cases, in its words: `desired_state_of_world_populator_test.go` at v1.37.

use std::convert::Infallible;

use coracle_telemetry::ErrorChain;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

fn pod(volumes: &Value, container: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "pod-1"},
        "spec": {"volumes": volumes, "containers": [container]},
    }))
    .expect("pod")
}

fn claim() -> Value {
    json!({"metadata": {"name": "data", "namespace": "default", "uid": "claim-1"},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}})
}

fn volume() -> Value {
    json!({"metadata": {"name": "v", "uid": "volume-1", "managedFields": [{}]},
        "spec": {"claimRef": {"uid": "claim-1"}, "local": {"path": "/srv"}}})
}

/// What a pod gets by its one volume, of an API that has these objects.
async fn resolve(
    pod: &Pod,
    claim: Option<Value>,
    volume: Option<Value>,
) -> Result<Claimed, String> {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path();
        let found = if path.contains("persistentvolumeclaims") {
            claim.clone()
        } else {
            volume.clone()
        };
        let missing = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "it is not there", "reason": "NotFound", "code": 404});
        let (code, body) = found.map_or((404, missing), |object| (200, object));
        let answer = http::Response::builder().status(code);
        let answer = answer.body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer.expect("an answer")) }
    });
    let claims = Claims {
        client: kube::Client::new(service, "default"),
    };
    let of_pod = &pod.spec_or_default().volumes.as_ref().expect("volumes")[0];
    let reference = of(pod, of_pod).expect("a claim");
    let resolved = claims.resolve(pod, of_pod, &reference).await;
    resolved.map_err(|error| ErrorChain(&error).to_string())
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    *object.pointer_mut(path).expect("a field") = value;
    object
}

#[tokio::test]
async fn a_claim_is_the_volume_that_it_is_bound_to() {
    let volumes =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}]);
    let pod = pod(
        &volumes,
        &json!({"name": "c", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}),
    );
    let found = resolve(&pod, Some(claim()), Some(volume()))
        .await
        .expect("a volume");
    assert_eq!(
        (found.claim.as_str(), found.name(), found.uid()),
        ("data", "v", "volume-1")
    );
    assert_eq!(found.volume.metadata.managed_fields, None);
    assert!(!found.ready);
}

#[tokio::test]
async fn what_is_wrong_with_a_claim_is_told_in_upstreams_words() {
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mounted = json!({"name": "c", "volumeMounts": [{"name": "d", "mountPath": "/d"}]});
    let pod = pod(&volumes, &mounted);
    let deleted =
        json!({"name": "data", "uid": "claim-1", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    let block =
        json!({"claimRef": {"uid": "claim-1"}, "volumeMode": "Block", "local": {"path": "/dev/x"}});
    for (claim, volume, expect) in [
        (
            with(claim(), "/metadata", deleted),
            volume(),
            "error processing PVC default/data: PVC is being deleted",
        ),
        (
            with(claim(), "/status", json!({"phase": "Pending"})),
            volume(),
            "error processing PVC default/data: PVC is not bound",
        ),
        (
            with(claim(), "/spec", json!({})),
            volume(),
            "error processing PVC default/data: PVC has empty pvc.Spec.VolumeName",
        ),
        (
            claim(),
            with(volume(), "/spec", json!({"local": {"path": "/srv"}})),
            "error processing PVC default/data: found PV object v but it has a nil pv.Spec.ClaimRef indicating it is \
             not yet bound to the claim",
        ),
        (
            claim(),
            with(volume(), "/spec/claimRef/uid", json!("claim-2")),
            "error processing PVC default/data: found PV object v but its pv.Spec.ClaimRef.UID claim-2 does not point \
             to claim.UID claim-1",
        ),
        (
            claim(),
            with(volume(), "/spec", block),
            "volume d has volumeMode Block, but is specified in volumeMounts",
        ),
    ] {
        let told = resolve(&pod, Some(claim), Some(volume)).await;
        assert_eq!(told.expect_err(expect), expect);
    }
    let leaves = with(claim(), "/spec/volumeName", json!("../../etc"));
    let told = resolve(&pod, Some(leaves), Some(volume())).await;
    assert!(
        told.expect_err("no name")
            .contains("is no name of a volume")
    );
    for (claim_there, what) in [(None, "PVC"), (Some(claim()), "PV v")] {
        let told = resolve(&pod, claim_there, None)
            .await
            .expect_err("nothing is there");
        assert_eq!(
            told,
            format!(
                "error processing PVC default/data: failed to fetch {what} from API server: it is not there"
            )
        );
    }
}

#[tokio::test]
async fn an_ephemeral_claim_is_the_one_that_was_made_for_the_pod() {
    let pod = pod(
        &json!([{"name": "d", "ephemeral": {}}]),
        &json!({"name": "c"}),
    );
    let reference = of(
        &pod,
        &pod.spec_or_default().volumes.as_ref().expect("volumes")[0],
    );
    assert_eq!(reference.expect("a claim").name, "web-d");
    let owned = |uid: &str, controller: bool| {
        let mut object = claim();
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": controller}]);
        object
    };
    let why = "PVC default/web-d was not created for pod default/web (pod is not owner)";
    for (claim, expect) in [
        (owned("pod-1", true), None),
        (owned("pod-1", false), Some(why)),
        (owned("pod-0", true), Some(why)),
        (claim(), Some(why)),
    ] {
        let told = resolve(&pod, Some(claim), Some(volume())).await.err();
        assert_eq!(told.as_deref(), expect);
    }
}

#[test]
fn a_volume_is_used_by_any_container_as_a_mount_or_a_device() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": {
        "initContainers": [{"name": "i", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
        "containers": [{"name": "c", "volumeDevices": [{"name": "b", "devicePath": "/b"}]}],
        "ephemeralContainers": [{"name": "e", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
    }}))
    .expect("pod");
    let uses = |name: &str| {
        let uses = Uses::of(&pod, name);
        (uses.mounted, uses.as_device)
    };
    assert_eq!(uses("a"), (true, false));
    assert_eq!(uses("b"), (false, true));
    assert_eq!(uses("d"), (true, false));
    assert!(!Uses::of(&pod, "nobody's").any());
}
