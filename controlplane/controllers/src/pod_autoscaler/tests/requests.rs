//! What pods ask for: `TestCalculateRequests`.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{both, metrics, pods, seen};
use crate::{
    pod::Pod,
    pod_autoscaler::{replicas::by_utilization, usage},
};

#[test]
fn a_pods_own_requests_are_what_it_asks_for() {
    let now = Timestamp::now();
    let with = |spec| {
        let mut pod = Pod::clone(&pods("r", &["1"], now)[0]);
        pod.spec = Some(serde_json::from_value(spec).unwrap());
        [Arc::new(pod)]
    };
    let at = |pods: &[Arc<Pod>], container| {
        let samples = usage::samples(&metrics("cpu", &both(&[500]), now), "cpu", container);
        by_utilization(&seen(pods, 1, "cpu", now), samples, 100, container)
            .map(|proposal| proposal.utilization.unwrap())
    };
    let container = |name, cpu| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
    let containers = json!([container("container1", "1"), container("container2", "1")]);
    let own = json!({"containers": containers, "resources": {"requests": {"cpu": "4"}}});
    assert_eq!(at(&with(own.clone()), None), Ok(25));
    assert_eq!(
        at(&with(own), Some("container1")),
        Ok(50),
        "the container's is nearer"
    );
    let other = json!({"containers": containers, "resources": {"requests": {"memory": "1Gi"}}});
    assert_eq!(
        at(&with(other), None),
        Ok(50),
        "what its containers come to"
    );
    let sidecar =
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}});
    let init = json!({"name": "i", "resources": {"requests": {"cpu": "9"}}});
    let with_sidecar = json!({"containers": containers, "initContainers": [init, sidecar]});
    assert_eq!(
        at(&with(with_sidecar), None),
        Ok(25),
        "sidecars count, init containers do not"
    );
}
